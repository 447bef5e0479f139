# On the tests' pretend hosts; a minute of it is a test.
if(HVD_BUILD_TESTS)
  add_executable(hvd_soak soak/main.cpp soak/agreement.cpp soak/outcomes.cpp soak/disks.cpp
    soak/fault_injector.cpp)
  hvd_compile_options(hvd_soak)
  target_link_libraries(hvd_soak PRIVATE hvd_test_steps_job nlohmann_json::nlohmann_json)
  add_test(NAME Soak.HalfAMinuteOfFaultsLosesNothing COMMAND hvd_soak --seconds 30 --seed 1 --stop 3)
  set_tests_properties(Soak.HalfAMinuteOfFaultsLosesNothing PROPERTIES LABELS nightly TIMEOUT 300 PROCESSORS 6 SKIP_RETURN_CODE 77 COST 100)

  # hvd_soak_refuses(NAME "what it says" words...)
  function(hvd_soak_refuses name said)
    add_test(NAME Soak.${name} COMMAND hvd_soak ${ARGN})
    set_tests_properties(Soak.${name} PROPERTIES LABELS nightly PASS_REGULAR_EXPRESSION "hvd_soak: ${said}")
  endfunction()
  hvd_soak_refuses(AProgramThatItDoesNotKnow "--program is train or steps" --program horovod)
  hvd_soak_refuses(AFlagOfTheOtherProgram "--step is not for --program train" --step 5)
  hvd_soak_refuses(AFaultThatItDoesNotKnow "--only flood: there is no such fault; there are kill, " --only kill,flood)
  hvd_soak_refuses(ABatchWithoutASampleForEach "--batch 7: 8 workers need at least one sample each" --batch 7)
endif()
