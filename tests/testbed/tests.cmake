# Pretend hosts, which all tests of what crosses a network stand on: hvd_test_hosts for tests, hvd-hosts for people.
set(hosts ${CMAKE_CURRENT_SOURCE_DIR}/testbed)

add_library(hvd_test_hosts_base STATIC
  ${hosts}/hosts.cpp
  ${hosts}/plan.cpp
  ${hosts}/possible.cpp
  ${hosts}/system.cpp)
hvd_compile_options(hvd_test_hosts_base)
target_link_libraries(hvd_test_hosts_base PUBLIC hvd_test_support hvd_base)

add_executable(hvd-hosts
  ${hosts}/capture.cpp
  ${hosts}/delay_line.cpp
  ${hosts}/files.cpp
  ${hosts}/host_init.cpp
  ${hosts}/bed_server.cpp
  ${hosts}/main.cpp
  ${hosts}/network.cpp)
hvd_compile_options(hvd-hosts)
target_compile_definitions(hvd-hosts PRIVATE HVD_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
  HVD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(hvd-hosts PRIVATE hvd_test_hosts_base)
set_target_properties(hvd-hosts PROPERTIES HVD_MEASURES ON)

# The library that tests link; the program comes with it.
add_library(hvd_test_hosts INTERFACE)
target_link_libraries(hvd_test_hosts INTERFACE hvd_test_hosts_base)
add_dependencies(hvd_test_hosts hvd-hosts)

hvd_test(hvd_hosts_test
  ${hosts}/faults_test.cpp
  ${hosts}/hosts_test.cpp
  ${hosts}/lifetime_test.cpp
  LIBRARIES hvd_test_hosts
  LABELS hosts)
