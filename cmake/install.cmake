# Installs what people need: the library and headers of a worker, hvdrun, the agent, and the files by which CMake and
# pkg-config find them. The components are packages of Debian (cmake/packages.cmake); what is of none is in no package.
include(CMakePackageConfigHelpers)

set(HVD_LIBEXECDIR ${CMAKE_INSTALL_LIBEXECDIR}/hvd)

install(TARGETS hvd hvd_static EXPORT hvd-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(HVD_BUILD_LAUNCHER)
  install(TARGETS hvdrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT launcher)
  # Nobody types its name: hvdrun finds it beside itself, in ../libexec/hvd.
  install(TARGETS hvd-agent RUNTIME DESTINATION ${HVD_LIBEXECDIR} COMPONENT launcher)
  # cmd/hvdrun/CMakeLists.txt makes these.
  if(TARGET hvd_manual)
    set(generated ${PROJECT_BINARY_DIR}/cmd/hvdrun/generated)
    install(FILES ${generated}/hvdrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT launcher)
    install(FILES ${generated}/hvdrun.bash RENAME hvdrun
      DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT launcher)
    install(FILES ${generated}/_hvdrun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${generated}/hvdrun.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d
      COMPONENT launcher)
  endif()
endif()
if(HVD_HAS_CUDA)
  install(TARGETS hvd_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT nccl)
endif()
foreach(mpi IN LISTS HVD_MPIS)
  install(TARGETS hvd_${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${mpi})
endforeach()
if(HVD_HAS_ONECCL)
  install(TARGETS hvd_oneccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT oneccl)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/worker/include/hvd ${PROJECT_SOURCE_DIR}/base/include/hvd
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hvd)
install(EXPORT hvd-targets NAMESPACE hvd:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hvd-config.cmake.in
  ${PROJECT_BINARY_DIR}/hvd-config.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_BINDIR)
# Before 1.0 a minor version may break what was built with the last one.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hvd-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hvd-config.cmake ${PROJECT_BINARY_DIR}/hvd-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

# Relative to where the file itself lies, so that an installed tree may be moved.
file(RELATIVE_PATH HVD_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HVD_PC_TO_PREFIX "${HVD_PC_TO_PREFIX}")
# A library that a C compiler does not link by itself: the library of C++ that this build used.
set(HVD_PC_CXX_LIBS "")
foreach(library IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  if(library MATCHES "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
    string(APPEND HVD_PC_CXX_LIBS " -l${library}")
  endif()
endforeach()
foreach(name hvd hvd-static)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
endforeach()

# `add_subdirectory(hvd)` gives the same names as find_package(hvd).
add_library(hvd::hvd ALIAS hvd)
add_library(hvd::hvd_static ALIAS hvd_static)
