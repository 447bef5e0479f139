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
set_target_properties(hvd_data_plane_fuzz PROPERTIES HVD_RUNS_ELSEWHERE ON)
add_test(NAME Fuzz.HalfAMinuteOfRandomCollectivesIsRight COMMAND hvd_data_plane_fuzz --minutes 0.5)
set_tests_properties(Fuzz.HalfAMinuteOfRandomCollectivesIsRight PROPERTIES LABELS nightly TIMEOUT 400 PROCESSORS 6 COST 100)

# hvd_fuzz_refuses(NAME "what it says" words...)
function(hvd_fuzz_refuses name said)
  add_test(NAME Fuzz.${name} COMMAND hvd_data_plane_fuzz ${ARGN})
  set_tests_properties(Fuzz.${name} PROPERTIES LABELS nightly PASS_REGULAR_EXPRESSION "hvd_data_plane_fuzz: ${said}")
endfunction()
hvd_fuzz_refuses(ASeedThatIsNoNumber "--seed x: must be a number" --seed x)
hvd_fuzz_refuses(AnArgumentThatItDoesNotKnow "unknown argument --seeds" --seeds 3)

# The parsers of what crosses a wire, lies in a file or comes from a script: each target is one source with a
# LLVMFuzzerTestOneInput(), which libFuzzer calls (scripts/fuzz) or, with the inputs in fuzz/corpus, a test.
set(fuzz_targets agent_link commit config_file data_connection handshake host_lists http_listener join_link journal launcher
  members negotiation negotiator rendezvous slurm ssh_config state_file status_answer world_document worker_link)
set(fuzz_libraries_commit hvd_worker)
set(fuzz_libraries_config_file hvd_cli_input)
set(fuzz_libraries_data_connection hvd_runtime)
set(fuzz_libraries_host_lists hvd_discovery hvd_rendezvous_protocol)
set(fuzz_libraries_http_listener hvd_status)
set(fuzz_libraries_journal hvd_journal nlohmann_json::nlohmann_json)
set(fuzz_libraries_launcher hvd_worker)
set(fuzz_libraries_members hvd_worker)
set(fuzz_libraries_negotiation hvd_runtime)
set(fuzz_libraries_negotiator hvd_runtime)
set(fuzz_libraries_rendezvous hvd_rendezvous_protocol)
set(fuzz_libraries_slurm hvd_discovery)
set(fuzz_libraries_ssh_config hvd_ssh)
set(fuzz_libraries_state_file hvd_worker)
set(fuzz_libraries_status_answer hvd_cli_input nlohmann_json::nlohmann_json)

if(HVD_FUZZ)
  add_custom_target(hvd_fuzzers)
  foreach(name IN LISTS fuzz_targets)
    add_executable(hvd_fuzz_${name} fuzz/targets/${name}.cpp)
    hvd_compile_options(hvd_fuzz_${name})
    target_include_directories(hvd_fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR}/worker/include)
    target_link_libraries(hvd_fuzz_${name} PRIVATE ${fuzz_libraries_${name}} hvd_base)
    target_link_options(hvd_fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(hvd_fuzzers hvd_fuzz_${name})
  endforeach()
else()
  set(sources "")
  set(libraries "")
  set(names "")
  foreach(name IN LISTS fuzz_targets)
    set(source fuzz/targets/${name}.cpp)
    set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS LLVMFuzzerTestOneInput=hvd_fuzz_${name})
    list(APPEND sources ${source})
    list(APPEND libraries ${fuzz_libraries_${name}})
    string(APPEND names "T(${name})")
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  hvd_test(hvd_corpus_test fuzz/corpus_test.cpp ${sources}
    LIBRARIES ${libraries} hvd_base DEFINITIONS "HVD_FUZZ_TARGETS=${names}" LABELS unit asan once)
endif()
