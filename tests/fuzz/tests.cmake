# The data plane: half a minute of it is a nightly test, more is for a person (--minutes 60).
add_executable(hvd_data_plane_fuzz
  fuzz/data_plane.cpp
  fuzz/expected.cpp
  fuzz/plan.cpp
  fuzz/run.cpp
  fuzz/shrink.cpp
  runtime/tsan_options.cpp)
hvd_compile_options(hvd_data_plane_fuzz)
hvd_computes(hvd_data_plane_fuzz)
target_link_libraries(hvd_data_plane_fuzz PRIVATE hvd_runtime hvd_base hvd_test_support GTest::gtest)
add_test(NAME Fuzz.HalfAMinuteOfRandomCollectivesIsRight COMMAND hvd_data_plane_fuzz --minutes 0.5)
set_tests_properties(Fuzz.HalfAMinuteOfRandomCollectivesIsRight PROPERTIES LABELS nightly TIMEOUT 400 PROCESSORS 6 COST 100)

# hvd_fuzz_refuses(NAME "what it says" words...)
function(hvd_fuzz_refuses name said)
  add_test(NAME Fuzz.${name} COMMAND hvd_data_plane_fuzz ${ARGN})
  set_tests_properties(Fuzz.${name} PROPERTIES LABELS e2e PASS_REGULAR_EXPRESSION "hvd_data_plane_fuzz: ${said}")
endfunction()
hvd_fuzz_refuses(ASeedThatIsNoNumber "--seed x: must be a number" --seed x)
hvd_fuzz_refuses(AnArgumentThatItDoesNotKnow "unknown argument --seeds" --seeds 3)
