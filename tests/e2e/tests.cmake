# The whole as a person sees it: real hvdrun, real agent, real workers.
set(e2e ${CMAKE_CURRENT_SOURCE_DIR}/e2e)

# hvd_e2e_program(NAME libraries...): e2e_<NAME>, a worker for the tests.
function(hvd_e2e_program name)
  add_executable(e2e_${name} ${e2e}/programs/${name}.cpp)
  hvd_compile_options(e2e_${name})
  target_link_libraries(e2e_${name} PRIVATE ${ARGN})
endfunction()

hvd_e2e_program(stays hvd_base)
hvd_e2e_program(follows hvd_base)
hvd_e2e_program(intrudes hvd_base hvd_rendezvous_client)
hvd_e2e_program(legacy_store hvd_base)
hvd_e2e_program(torch_style hvd_base)
hvd_e2e_program(tunes hvd)
hvd_e2e_program(waits hvd)
hvd_e2e_program(works hvd)
hvd_e2e_program(api_calls hvd)
hvd_e2e_program(api_errors hvd)
hvd_e2e_program(api_sets hvd)

# Shared by the tests, the benchmark and the soak of elastic jobs. The program is placed on hosts that have nothing of
# hvd.
add_executable(elastic_steps ${e2e}/programs/elastic_steps.cpp)
hvd_compile_options(elastic_steps)
set_target_properties(elastic_steps PROPERTIES HVD_MEASURES ON)
target_link_libraries(elastic_steps PRIVATE hvd_static)

add_library(hvd_test_steps STATIC ${e2e}/step_logs.cpp)
hvd_compile_options(hvd_test_steps)
target_link_libraries(hvd_test_steps PUBLIC hvd_test_support)

# Preloaded by tests of files on a disk that goes bad.
add_library(hvd_bad_files MODULE support/bad_files.c)
target_link_libraries(hvd_bad_files PRIVATE ${CMAKE_DL_LIBS})

hvd_test(hvd_takeover_test
  ${e2e}/elastic_job.cpp
  ${e2e}/job_test.cpp
  ${e2e}/kept_state_test.cpp
  ${e2e}/takeover_test.cpp
  ${e2e}/saving_test.cpp
   ${e2e}/notice_test.cpp
   LIBRARIES hvd_test_steps hvd_rendezvous
  LABELS e2e
  TIMEOUT 300)
add_dependencies(hvd_takeover_test hvdrun hvd-agent elastic_steps)

hvd_test(hvd_e2e_test
  ${e2e}/api_test.cpp
  ${e2e}/closed_streams_test.cpp
  ${e2e}/compatibility_test.cpp
  ${e2e}/early_end_test.cpp
  ${e2e}/elastic_driver_test.cpp
  ${e2e}/elastic_faults_test.cpp
  ${e2e}/elastic_job.cpp
  ${e2e}/elastic_replaced_test.cpp
  ${e2e}/exhaustion_test.cpp
  ${e2e}/failure_test.cpp
  ${e2e}/flood_test.cpp
  ${e2e}/group_restart_test.cpp
  ${e2e}/joining_agents_test.cpp
  ${e2e}/observers_test.cpp
  ${e2e}/job_test.cpp
  ${e2e}/ledger_test.cpp
  ${e2e}/lifetime_test.cpp
  ${e2e}/output_test.cpp
  ${e2e}/pause_test.cpp
  ${e2e}/robustness_test.cpp
  ${e2e}/secrets_test.cpp
  ${e2e}/signals_test.cpp
  ${e2e}/journal_test.cpp
  ${e2e}/slow_ranks_test.cpp
  ${e2e}/status_test.cpp
  ${e2e}/suspend_test.cpp
  ${e2e}/timeline_test.cpp
  ${e2e}/top_test.cpp
  ${e2e}/training_test.cpp
  ${e2e}/tuning_test.cpp
  ${e2e}/waiting_test.cpp
  runtime/trace/trace_check.cpp
  LIBRARIES hvd_test_steps nlohmann_json::nlohmann_json
  LABELS e2e
  TIMEOUT 300
  DEFINITIONS HVD_C="${CMAKE_C_COMPILER}" HVD_BAD_FILES="$<TARGET_FILE:hvd_bad_files>")
add_dependencies(hvd_e2e_test hvd_bad_files hvdrun hvd-agent elastic_steps train allreduce_once
  e2e_stays e2e_follows e2e_intrudes e2e_legacy_store e2e_torch_style e2e_works
  e2e_api_calls e2e_api_errors e2e_api_sets looks)
add_dependencies(hvd_e2e_test e2e_tunes e2e_waits hvd_elastic_program)
if(TARGET train_cuda)
  target_compile_definitions(hvd_e2e_test PRIVATE HVD_TRAIN_CUDA)
  add_dependencies(hvd_e2e_test train_cuda)
endif()

# Tensors of GPUs in real jobs, on GPUs in the memory of the host.
hvd_e2e_program(gpu_results hvd)
hvd_test(hvd_gpu_jobs_test
  ${e2e}/elastic_gpu_test.cpp
  ${e2e}/elastic_job.cpp
  ${e2e}/gpu_results_test.cpp
  ${e2e}/job_test.cpp
  LIBRARIES hvd_test_steps
  DEFINITIONS HVD_HOST_GPU_MODULE="$<TARGET_FILE:hvd_host_gpu>"
  LABELS e2e
  TIMEOUT 300)
add_dependencies(hvd_gpu_jobs_test hvdrun hvd-agent elastic_steps e2e_gpu_results hvd_host_gpu)

# Programs of other builds of hvd: their numbers are linked in place of those in hvd_base.
function(hvd_other_version_program name worker_link members)
  add_executable(e2e_${name} ${e2e}/programs/works.cpp ${e2e}/programs/other_versions.cpp)
  hvd_compile_options(e2e_${name})
  target_compile_definitions(e2e_${name} PRIVATE HVD_OTHER_BUILD="9.9.9-${name}"
    HVD_OTHER_WORKER_LINK=${worker_link} HVD_OTHER_MEMBERS=${members})
  target_link_libraries(e2e_${name} PRIVATE hvd_worker)
endfunction()
file(READ ${PROJECT_SOURCE_DIR}/base/versions.cpp versions)
if(NOT versions MATCHES "worker_link = ([0-9]+), .members = ([0-9]+)")
  message(FATAL_ERROR "base/versions.cpp: the versions are not where tests/e2e/tests.cmake looks for them")
endif()
set(own_link ${CMAKE_MATCH_1})
set(own_members ${CMAKE_MATCH_2})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/base/versions.cpp)
hvd_other_version_program(other_link 900 ${own_members})
hvd_other_version_program(other_members ${own_link} 900)
hvd_other_version_program(other_build ${own_link} ${own_members})

hvd_test(hvd_versions_test
  ${e2e}/job_test.cpp
  ${e2e}/versions_test.cpp
  LABELS e2e
  DEFINITIONS HVD_OWN_WORKER_LINK=${own_link})
add_dependencies(hvd_versions_test hvdrun hvd-agent e2e_other_link e2e_other_members e2e_other_build)
