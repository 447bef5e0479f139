hvd_test(hvd_rendezvous_test
  rendezvous/auth_test.cpp
  rendezvous/client_test.cpp
  rendezvous/flood_test.cpp
  rendezvous/hostile_test.cpp
  rendezvous/http_test.cpp
  rendezvous/legacy_test.cpp
  rendezvous/listeners_test.cpp
  rendezvous/rights_test.cpp
  rendezvous/server_fixture.cpp
  rendezvous/standalone_test.cpp
  rendezvous/store_test.cpp
  rendezvous/target_test.cpp
  LIBRARIES hvd_rendezvous hvd_rendezvous_client
  LABELS unit asan once)

# The code behind `hvdrun rendezvous`, as a process of its own for standalone_test.cpp.
add_executable(hvd_rendezvous_standalone rendezvous/standalone_main.cpp)
hvd_compile_options(hvd_rendezvous_standalone)
target_link_libraries(hvd_rendezvous_standalone PRIVATE hvd_rendezvous)
add_dependencies(hvd_rendezvous_test hvd_rendezvous_standalone)
