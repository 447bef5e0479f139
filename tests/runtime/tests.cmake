# The negotiation: pure, so quick to build and to run.
hvd_test(hvd_negotiation_test COMPUTES
  runtime/autotuner_test.cpp
  runtime/control_tree_test.cpp
  runtime/coordinator_sets_test.cpp
  runtime/coordinator_test.cpp
  runtime/fusion_test.cpp
  runtime/gatherer_test.cpp
  runtime/interval_set_test.cpp
  runtime/messages_test.cpp
  runtime/negotiation_simulation_test.cpp
  runtime/response_cache_test.cpp
  runtime/stall_inspector_test.cpp
  runtime/step_meter_test.cpp
  runtime/tensor_queue_test.cpp
  runtime/tuning_log_test.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS quick
  TIMEOUT 300)

hvd_test(hvd_runtime_test
  runtime/affinity_test.cpp
  runtime/arithmetic_test.cpp
  runtime/duty_test.cpp
  runtime/float8_test.cpp
  runtime/lobby_test.cpp
  runtime/tsan_options.cpp
  runtime/world_failure_test.cpp
  runtime/world_help_test.cpp
  runtime/world_negotiation_test.cpp
  runtime/world_test.cpp
  runtime/world_tuning_test.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS quick
  TIMEOUT 300)

# Every operation, type, number of ranks and size: some thousand collectives for each backend.
hvd_test(hvd_conformance_test COMPUTES
  runtime/conformance.cpp
  runtime/conformance_gloo_test.cpp
  runtime/conformance_shm_test.cpp
  runtime/conformance_tables.cpp
  runtime/conformance_world_test.cpp
  runtime/ranks_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS quick
  TIMEOUT 600)

hvd_test(hvd_operations_test
  runtime/algorithms_test.cpp
  runtime/arithmetic_kernels_test.cpp
  runtime/gloo_ops_test.cpp
  runtime/hierarchy_test.cpp
  runtime/layout_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS quick
  TIMEOUT 300)

hvd_test(hvd_transport_test
  runtime/transport_distance_test.cpp
  runtime/transport_end_test.cpp
  runtime/transport_gloo_test.cpp
  runtime/transport_messages_test.cpp
  runtime/transport_order_test.cpp
  runtime/transport_strangers_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base gloo
  LABELS quick
  TIMEOUT 300)

# Memory that the ranks of a host share, and what is done in it.
hvd_test(hvd_shm_test
  runtime/host_door_test.cpp
  runtime/host_mail_test.cpp
  runtime/host_ranks_test.cpp
  runtime/letter_box_test.cpp
  runtime/shm_mates_test.cpp
  runtime/shm_meeting_test.cpp
  runtime/shm_ops_test.cpp
  runtime/shm_world_test.cpp
  runtime/tree_links_test.cpp
  runtime/tsan_options.cpp
  runtime/window_writer_test.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS quick
  TIMEOUT 300)

# What belongs to GPUs, without one: the module is loaded, and says so.
if(HVD_HAS_CUDA)
  set(nccl_module $<TARGET_FILE:hvd_nccl>)
endif()
hvd_test(hvd_gpu_test COMPUTES
  runtime/conformance.cpp
  runtime/conformance_tables.cpp
  runtime/gpu_copier_test.cpp
  runtime/gpu_device_test.cpp
  runtime/gpu_ops_test.cpp
  runtime/gpu_parts_test.cpp
  runtime/gpu_worlds_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_test_gpus hvd_runtime hvd_base
  DEFINITIONS HVD_NCCL_MODULE_PATH="${nccl_module}"
  LABELS quick
  TIMEOUT 300)
if(HVD_HAS_CUDA)
  add_dependencies(hvd_gpu_test hvd_nccl)
endif()

# The same GPUs as a module, for real processes.
add_library(hvd_host_gpu MODULE runtime/host_gpu_module.cpp runtime/socket_network.cpp)
hvd_compile_options(hvd_host_gpu)
target_link_libraries(hvd_host_gpu PRIVATE hvd_test_gpus)
target_link_options(hvd_host_gpu PRIVATE -Wl,--exclude-libs,ALL)

hvd_test(hvd_large_test COMPUTES
  runtime/large_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base gloo
  LABELS large
  TIMEOUT 300)

# The timeline and the flight recorder.
hvd_test(hvd_trace_test
  runtime/trace_check.cpp
  runtime/trace_parts_test.cpp
  runtime/trace_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base nlohmann_json::nlohmann_json
  LABELS quick
  TIMEOUT 300)
