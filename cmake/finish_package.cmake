# Run by cpack when the files of all packages are installed: what Debian wants of them besides.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component})
  string(TOUPPER ${component} upper)
  set(documents ${root}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/../deploy/debian/changelog.in ${documents}/changelog.Debian @ONLY)

  file(GLOB plain ${root}/usr/share/man/man*/* ${documents}/changelog*)
  execute_process(COMMAND gzip --best --no-name ${plain} COMMAND_ERROR_IS_FATAL ANY)

  # The libraries of packages are where the loader looks.
  file(GLOB_RECURSE modules ${root}/usr/lib/libhvd_*.so)
  foreach(module IN LISTS modules)
    file(RPATH_REMOVE FILE ${module})
  endforeach()
endforeach()
