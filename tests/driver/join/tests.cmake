# The server that agents join by themselves, with the real client at the other end.
hvd_test(hvd_join_test
  driver/join/join_server_test.cpp
  driver/join/join_tokens_test.cpp
  driver/join/tls_psk_test.cpp
  LIBRARIES hvd_cli hvd_join hvd_tls LABELS unit)

# The real hvdrun agent, with a real agent below it.
hvd_test(hvd_join_process_test
  driver/join/agent_relay_test.cpp
  driver/join/joined_job_test.cpp
  driver/join/many_agents_test.cpp
  support/pretend_agents.cpp
  LIBRARIES hvd_join hvd_tls hvd_rendezvous LABELS e2e)
add_dependencies(hvd_join_process_test hvdrun hvd-agent allreduce_once)
