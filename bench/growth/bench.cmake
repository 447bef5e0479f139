# bench/growth: what hvdrun and its agent take as workers and hosts become many.
if(HVD_BUILD_TESTS)
  add_executable(hvd_growth_bench growth/main.cpp ${PROJECT_SOURCE_DIR}/tests/support/pretend_agents.cpp)
  hvd_compile_options(hvd_growth_bench)
  target_link_libraries(hvd_growth_bench PRIVATE hvd_test_support hvd_base hvd_tls hvd_rendezvous)
endif()
