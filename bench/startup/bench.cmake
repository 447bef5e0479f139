# bench/startup: the time from typing hvdrun to its end, for a program that does one allreduce, beside Open MPI's.
# Open MPI is asked for by hand: MPI's own CMake module would probe compilers at each configure.
find_program(HVD_MPICC mpicc.openmpi)
if(HVD_MPICC)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/startup/mpi_allreduce_once.c)
  set(program ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/mpi_allreduce_once)
  add_custom_command(OUTPUT ${program} DEPENDS ${source} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E env OMPI_CC=${CMAKE_C_COMPILER} ${HVD_MPICC} -O2 -Wall -o ${program} ${source})
  add_custom_target(mpi_allreduce_once ALL DEPENDS ${program})
else()
  message(STATUS "Open MPI is not here: bench/startup will time hvdrun alone (scripts/setup --mpi installs it)")
endif()
