# Whole jobs on pretend hosts: real hvdrun, real SSH, real workers, real faults.
set(many_hosts ${CMAKE_CURRENT_SOURCE_DIR}/many_hosts)

# Like the examples it needs nothing of ours beside it, since nothing of ours is on a host.
add_executable(placed_works ${CMAKE_CURRENT_SOURCE_DIR}/e2e/programs/works.cpp)
hvd_compile_options(placed_works)
target_link_libraries(placed_works PRIVATE hvd_static)

add_executable(looks ${many_hosts}/programs/looks.cpp)
hvd_compile_options(looks)
target_link_libraries(looks PRIVATE hvd_base)

# A job of elastic_steps, or of train, on hosts.
add_library(hvd_test_steps_job STATIC ${many_hosts}/steps_job.cpp)
hvd_compile_options(hvd_test_steps_job)
target_compile_definitions(hvd_test_steps_job PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  HVD_BAD_FILES="$<TARGET_FILE:hvd_bad_files>")
target_link_libraries(hvd_test_steps_job PUBLIC hvd_test_hosts hvd_test_steps)
add_dependencies(hvd_test_steps_job hvd_bad_files hvdrun hvd-agent elastic_steps train)

add_executable(conforms ${many_hosts}/programs/conforms.cpp ${CMAKE_CURRENT_SOURCE_DIR}/runtime/ops/conformance.cpp)
hvd_compile_options(conforms)
hvd_computes(conforms)
target_link_libraries(conforms PRIVATE hvd_worker GTest::gtest)

# The extension of a build with sanitizers does not load into a Python without them.
set(python_tests "")
if(HVD_BUILD_PYTHON AND NOT HVD_SANITIZE)
  set(python_tests ${many_hosts}/python_run_test.cpp ${many_hosts}/replaced_pickle_test.cpp
    ${many_hosts}/torch_shards_test.cpp)
endif()

hvd_test(hvd_jobs_on_hosts_test
  ${CMAKE_CURRENT_SOURCE_DIR}/e2e/job_test.cpp
  ${many_hosts}/addresses_test.cpp
  ${many_hosts}/chaos_test.cpp
  ${many_hosts}/conformance_test.cpp
  ${many_hosts}/elastic_faults_test.cpp
  ${many_hosts}/elastic_test.cpp
  ${many_hosts}/faults_test.cpp
  ${many_hosts}/group_restart_test.cpp
  ${many_hosts}/many_hosts_test.cpp
  ${many_hosts}/ports_test.cpp
  ${python_tests}
  ${many_hosts}/relay.cpp
  ${many_hosts}/secrets_test.cpp
  ${many_hosts}/takeover_test.cpp
  ${many_hosts}/tampering_test.cpp
  ${many_hosts}/training_test.cpp
  LIBRARIES hvd_test_hosts hvd_test_steps_job
  DEFINITIONS HVD_BUILD_DIR="${PROJECT_BINARY_DIR}"
  LABELS hosts
  TIMEOUT 300)
add_dependencies(hvd_jobs_on_hosts_test hvdrun hvd-agent train allreduce_once conforms placed_works looks e2e_stays)
if(python_tests)
  add_dependencies(hvd_jobs_on_hosts_test hvd_python)
endif()
