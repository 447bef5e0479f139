# Only where Open MPI is (scripts/setup --mpi). Asked for by its package file, as MPI's own CMake module would probe
# compilers at each configure.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(HVD_OMPI QUIET IMPORTED_TARGET ompi-c)
endif()
if(HVD_OMPI_FOUND)
  add_executable(hvd_one_host_bench one_host/main.cpp)
  hvd_compile_options(hvd_one_host_bench)
  target_link_libraries(hvd_one_host_bench PRIVATE hvd_runtime hvd_base gloo PkgConfig::HVD_OMPI)
endif()
