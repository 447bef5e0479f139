# The cost of a commit: build/release/bin/hvdrun -np 4 build/release/bin/hvd_commit_bench
add_executable(hvd_commit_bench elastic/commit.cpp)
target_compile_options(hvd_commit_bench PRIVATE -Wall -Wextra -Wshadow)
target_link_libraries(hvd_commit_bench PRIVATE hvd)
