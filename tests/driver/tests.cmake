hvd_test(hvd_job_test COMPUTES
  driver/addresses_test.cpp
  driver/common_cause_test.cpp
  driver/elastic_golden_test.cpp
  driver/handover_test.cpp
  driver/heartbeats_test.cpp
  driver/job_golden_test.cpp
  driver/job_rules.cpp
  driver/job_simulation_test.cpp
  driver/job_text_test.cpp
  driver/plan_test.cpp
  driver/simulated_job.cpp
  driver/slot_budget_test.cpp
  driver/staffing_test.cpp
  driver/world_plan_test.cpp
  LIBRARIES hvd_job LABELS quick)

hvd_test(hvd_driver_test
  driver/activity_report_test.cpp
  driver/outgoing_frames_test.cpp
  driver/output_test.cpp
  driver/worker_environment_test.cpp
  LIBRARIES hvd_driver LABELS quick)

hvd_test(hvd_run_job_test
  driver/run_job_agents_test.cpp
  driver/run_job_workers_test.cpp
  LIBRARIES hvd_driver LABELS quick TIMEOUT 180)
add_dependencies(hvd_run_job_test hvd-agent)
