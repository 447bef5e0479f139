# On the tests' pretend hosts.
if(HVD_BUILD_TESTS)
  add_executable(hvd_faults_bench faults/main.cpp faults/measure.cpp faults/rows.cpp)
  hvd_compile_options(hvd_faults_bench)
  target_link_libraries(hvd_faults_bench PRIVATE hvd_test_steps_job)
endif()
