# hvd for Python, with the distribution's Python, NumPy and PyTorch. Where all ranks run the same tests at once hvdrun
# runs pytest; jobs_test.py starts hvdrun itself.
set(pytest ${Python3_EXECUTABLE} -m pytest -x -q -p no:cacheprovider --rootdir ${CMAKE_CURRENT_LIST_DIR})

function(hvd_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS")
  add_test(NAME Python.${name} COMMAND ${arg_COMMAND})
  set_tests_properties(Python.${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    PROCESSORS ${arg_PROCESSORS}
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;OMP_NUM_THREADS=1;HVD_EVENTS_DIR=${PROJECT_BINARY_DIR}/events")
endfunction()

foreach(file numpy_ops numpy_edges torch_ops torch_edges torch_optimizer torch_distributed)
  foreach(ranks 1 2 3)
    hvd_python_test(${file}_${ranks} TIMEOUT 300 PROCESSORS 2
      COMMAND $<TARGET_FILE:hvdrun> -np ${ranks} ${pytest} ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
  endforeach()
endforeach()
hvd_python_test(getting_started TIMEOUT 300 PROCESSORS 2
  COMMAND ${pytest} ${CMAKE_CURRENT_LIST_DIR}/getting_started_test.py)
hvd_python_test(jobs TIMEOUT 600 PROCESSORS 2 COMMAND ${pytest} ${CMAKE_CURRENT_LIST_DIR}/jobs_test.py)
