add_executable(hvd_collectives_bench collectives/main.cpp collectives/ranks.cpp collectives/stock_gloo.cpp)
hvd_compile_options(hvd_collectives_bench)
target_link_libraries(hvd_collectives_bench PRIVATE hvd_runtime hvd_base gloo)

foreach(name reform abort kill)
  add_executable(hvd_${name}_bench collectives/${name}.cpp collectives/worlds.cpp collectives/ranks.cpp)
  hvd_compile_options(hvd_${name}_bench)
  target_link_libraries(hvd_${name}_bench PRIVATE hvd_runtime hvd_base gloo)
endforeach()
