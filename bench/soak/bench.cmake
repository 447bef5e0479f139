# On the tests' pretend hosts; a minute of it is a test.
if(HVD_BUILD_TESTS)
  add_executable(hvd_soak soak/main.cpp soak/trouble_maker.cpp)
  hvd_compile_options(hvd_soak)
  target_link_libraries(hvd_soak PRIVATE hvd_test_steps_job)
  add_test(NAME Soak.AMinuteOfFaultsLosesNothing COMMAND hvd_soak --seconds 60 --seed 1)
  set_tests_properties(Soak.AMinuteOfFaultsLosesNothing PROPERTIES LABELS soak TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
