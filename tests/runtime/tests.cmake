# The negotiation: pure, so fast to build and to run.
hvd_test(hvd_negotiation_test COMPUTES
  runtime/negotiation/control_tree_test.cpp
  runtime/negotiation/coordinator_sets_test.cpp
  runtime/negotiation/coordinator_test.cpp
  runtime/negotiation/fusion_test.cpp
  runtime/negotiation/gatherer_test.cpp
  runtime/negotiation/interval_set_test.cpp
  runtime/negotiation/messages_test.cpp
  runtime/negotiation/negotiation_simulation_test.cpp
  runtime/negotiation/response_cache_test.cpp
  runtime/negotiation/stall_inspector_test.cpp
  runtime/negotiation/tensor_queue_test.cpp
  runtime/tuning/autotuner_test.cpp
  runtime/tuning/step_meter_test.cpp
  runtime/tuning/tuning_log_test.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS unit
  TIMEOUT 300)

hvd_test(hvd_runtime_test
  runtime/control/executor_test.cpp
  runtime/control/introduction_test.cpp
  runtime/control/progress_engine_test.cpp
  runtime/control/world_failure_test.cpp
  runtime/control/world_lanes_test.cpp
  runtime/control/world_leave_test.cpp
  runtime/control/world_memory_test.cpp
  runtime/control/world_negotiation_test.cpp
  runtime/control/world_progress_test.cpp
  runtime/control/world_test.cpp
  runtime/control/world_tuning_test.cpp
  runtime/core/affinity_test.cpp
  runtime/core/arithmetic_test.cpp
  runtime/core/brief_wait_test.cpp
  runtime/core/float8_test.cpp
  runtime/core/link_speed_test.cpp
  runtime/core/silence_test.cpp
  runtime/core/time_slice_test.cpp
  runtime/net/connection_test.cpp
  runtime/lane/lane_test.cpp
  runtime/net/member_acceptor_test.cpp
  runtime/net/member_connector_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS unit asan tsan
  TIMEOUT 300)

# Every operation, type, number of ranks and size: some thousand collectives for each backend.
hvd_test(hvd_conformance_test COMPUTES
  runtime/ops/conformance.cpp
  runtime/ops/conformance_gloo_test.cpp
  runtime/ops/conformance_shm_test.cpp
  runtime/ops/conformance_tables.cpp
  runtime/ops/conformance_world_test.cpp
  runtime/ranks_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS unit
  TIMEOUT 600)

hvd_test(hvd_operations_test
  runtime/core/arithmetic_kernels_test.cpp
  runtime/ops/algorithm_choice_test.cpp
  runtime/ops/algorithms_test.cpp
  runtime/ops/gloo_ops_test.cpp
  runtime/ops/hierarchy_test.cpp
  runtime/ops/layout_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS unit tsan
  TIMEOUT 300)

hvd_test(hvd_transport_test
  runtime/transport/transport_distance_test.cpp
  runtime/transport/transport_end_test.cpp
  runtime/transport/transport_gloo_test.cpp
  runtime/transport/transport_messages_test.cpp
  runtime/transport/transport_order_test.cpp
  runtime/transport/transport_slow_test.cpp
  runtime/transport/transport_strangers_test.cpp
  runtime/transport/transport_tamper_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base gloo
  LABELS unit asan once tsan
  TIMEOUT 300)

# A program of its own: it counts, and refuses, allocations.
hvd_test(hvd_transport_memory_test
  runtime/transport/transport_memory_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base gloo
  LABELS unit asan once)

# Memory that the ranks of a host share, and what is done in it.
hvd_test(hvd_shm_test
  runtime/control/tree_links_test.cpp
  runtime/shm/chunk_writer_test.cpp
  runtime/shm/crowding_test.cpp
  runtime/shm/local_ranks_test.cpp
  runtime/shm/segment_test.cpp
  runtime/shm/shared_heap_test.cpp
  runtime/shm/shm_group_test.cpp
  runtime/shm/shm_in_place_test.cpp
  runtime/shm/shm_mailbox_test.cpp
  runtime/shm/shm_node_peers_test.cpp
  runtime/shm/shm_ops_test.cpp
  runtime/shm/shm_rendezvous_test.cpp
  runtime/shm/shm_world_test.cpp
  runtime/shm/spsc_ring_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base
  LABELS unit asan tsan
  TIMEOUT 300)

# Tests of GPU code without a GPU: the module is loaded, and says that there is none.
if(HVD_HAS_CUDA)
  set(nccl_module $<TARGET_FILE:hvd_nccl>)
endif()
hvd_test(hvd_gpu_test COMPUTES
  runtime/gpu/gpu_copier_test.cpp
  runtime/gpu/gpu_device_test.cpp
  runtime/gpu/gpu_ops_test.cpp
  runtime/gpu/gpu_parts_test.cpp
  runtime/gpu/gpu_worlds_test.cpp
  runtime/ops/conformance.cpp
  runtime/ops/conformance_tables.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_test_gpus hvd_runtime hvd_base
  DEFINITIONS HVD_NCCL_MODULE_PATH="${nccl_module}"
  LABELS unit tsan
  TIMEOUT 300)
if(HVD_HAS_CUDA)
  add_dependencies(hvd_gpu_test hvd_nccl)
endif()

# The same GPUs as a module, for real processes.
add_library(hvd_host_gpu MODULE runtime/gpu/host_gpu_module.cpp runtime/gpu/socket_network.cpp)
hvd_compile_options(hvd_host_gpu)
target_link_libraries(hvd_host_gpu PRIVATE hvd_test_gpus)
target_link_options(hvd_host_gpu PRIVATE -Wl,--exclude-libs,ALL)

hvd_test(hvd_large_test COMPUTES
  runtime/ops/large_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base gloo
  LABELS large
  TIMEOUT 300)

# The timeline and the flight recorder.
hvd_test(hvd_trace_test
  runtime/control/world_links_test.cpp
  runtime/trace/trace_check.cpp
  runtime/trace/trace_parts_test.cpp
  runtime/trace/trace_test.cpp
  runtime/tsan_options.cpp
  LIBRARIES hvd_runtime hvd_base nlohmann_json::nlohmann_json
  LABELS unit tsan
  TIMEOUT 300)
