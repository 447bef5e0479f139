add_executable(hvd_agent_test_worker ${CMAKE_CURRENT_LIST_DIR}/test_worker.cpp)
hvd_compile_options(hvd_agent_test_worker)
target_link_libraries(hvd_agent_test_worker PRIVATE hvd_base)

hvd_test(hvd_agent_test
  agent/agent_under_test.cpp
  agent/check_test.cpp
  agent/freeze_test.cpp
  agent/launch_test.cpp
  agent/lease_test.cpp
  agent/link_test.cpp
  agent/network_test.cpp
  agent/output_test.cpp
  agent/pipes_test.cpp
  agent/probe_test.cpp
  agent/process_tree_test.cpp
  agent/silence_test.cpp
  agent/tree_test.cpp
  agent/worker_channel_test.cpp
  LIBRARIES hvd_agent LABELS quick)
add_dependencies(hvd_agent_test hvd-agent hvd_agent_test_worker)
