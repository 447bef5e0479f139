# A worker as users write them, built against libhvd.so.
add_executable(hvd_elastic_program worker/elastic/program.cpp runtime/tsan_options.cpp)
target_compile_definitions(hvd_elastic_program PRIVATE HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_compile_options(hvd_elastic_program PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(hvd_elastic_program PRIVATE hvd)

hvd_test(hvd_elastic_test
  runtime/trace/trace_check.cpp
  worker/elastic/agreement_test.cpp
  worker/elastic/commit_test.cpp
  worker/elastic/device_parts_test.cpp
  worker/elastic/kept_states_test.cpp
  worker/elastic/leave_watch_test.cpp
  worker/elastic/ledger_test.cpp
  worker/elastic/partial_transfer_test.cpp
  worker/process/current_world_test.cpp
  worker/process/entry_timer_test.cpp
  worker/process/high_water_test.cpp
  worker/process/membership_test.cpp
  worker/elastic/progress_test.cpp
  worker/elastic/saved_state_test.cpp
  worker/elastic/state_lock_test.cpp
  worker/process/set_table_test.cpp
  worker/process/settings_test.cpp
  worker/elastic/store_test.cpp
  worker/elastic/workers_attempts_test.cpp
  worker/elastic/workers_changes_test.cpp
  worker/elastic/workers_losses_test.cpp
  worker/elastic/workers_worlds_test.cpp
  worker/process/world_change_test.cpp
  worker/process/world_follower_test.cpp
  worker/elastic/state_saver_test.cpp
  LIBRARIES hvd_test_gpus hvd_worker hvd_rendezvous hvd_asio hvd_base nlohmann_json::nlohmann_json
  LABELS unit asan once tsan
  TIMEOUT 300)
add_dependencies(hvd_elastic_test hvd_elastic_program)

# Driver and workers together in virtual time.
hvd_test(hvd_simulation_test COMPUTES
  driver/job/elastic_rules.cpp
  worker/elastic/cluster_calm.cpp
  worker/elastic/cluster_faults.cpp
  worker/elastic/cluster_suspension.cpp
  worker/elastic/cluster_takeover.cpp
  worker/elastic/finished_worker.cpp
  worker/elastic/simulated_cluster.cpp
  worker/elastic/simulated_workers.cpp
  worker/elastic/simulation_test.cpp
  worker/elastic/suspended_worker.cpp
  worker/elastic/training_history.cpp
  worker/elastic/training_worker.cpp
  LIBRARIES hvd_driver hvd_worker
  LABELS unit)
add_test(NAME ElasticSimulation/25000_seeds
  COMMAND hvd_simulation_test --gtest_filter=ElasticSimulation.holds_whatever_happens_at_once)
set_tests_properties(ElasticSimulation/25000_seeds PROPERTIES LABELS nightly TIMEOUT 900 PROCESSORS 6 COST 100
  ENVIRONMENT HVD_SIMULATION_RUNS=25000)
add_test(NAME ElasticSimulation/suspensions_of_15000_seeds
  COMMAND hvd_simulation_test --gtest_filter=ElasticSimulation.suspends_whatever_happens_at_once)
set_tests_properties(ElasticSimulation/suspensions_of_15000_seeds PROPERTIES LABELS nightly TIMEOUT 900 PROCESSORS 6
  COST 30 ENVIRONMENT HVD_SIMULATION_RUNS=15000)
