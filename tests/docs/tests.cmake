# What the documents say is done. A user's compiler knows nothing of sanitizers, so an instrumented build leaves this out.
if(NOT HVD_SANITIZE)
  hvd_test(hvd_docs_test
    ${CMAKE_CURRENT_SOURCE_DIR}/docs/walks_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/e2e/job_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/many_hosts/many_hosts_test.cpp
    LIBRARIES hvd_test_hosts
    LABELS packaging
    TIMEOUT 500
    DEFINITIONS HVD_BUILD_DIR="${PROJECT_BINARY_DIR}")
  add_dependencies(hvd_docs_test hvd hvd_static hvdrun hvd-agent hvd_manual)
  if(TARGET hvd_nccl)
    add_dependencies(hvd_docs_test hvd_nccl)
  endif()
endif()

hvd_test(hvd_pages_test
  ${CMAKE_CURRENT_SOURCE_DIR}/docs/pages_test.cpp
  LABELS quick)
add_dependencies(hvd_pages_test hvdrun)
