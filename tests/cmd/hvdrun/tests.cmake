hvd_test(hvd_cli_test
  cmd/hvdrun/config_file_test.cpp
  cmd/hvdrun/console_test.cpp
  cmd/hvdrun/environment_test.cpp
  cmd/hvdrun/flag_table_test.cpp
  cmd/hvdrun/knobs_test.cpp
  cmd/hvdrun/ledgers_test.cpp
  cmd/hvdrun/line_prefixer_test.cpp
  cmd/hvdrun/options_test.cpp
  cmd/hvdrun/rank_files_test.cpp
  cmd/hvdrun/report_test.cpp
  cmd/hvdrun/top_command_test.cpp
  LIBRARIES hvd_cli LABELS unit)
add_dependencies(hvd_cli_test hvdrun)

# The real hvdrun, with real workers.
hvd_test(hvd_cli_process_test
  cmd/hvdrun/completion_test.cpp
  cmd/hvdrun/hvdrun_output_test.cpp
  cmd/hvdrun/hvdrun_usage_test.cpp
  cmd/hvdrun/init_process_test.cpp
  cmd/hvdrun/job_commands_test.cpp
  cmd/hvdrun/old_kernel_test.cpp
  cmd/hvdrun/slots_test.cpp
  cmd/hvdrun/wrong_hosts_and_programs.cpp
  cmd/hvdrun/wrong_input_test.cpp
  cmd/hvdrun/wrong_settings.cpp
  LIBRARIES hvd_base LABELS e2e)
add_dependencies(hvd_cli_process_test hvdrun hvd-agent hvd_without_calls)
