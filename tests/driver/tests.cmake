hvd_test(hvd_job_test COMPUTES
  driver/job/addresses_test.cpp
  driver/job/common_cause_test.cpp
  driver/job/golden_test.cpp
  driver/job/handover_test.cpp
  driver/job/heartbeats_test.cpp
  driver/job/job_account_test.cpp
  driver/job/job_rules.cpp
  driver/job/job_simulation_test.cpp
  driver/job/job_text_test.cpp
  driver/job/job_time_test.cpp
  driver/job/plan_test.cpp
  driver/job/simulated_job.cpp
  driver/job/host_roster_test.cpp
  driver/job/slot_budget_test.cpp
  driver/job/suspension_test.cpp
  driver/job/staffing_test.cpp
  driver/job/world_plan_test.cpp
  driver/journal/journal_test.cpp
  driver/journal/state_directory_test.cpp
  LIBRARIES hvd_job hvd_journal hvd_metrics LABELS unit)

# The metrics of scripted jobs, and the server that gives them to a Prometheus.
hvd_test(hvd_metrics_test
  driver/metrics/job_metrics_test.cpp
  driver/metrics/prometheus_files_test.cpp
  driver/status/metrics_server_test.cpp
  rendezvous/server_fixture.cpp
  LIBRARIES hvd_metrics hvd_status hvd_rendezvous hvd_rendezvous_client nlohmann_json::nlohmann_json LABELS unit)

# The status page of a job: access to it, and the answers to a browser.
hvd_test(hvd_page_test
  driver/status/event_buffer_test.cpp
  driver/status/page_access_test.cpp
  driver/status/page_server_test.cpp
  rendezvous/server_fixture.cpp
  LIBRARIES hvd_status hvd_rendezvous hvd_rendezvous_client nlohmann_json::nlohmann_json LABELS unit)

# The page of real jobs, also in a real browser.
hvd_test(hvd_page_jobs_test
  e2e/elastic_job.cpp
  e2e/job_test.cpp
  e2e/page_browser_test.cpp
  e2e/page_test.cpp
  LIBRARIES hvd_test_steps nlohmann_json::nlohmann_json
  DEFINITIONS HVD_ARTEFACTS="${PROJECT_BINARY_DIR}/artefacts"
  LABELS e2e TIMEOUT 300)
add_dependencies(hvd_page_jobs_test hvdrun hvd-agent elastic_steps)

# A real Prometheus that scrapes real jobs.
hvd_test(hvd_metrics_jobs_test
  e2e/elastic_job.cpp
  e2e/job_test.cpp
  e2e/metrics_test.cpp
  LIBRARIES hvd_test_steps nlohmann_json::nlohmann_json LABELS e2e TIMEOUT 300)
add_dependencies(hvd_metrics_jobs_test hvdrun hvd-agent elastic_steps)

hvd_test(hvd_driver_test
  driver/activity_report_test.cpp
  driver/last_activities_test.cpp
  driver/agents/address_book_test.cpp
  driver/agents/agent_session_state_test.cpp
  driver/agents/outgoing_frames_test.cpp
  driver/core/end_watch_test.cpp
  driver/core/signals_test.cpp
  driver/host_log_test.cpp
  driver/output_test.cpp
  driver/run/takeover_test.cpp
  driver/slurm/munge_test.cpp
  driver/work/slow_ranks_test.cpp
  driver/work/work_book_test.cpp
  driver/work/world_entries_test.cpp
  driver/worker_environment_test.cpp
  LIBRARIES hvd_driver hvd_munge LABELS unit)

# The real hvdrun in allocations of a real Slurm.
hvd_test(hvd_slurm_jobs_test
  driver/slurm/slurm_jobs_test.cpp
  e2e/elastic_job.cpp
  e2e/job_test.cpp
  LIBRARIES hvd_test_steps LABELS nightly TIMEOUT 180)
add_dependencies(hvd_slurm_jobs_test hvdrun hvd-agent elastic_steps hvd_worker_program)

hvd_test(hvd_run_job_test
  driver/run_job_agents_test.cpp
  driver/run_job_workers_test.cpp
  LIBRARIES hvd_driver LABELS unit TIMEOUT 180)
add_dependencies(hvd_run_job_test hvd-agent)
