# A program for each MPI that was found.
foreach(mpi IN LISTS HVD_MPIS)
  add_executable(hvd_${mpi}_bench mpi/main.cpp)
  hvd_compile_options(hvd_${mpi}_bench)
  target_link_libraries(hvd_${mpi}_bench PRIVATE hvd hvd_base PkgConfig::HVD_${mpi})
  add_dependencies(hvd_${mpi}_bench hvd_${mpi})
endforeach()
