# What deploy/ holds: the pods of the manifests, on pretend hosts.
set(deploy ${CMAKE_CURRENT_SOURCE_DIR}/deploy)

hvd_test(hvd_deploy_test
  ${deploy}/kubernetes_test.cpp
  ${deploy}/manifests.cpp
  ${deploy}/manifests_test.cpp
  ${deploy}/pods.cpp
  LIBRARIES hvd_test_hosts hvd_test_steps yaml-cpp
  LABELS hosts)
add_dependencies(hvd_deploy_test hvdrun hvd-agent elastic_steps)
