# The program is built against libhvd.so, as users build theirs.
add_executable(hvd_worker_program worker/worker_program.cpp runtime/tsan_options.cpp)
target_compile_definitions(hvd_worker_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(hvd_worker_program PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(hvd_worker_program PRIVATE hvd)

hvd_test(hvd_worker_test
  runtime/trace/trace_check.cpp
  worker/worker_test.cpp
  LIBRARIES hvd_rendezvous hvd_asio hvd_base nlohmann_json::nlohmann_json
  LABELS unit asan
  TIMEOUT 300)
add_dependencies(hvd_worker_test hvd_worker_program hvd_without_calls)

hvd_test(hvd_api_test
  worker/api_arguments_test.cpp
  worker/api_handles_test.cpp
  worker/api_test.cpp
  worker/sampler_test.cpp
  LIBRARIES hvd
  LABELS unit asan)

hvd_test(hvd_shards_test
  worker/shards/tree_test.cpp
  LIBRARIES hvd_worker
  LABELS unit asan once)

hvd_test(hvd_gradient_pack_test worker/gradient_pack_test.cpp LIBRARIES hvd_worker LABELS unit asan once)

hvd_test(hvd_launch_test
  worker/launch/launched_world_test.cpp
  LIBRARIES hvd_worker
  LABELS unit)

# Code above the adapter for frameworks and languages, in real jobs.
add_executable(hvd_gradients_program worker/gradients_errors.cpp worker/gradients_program.cpp runtime/tsan_options.cpp)
hvd_compile_options(hvd_gradients_program)
target_compile_definitions(hvd_gradients_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(hvd_gradients_program PRIVATE hvd)

add_executable(hvd_shards_program worker/shards/program.cpp runtime/tsan_options.cpp)
hvd_compile_options(hvd_shards_program)
target_compile_definitions(hvd_shards_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(hvd_shards_program PRIVATE hvd)

add_executable(hvd_framework_program worker/framework_program.cpp runtime/tsan_options.cpp)
hvd_compile_options(hvd_framework_program)
target_compile_definitions(hvd_framework_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(hvd_framework_program PRIVATE hvd)

# As another language sees it: strictly C11.
foreach(program c_api_program c_elastic_program)
  add_executable(hvd_${program} worker/${program}.c)
  set_target_properties(hvd_${program} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(hvd_${program} PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_link_libraries(hvd_${program} PRIVATE hvd)
endforeach()

hvd_test(hvd_seam_test
  e2e/job_test.cpp
  runtime/trace/trace_check.cpp
  worker/c_api_test.cpp
  worker/c_elastic_test.cpp
  worker/framework_test.cpp
  worker/gradient_reducer_test.cpp
  worker/launch/lost_launch_test.cpp
  worker/launch/other_launcher_test.cpp
  worker/launch/slurm_test.cpp
  worker/shards/reducer_test.cpp
  LIBRARIES nlohmann_json::nlohmann_json
  LABELS e2e
  TIMEOUT 300)
add_dependencies(hvd_seam_test hvdrun hvd-agent hvd_gradients_program hvd_shards_program hvd_c_api_program hvd_c_elastic_program
  hvd_framework_program hvd_worker_program)

# Collectives over MPI. Programs that use it besides are compiled for one MPI.
hvd_test(hvd_mpi_test
  e2e/job_test.cpp
  worker/launch/mpi_test.cpp
  DEFINITIONS HVD_MODULES="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}" HVD_PYTHON_DIR="${PROJECT_BINARY_DIR}/python"
  LABELS e2e
  TIMEOUT 300)
add_dependencies(hvd_mpi_test hvdrun hvd-agent hvd_worker_program conforms)
if(TARGET hvd_python)
  add_dependencies(hvd_mpi_test hvd_python)
endif()
foreach(mpi IN LISTS HVD_MPIS)
  add_executable(hvd_${mpi}_program worker/mpi_program.cpp)
  hvd_compile_options(hvd_${mpi}_program)
  target_link_libraries(hvd_${mpi}_program PRIVATE hvd PkgConfig::HVD_${mpi})
  add_dependencies(hvd_mpi_test hvd_${mpi} hvd_${mpi}_program)
endforeach()

hvd_test(hvd_oneccl_test
  e2e/job_test.cpp
  worker/launch/oneccl_test.cpp
  DEFINITIONS HVD_MODULES="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}" HVD_PYTHON_DIR="${PROJECT_BINARY_DIR}/python"
  LABELS e2e
  TIMEOUT 300)
add_dependencies(hvd_oneccl_test hvdrun hvd-agent hvd_worker_program conforms)
if(TARGET hvd_python)
  add_dependencies(hvd_oneccl_test hvd_python)
endif()
if(HVD_HAS_ONECCL)
  add_dependencies(hvd_oneccl_test hvd_oneccl)
endif()

# hvd/torch.h, with its warnings as users see them. Whoever includes LibTorch compiles for long.
if(TARGET hvd_libtorch AND TARGET libtorch_fashion)
  add_executable(hvd_torch_program worker/torch_program.cpp)
  hvd_compile_options(hvd_torch_program)
  target_link_libraries(hvd_torch_program PRIVATE hvd hvd_libtorch)
  hvd_test(hvd_torch_test
    e2e/job_test.cpp
    worker/torch_test.cpp
    LABELS e2e
    TIMEOUT 300)
  add_dependencies(hvd_torch_test hvdrun hvd-agent hvd_torch_program libtorch_fashion)
endif()
