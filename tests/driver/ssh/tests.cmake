set(ssh ${CMAKE_CURRENT_SOURCE_DIR}/driver/ssh)

# Tests that need no other host: the configuration, known_hosts, the script under every shell that is here.
hvd_test(hvd_ssh_test
  ${ssh}/algorithms_test.cpp
  ${ssh}/config_test.cpp
  ${ssh}/known_hosts_test.cpp
  ${ssh}/remote_script_test.cpp
  ${ssh}/tunnel_multiplexer_test.cpp
  LIBRARIES hvd_ssh hvd_libssh LABELS unit)

add_executable(hvd_ssh_launcher ${ssh}/launcher_program.cpp)
hvd_compile_options(hvd_ssh_launcher)
target_link_libraries(hvd_ssh_launcher PRIVATE hvd_ssh)

hvd_test(hvd_ssh_hosts_test
  ${ssh}/authentication_test.cpp
  ${ssh}/connection_test.cpp
  ${ssh}/hvdrun_test.cpp
  ${ssh}/start_test.cpp
  LIBRARIES hvd_test_hosts LABELS hosts TIMEOUT 180)
add_dependencies(hvd_ssh_hosts_test hvd-agent hvd_ssh_launcher hvdrun)
