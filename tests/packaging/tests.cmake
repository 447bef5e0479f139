# An installed hvd, and hvd used from its build tree.
set(packaging ${CMAKE_CURRENT_SOURCE_DIR}/packaging)

add_executable(hvd_build_tree_consumer ${packaging}/build_tree.cpp)
target_link_libraries(hvd_build_tree_consumer PRIVATE hvd)
add_test(NAME BuildTree.TheTargetHvdIsEnoughToIncludeAndLink COMMAND hvd_build_tree_consumer)
set_tests_properties(BuildTree.TheTargetHvdIsEnoughToIncludeAndLink PROPERTIES LABELS packaging TIMEOUT 60)

# An instrumented library needs instrumented programs.
set(consumer_flags "")
if(HVD_SANITIZE)
  set(consumer_flags "-fsanitize=${HVD_SANITIZE}")
endif()
hvd_test(hvd_packaging_test ${packaging}/install_test.cpp
  LABELS packaging
  TIMEOUT 400
  DEFINITIONS HVD_CMAKE="${CMAKE_COMMAND}" HVD_GENERATOR="${CMAKE_GENERATOR}" HVD_BUILD_DIR="${PROJECT_BINARY_DIR}" HVD_C="${CMAKE_C_COMPILER}" HVD_CXX="${CMAKE_CXX_COMPILER}"
    HVD_CXX_FLAGS="${consumer_flags}" HVD_LIBTORCH_INCLUDE_DIR="$<IF:$<TARGET_EXISTS:hvd_libtorch>,${HVD_LIBTORCH_INCLUDE_DIR},none>" HVD_INSTALL_LIBDIR="${CMAKE_INSTALL_LIBDIR}"
    HVD_PROJECT_VERSION="${PROJECT_VERSION}")
add_dependencies(hvd_packaging_test hvd hvd_static hvdrun hvd-agent hvd_manual)
if(TARGET hvd_nccl)
  add_dependencies(hvd_packaging_test hvd_nccl)
endif()

# cpack packs what a user would install, and no instrumented library.
if(PROJECT_IS_TOP_LEVEL AND NOT HVD_SANITIZE)
  hvd_test(hvd_packages_test ${packaging}/packages_test.cpp
    LIBRARIES hvd_test_hosts
    LABELS packaging
    TIMEOUT 400
    DEFINITIONS HVD_BUILD_DIR="${PROJECT_BINARY_DIR}" HVD_PROJECT_VERSION="${PROJECT_VERSION}")
  add_dependencies(hvd_packages_test hvd_packed)
endif()

# What was built, read from its files: how it is hardened, and what is in it.
if(HVD_BUILD_PYTHON AND NOT HVD_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(name hardening bill)
    string(SUBSTRING ${name} 0 1 initial)
    string(TOUPPER ${initial} initial)
    string(REGEX REPLACE "^." "${initial}" title ${name})
    add_test(NAME ${title} COMMAND ${Python3_EXECUTABLE} -m pytest -x -q -p no:cacheprovider
      --rootdir ${packaging} ${packaging}/${name}_test.py)
    set_tests_properties(${title} PROPERTIES LABELS packaging TIMEOUT 120
      ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;HVD_BUILD_DIR=${PROJECT_BINARY_DIR}")
  endforeach()
endif()

if(HVD_BUILD_PYTHON AND NOT HVD_SANITIZE)
  add_test(NAME Wheel COMMAND ${Python3_EXECUTABLE} -m pytest -x -q -p no:cacheprovider
    --rootdir ${packaging} ${packaging}/wheel_test.py)
  set_tests_properties(Wheel PROPERTIES LABELS packaging TIMEOUT 300 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
