# A worker as users write them, built against libhvd.so.
add_executable(hvd_elastic_program elastic/program.cpp runtime/tsan_options.cpp)
target_compile_definitions(hvd_elastic_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(hvd_elastic_program PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(hvd_elastic_program PRIVATE hvd)

hvd_test(hvd_elastic_test
  runtime/trace_check.cpp
  elastic/agreement_test.cpp
  elastic/kept_states_test.cpp
  elastic/progress_test.cpp
  elastic/workers_test.cpp
  elastic/world_follower_test.cpp
  LIBRARIES hvd_worker hvd_rendezvous hvd_asio hvd_base nlohmann_json::nlohmann_json
  LABELS quick
  TIMEOUT 300)
add_dependencies(hvd_elastic_test hvd_elastic_program)
