hvd_test(hvd_base_test
  base/agent_link_test.cpp
  base/bulk_copy_test.cpp
  base/checksum_test.cpp
  base/cores_test.cpp
  base/crypto_test.cpp
  base/frame_test.cpp
  base/gpus_test.cpp
  base/handshake_test.cpp
  base/log_test.cpp
  base/socket_test.cpp
  base/status_test.cpp
  base/text_test.cpp
  base/wire_test.cpp
  base/worker_link_test.cpp
  base/world_document_test.cpp
  LIBRARIES hvd_base LABELS quick)
