# oneCCL, for the one module that knows it: taken from where CCL_ROOT says, which the environment that comes with it sets, or
# from build/oneccl, where scripts/setup --oneccl puts it. HVD_ONECCL=OFF leaves it out anyway.
option(HVD_ONECCL "The module for oneCCL, if that is here" ON)
set(HVD_HAS_ONECCL FALSE)
if(NOT HVD_ONECCL OR HVD_SANITIZE)
  message(STATUS "Without the module for oneCCL")
  return()
endif()
set(oneccl_places ${CCL_ROOT} $ENV{CCL_ROOT} "${PROJECT_SOURCE_DIR}/build/oneccl")
find_path(HVD_ONECCL_INCLUDE_DIR oneapi/ccl.hpp PATHS ${oneccl_places} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_library(HVD_ONECCL_LIBRARY ccl PATHS ${oneccl_places} PATH_SUFFIXES lib NO_DEFAULT_PATH)
mark_as_advanced(HVD_ONECCL_INCLUDE_DIR HVD_ONECCL_LIBRARY)
if(NOT HVD_ONECCL_INCLUDE_DIR OR NOT HVD_ONECCL_LIBRARY)
  message(STATUS "Without the module for oneCCL: it is not here (scripts/setup --oneccl gets it)")
  return()
endif()
set(HVD_HAS_ONECCL TRUE)
file(STRINGS "${HVD_ONECCL_INCLUDE_DIR}/oneapi/ccl/config.h" oneccl_version REGEX "^#define CCL_(MAJOR|MINOR)_VERSION ")
string(REGEX REPLACE "[^0-9;]" "" oneccl_version "${oneccl_version}")
string(REPLACE ";" "." oneccl_version "${oneccl_version}")
message(STATUS "With the module for oneCCL ${oneccl_version} (${HVD_ONECCL_LIBRARY})")

# Its libraries find each other only through the search path of what loads the first of them, which the newer kind of path is
# not for. Installed, they are found in an environment of Python into which pip has put both, and where the loader looks.
get_filename_component(oneccl_folder ${HVD_ONECCL_LIBRARY} DIRECTORY)
add_library(HVD::oneccl INTERFACE IMPORTED)
target_include_directories(HVD::oneccl SYSTEM INTERFACE ${HVD_ONECCL_INCLUDE_DIR})
target_link_libraries(HVD::oneccl INTERFACE ${HVD_ONECCL_LIBRARY})
target_link_options(HVD::oneccl INTERFACE -Wl,--disable-new-dtags "-Wl,-rpath-link,${oneccl_folder}")
