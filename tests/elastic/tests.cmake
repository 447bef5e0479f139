# A worker as users write them, built against libhvd.so.
add_executable(hvd_elastic_program elastic/program.cpp runtime/tsan_options.cpp)
target_compile_definitions(hvd_elastic_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(hvd_elastic_program PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(hvd_elastic_program PRIVATE hvd)

hvd_test(hvd_elastic_test
  runtime/trace_check.cpp
  elastic/agreement_test.cpp
  elastic/commit_test.cpp
  elastic/device_parts_test.cpp
  elastic/kept_states_test.cpp
  elastic/membership_test.cpp
  elastic/progress_test.cpp
  elastic/set_table_test.cpp
  elastic/store_test.cpp
  elastic/workers_changes_test.cpp
  elastic/workers_losses_test.cpp
  elastic/workers_worlds_test.cpp
  elastic/world_change_test.cpp
  elastic/world_follower_test.cpp
  LIBRARIES hvd_test_gpus hvd_worker hvd_rendezvous hvd_asio hvd_base nlohmann_json::nlohmann_json
  LABELS quick
  TIMEOUT 300)
add_dependencies(hvd_elastic_test hvd_elastic_program)

# Driver and workers together in virtual time.
hvd_test(hvd_simulation_test COMPUTES
  driver/elastic_rules.cpp
  elastic/cluster_faults.cpp
  elastic/simulated_cluster.cpp
  elastic/simulated_workers.cpp
  elastic/simulation_test.cpp
  elastic/training_history.cpp
  elastic/training_worker.cpp
  LIBRARIES hvd_job hvd_worker
  LABELS quick)
add_test(NAME ElasticSimulation/100000_seeds
  COMMAND hvd_simulation_test --gtest_filter=ElasticSimulation.holds_whatever_happens_at_once)
set_tests_properties(ElasticSimulation/100000_seeds PROPERTIES LABELS simulation TIMEOUT 900 PROCESSORS 2
  ENVIRONMENT HVD_SIMULATION_RUNS=100000)
