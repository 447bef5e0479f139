# Placed on hosts where nothing of ours is: all of our code is in it.
add_executable(hvd_hosts_bench hosts/allreduce.cpp collectives/stock_gloo.cpp)
hvd_compile_options(hvd_hosts_bench)
target_link_libraries(hvd_hosts_bench PRIVATE hvd_worker gloo)
