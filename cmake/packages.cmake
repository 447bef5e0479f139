# Debian's packages of what cmake/install.cmake installs: `cpack -G DEB` in the build tree, or scripts/package. One package for
# each component, and in each what Debian wants of every package.
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
get_target_property(soversion hvd SOVERSION)
set(library_package libhvd${soversion})

set(HVD_PACKAGE_MAINTAINER "The authors of hvd <hvd@hvd.invalid>" CACHE STRING "Who answers for the packages of Debian")
mark_as_advanced(HVD_PACKAGE_MAINTAINER)
set(CPACK_GENERATOR DEB)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_CONTACT "${HVD_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_VENDOR "The authors of hvd")
# Each package has its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# After the files are installed, and before they are packed.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/finish_package.cmake)
set(same_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")

# hvd_package(COMPONENT NAME SECTION description): what all packages have. Excluded from an installation of everything.
macro(hvd_package component name section description)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${description}")
  set(documents DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${debian}/copyright ${documents})
  install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md RENAME changelog ${documents})
  if(EXISTS ${debian}/${component}.lintian-overrides)
    configure_file(${debian}/${component}.lintian-overrides ${PROJECT_BINARY_DIR}/package/${name}.lintian-overrides @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/package/${name}.lintian-overrides RENAME ${name}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endmacro()

set(CPACK_COMPONENTS_ALL "")
hvd_package(runtime ${library_package} libs "workers of an elastic training job (library)
Collectives between the workers of a training job, which hvdrun has started:
they reduce gradients together, and go on when some of them die or others
come.")
# A minor version may break programs before 1.0; their symbols have another version then.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package/shlibs ${debian}/triggers)
math(EXPR next_minor "${PROJECT_VERSION_MINOR} + 1")
configure_file(${debian}/shlibs.in ${PROJECT_BINARY_DIR}/package/shlibs @ONLY)

hvd_package(development libhvd-dev libdevel "workers of an elastic training job (development files)
The headers of libhvd for C++ and C, the library in its static form, and the
files by which CMake and pkg-config find them.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} ${same_version}")
# For programs into which hvd is linked, and for CMake to find hvdrun.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "hvd ${same_version}, libgloo-dev, libssl-dev")

if(HVD_BUILD_LAUNCHER)
  hvd_package(launcher hvd net "launcher for elastic training jobs on many machines
hvdrun starts a training program on many cores or machines at once, and keeps
the job going when some of its workers die or others come. Other machines are
reached with SSH and need nothing of hvd, or join by themselves.")
  set(CPACK_DEBIAN_LAUNCHER_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/prerm ${debian}/postrm)
  set(CPACK_DEBIAN_LAUNCHER_PACKAGE_SUGGESTS "openssh-client")
  install(FILES ${debian}/hvd-agent@.service DESTINATION lib/systemd/system COMPONENT launcher EXCLUDE_FROM_ALL)
  install(FILES ${debian}/hvd-agent.default RENAME hvd-agent DESTINATION /etc/default COMPONENT launcher EXCLUDE_FROM_ALL)
  if(NOT CMAKE_CROSSCOMPILING)
    # Where Debian's zsh looks.
    install(FILES ${PROJECT_BINARY_DIR}/cmd/hvdrun/generated/_hvdrun
      DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT launcher EXCLUDE_FROM_ALL)
  endif()
endif()

# The module alone needs NCCL, and no other package needs the module.
if(HVD_HAS_CUDA)
  hvd_package(nccl ${library_package}-nccl libs "workers of an elastic training job (module for GPUs)
The module by which libhvd reduces tensors of CUDA devices over NCCL. It is
loaded where there is a GPU.")
  # NCCL is a package, or lies somewhere; then nothing depends on it.
  get_filename_component(nccl_directory ${HVD_NCCL_LIBRARY} DIRECTORY)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${nccl_directory})
  set(CPACK_DEBIAN_NCCL_PACKAGE_DEPENDS "${library_package} ${same_version}")
  set(CPACK_DEBIAN_NCCL_PACKAGE_SUGGESTS "libnccl2")
endif()

# All that cpack packs: it builds nothing itself.
add_custom_target(hvd_packed DEPENDS hvd hvd_static)
foreach(target hvdrun hvd-agent hvd_manual hvd_nccl)
  if(TARGET ${target})
    add_dependencies(hvd_packed ${target})
  endif()
endforeach()
include(CPack)
