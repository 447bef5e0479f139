hvd_test(hvd_driver_test
  driver/plan_test.cpp
  driver/output_test.cpp
  driver/worker_environment_test.cpp
  LIBRARIES hvd_driver LABELS quick)
