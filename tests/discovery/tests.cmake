hvd_test(hvd_discovery_test discovery/hosts_test.cpp LIBRARIES hvd_discovery LABELS quick)
