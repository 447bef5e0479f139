# hvd for Python, as programs use it. The files of operations are tests whose ranks run the same tests at once: hvdrun
# runs pytest. The others start hvdrun themselves, or need none.
set(pytest ${Python3_EXECUTABLE} -m pytest -x -q -p no:cacheprovider --rootdir ${CMAKE_CURRENT_LIST_DIR})

function(hvd_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS")
  add_test(NAME Python.${name} COMMAND ${arg_COMMAND})
  set_tests_properties(Python.${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 6 COST 50
    ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1;OMP_NUM_THREADS=1;HVD_EVENTS_DIR=${PROJECT_BINARY_DIR}/events")
endfunction()

if(HVD_SANITIZE)
  # The extension and libhvd are instrumented, Python is not: the sanitizers' libraries come in before it. Python keeps
  # memory to its end, so leaks are not looked for.
  set(names libasan.so libubsan.so)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(names libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so)  # both
  endif()
  set(libraries "")
  foreach(name IN LISTS names)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name}
      OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND libraries ${path})
  endforeach()
  list(JOIN libraries ":" libraries)
  foreach(file conformance numpy_ops numpy_edges numpy_memory torch_memory torch_state)
    hvd_python_test(${file}_2 TIMEOUT 300 LABELS nightly
      COMMAND $<TARGET_FILE:hvdrun> -np 2 env LD_PRELOAD=${libraries} ASAN_OPTIONS=detect_leaks=0 ${pytest}
      ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
  endforeach()
  return()
endif()

# With three ranks all of a group's places are there. One and two of them are at night, but where a rank is alone.
foreach(file conformance numpy_ops numpy_edges torch_ops torch_edges torch_optimizer torch_gradients torch_programs torch_distributed
    torch_elements torch_groups torch_training shards)
  foreach(ranks 1 2 3)
    set(label nightly)
    if(ranks EQUAL 3 OR (ranks EQUAL 1 AND file MATCHES "_ops$"))
      set(label e2e)
    endif()
    hvd_python_test(${file}_${ranks} TIMEOUT 300 LABELS ${label}
      COMMAND $<TARGET_FILE:hvdrun> -np ${ranks} ${pytest} ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
  endforeach()
endforeach()
# The last rank comes late, when the others have freed what is in flight.
foreach(file numpy_memory torch_memory torch_state)
  hvd_python_test(${file}_3 TIMEOUT 300 LABELS e2e
    COMMAND $<TARGET_FILE:hvdrun> -np 3 ${pytest} ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
endforeach()
hvd_python_test(getting_started TIMEOUT 500 LABELS e2e
  COMMAND ${pytest} ${CMAKE_CURRENT_LIST_DIR}/getting_started_test.py)
foreach(file init channel loaders notices package)
  hvd_python_test(${file} TIMEOUT 300 LABELS e2e COMMAND ${pytest} ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
endforeach()
foreach(file run shards_jobs)
  hvd_python_test(${file} TIMEOUT 600 LABELS e2e
    COMMAND ${pytest} -m "not nightly" ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
  hvd_python_test(${file}_nightly TIMEOUT 600 LABELS nightly
    COMMAND ${pytest} -m nightly ${CMAKE_CURRENT_LIST_DIR}/${file}_test.py)
endforeach()
hvd_python_test(torch_import TIMEOUT 900 LABELS e2e COMMAND ${pytest} ${CMAKE_CURRENT_LIST_DIR}/torch_import_test.py)
hvd_python_test(jobs TIMEOUT 600 LABELS e2e COMMAND ${pytest} -m "not nightly" ${CMAKE_CURRENT_LIST_DIR}/jobs_test.py)
hvd_python_test(jobs_nightly TIMEOUT 900 LABELS nightly COMMAND ${pytest} -m nightly ${CMAKE_CURRENT_LIST_DIR}/jobs_test.py)
# It is the longest of all: begun last, it would be waited for alone.
set_tests_properties(Python.jobs PROPERTIES COST 200)
