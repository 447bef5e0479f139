hvd_test(hvd_job_test COMPUTES
  driver/job/addresses_test.cpp
  driver/job/common_cause_test.cpp
  driver/job/golden_test.cpp
  driver/job/handover_test.cpp
  driver/job/heartbeats_test.cpp
  driver/job/job_rules.cpp
  driver/job/job_simulation_test.cpp
  driver/job/job_text_test.cpp
  driver/job/plan_test.cpp
  driver/job/simulated_job.cpp
  driver/job/slot_budget_test.cpp
  driver/job/staffing_test.cpp
  driver/job/world_plan_test.cpp
  LIBRARIES hvd_job LABELS quick)

hvd_test(hvd_driver_test
  driver/activity_report_test.cpp
  driver/agents/agent_session_state_test.cpp
  driver/agents/outgoing_frames_test.cpp
  driver/output_test.cpp
  driver/worker_environment_test.cpp
  LIBRARIES hvd_driver LABELS quick)

hvd_test(hvd_run_job_test
  driver/run_job_agents_test.cpp
  driver/run_job_workers_test.cpp
  LIBRARIES hvd_driver LABELS quick TIMEOUT 180)
add_dependencies(hvd_run_job_test hvd-agent)
