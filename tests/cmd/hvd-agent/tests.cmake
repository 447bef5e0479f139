add_executable(hvd_agent_test_worker ${CMAKE_CURRENT_LIST_DIR}/test_worker.cpp)
hvd_compile_options(hvd_agent_test_worker)
target_link_libraries(hvd_agent_test_worker PRIVATE hvd_base)

hvd_test(hvd_agent_test
  cmd/hvd-agent/agent_under_test.cpp
  cmd/hvd-agent/check_test.cpp
  cmd/hvd-agent/death_test.cpp
  cmd/hvd-agent/freeze_test.cpp
  cmd/hvd-agent/hold_test.cpp
  cmd/hvd-agent/host_claim_test.cpp
  cmd/hvd-agent/launch_test.cpp
  cmd/hvd-agent/lease_test.cpp
  cmd/hvd-agent/link_test.cpp
  cmd/hvd-agent/network_test.cpp
  cmd/hvd-agent/output_test.cpp
  cmd/hvd-agent/pipes_test.cpp
  cmd/hvd-agent/probe_test.cpp
  cmd/hvd-agent/process_tree_test.cpp
  cmd/hvd-agent/orphan_timer_test.cpp
  cmd/hvd-agent/tree_test.cpp
  cmd/hvd-agent/worker_channel_test.cpp
  cmd/hvd-agent/notice_command_test.cpp
  LIBRARIES hvd_agent LABELS unit asan once)
add_dependencies(hvd_agent_test hvd-agent hvd_agent_test_worker hvd_without_calls)
