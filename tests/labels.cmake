# ctest reads this file, which CMakeLists.txt names, when it knows the tests of all programs.

# hvd_labels(PROGRAM labels...): the labels of the program's tests. A test whose suite or name begins with Nightly has only
# the label "nightly".
function(hvd_labels program)
  foreach(test IN LISTS ${program}_TESTS)
    if(test MATCHES "(^|[/.])Nightly")
      set_tests_properties("${test}" PROPERTIES LABELS nightly)
    else()
      set_tests_properties("${test}" PROPERTIES LABELS "${ARGN}")
    endif()
  endforeach()
endfunction()
