hvd_test(hvd_discovery_test
  discovery/answer_test.cpp
  discovery/hosts_test.cpp
  discovery/slurm_hostlist_test.cpp
  discovery/slurm_job_test.cpp
  discovery/slurm_test.cpp
  discovery/watch_test.cpp
  LIBRARIES hvd_discovery LABELS unit)

hvd_test(hvd_discovery_script_test discovery/poll_test.cpp discovery/script_test.cpp LIBRARIES hvd_discovery_script LABELS unit)
