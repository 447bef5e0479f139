add_executable(hvd_collectives_bench collectives/main.cpp collectives/ranks.cpp collectives/stock_gloo.cpp)
hvd_compile_options(hvd_collectives_bench)
target_link_libraries(hvd_collectives_bench PRIVATE hvd_runtime hvd_base gloo)

add_executable(hvd_reform_bench collectives/reform.cpp collectives/ranks.cpp)
hvd_compile_options(hvd_reform_bench)
target_link_libraries(hvd_reform_bench PRIVATE hvd_runtime hvd_base gloo)

add_executable(hvd_abort_bench collectives/abort.cpp collectives/ranks.cpp)
hvd_compile_options(hvd_abort_bench)
target_link_libraries(hvd_abort_bench PRIVATE hvd_runtime hvd_base gloo)
