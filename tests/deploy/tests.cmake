# The contents of deploy/: the pods of the manifests, on pretend hosts.
set(deploy ${CMAKE_CURRENT_SOURCE_DIR}/deploy)

# Placed in containers, where nothing of ours is.
add_executable(large_sum ${deploy}/programs/large_sum.cpp)
hvd_compile_options(large_sum)
target_link_libraries(large_sum PRIVATE hvd_static)

hvd_test(hvd_deploy_test
  ${deploy}/kubernetes_test.cpp
  ${deploy}/manifests.cpp
  ${deploy}/manifests_test.cpp
  ${deploy}/pods.cpp
  LIBRARIES hvd_test_hosts hvd_test_steps yaml-cpp
  LABELS hosts)
add_dependencies(hvd_deploy_test hvdrun hvd-agent elastic_steps large_sum)
