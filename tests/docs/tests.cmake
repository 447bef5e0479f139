# The commands of the documents are run. A user's compiler has no sanitizers, so an instrumented build leaves this out.
if(NOT HVD_SANITIZE)
  hvd_test(hvd_docs_test
    ${CMAKE_CURRENT_SOURCE_DIR}/docs/walks_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/e2e/job_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/many_hosts/many_hosts_test.cpp
    LIBRARIES hvd_test_hosts
    LABELS packaging
    TIMEOUT 500
    DEFINITIONS HVD_BUILD_DIR="${PROJECT_BINARY_DIR}" $<$<TARGET_EXISTS:hvd_libtorch>:HVD_HAS_LIBTORCH>)
  add_dependencies(hvd_docs_test hvd hvd_static hvdrun hvd-agent hvd_manual)
  if(TARGET hvd_nccl)
    add_dependencies(hvd_docs_test hvd_nccl)
  endif()
endif()

hvd_test(hvd_pages_test
  ${CMAKE_CURRENT_SOURCE_DIR}/docs/pages_test.cpp
  LABELS unit)
add_dependencies(hvd_pages_test hvdrun)

# The numbers of docs/performance.md and its plot are what bench/report draws.
if(HVD_BUILD_PYTHON AND NOT HVD_SANITIZE)
  add_test(NAME Report COMMAND ${Python3_EXECUTABLE} -m pytest -x -q -p no:cacheprovider
    --rootdir ${CMAKE_CURRENT_LIST_DIR} ${CMAKE_CURRENT_LIST_DIR}/report_test.py)
  set_tests_properties(Report PROPERTIES LABELS unit TIMEOUT 60 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
