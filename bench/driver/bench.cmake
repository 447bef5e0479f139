add_executable(hvd_plan_bench ${CMAKE_CURRENT_SOURCE_DIR}/driver/plan.cpp)
hvd_compile_options(hvd_plan_bench)
target_link_libraries(hvd_plan_bench PRIVATE hvd_job)
