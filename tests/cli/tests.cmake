hvd_test(hvd_cli_test
  cli/config_file_test.cpp
  cli/console_test.cpp
  cli/environment_test.cpp
  cli/knobs_test.cpp
  cli/line_prefixer_test.cpp
  cli/options_test.cpp
  cli/rank_files_test.cpp
  cli/report_test.cpp
  LIBRARIES hvd_cli LABELS quick)
add_dependencies(hvd_cli_test hvdrun)

# The real hvdrun, with real workers.
hvd_test(hvd_cli_process_test
  cli/hvdrun_output_test.cpp
  cli/hvdrun_usage_test.cpp
  cli/old_kernel_test.cpp
  cli/slots_test.cpp
  cli/wrong_hosts_and_programs.cpp
  cli/wrong_input_test.cpp
  cli/wrong_settings.cpp
  LIBRARIES hvd_base LABELS e2e)
add_dependencies(hvd_cli_process_test hvdrun hvd-agent hvd_without_calls)
