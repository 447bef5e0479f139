# LibTorch, for the tests of hvd/torch.h and an example; no library of hvd is linked with it. Found by its files: its own CMake
# file asks for CUDA, protobuf and glog, too, and stops where one of them is missing.
option(HVD_LIBTORCH "Build the tests of hvd/torch.h and an example, where LibTorch is" ON)
if(NOT HVD_LIBTORCH)
  return()  # clang-tidy 14 cannot read LibTorch 1.13 as C++20: clang finds std::vector of an incomplete type in it
endif()
find_path(HVD_LIBTORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h)
find_library(HVD_LIBTORCH_LIBRARY torch)
find_library(HVD_LIBTORCH_CPU_LIBRARY torch_cpu)
find_library(HVD_LIBTORCH_C10_LIBRARY c10)
find_package(ZLIB QUIET)  # the images of the example are compressed
mark_as_advanced(HVD_LIBTORCH_INCLUDE_DIR HVD_LIBTORCH_LIBRARY HVD_LIBTORCH_CPU_LIBRARY HVD_LIBTORCH_C10_LIBRARY)

# The sanitizers would need a LibTorch that is built with them.
if(HVD_LIBTORCH_INCLUDE_DIR AND HVD_LIBTORCH_LIBRARY AND HVD_LIBTORCH_CPU_LIBRARY AND HVD_LIBTORCH_C10_LIBRARY
    AND ZLIB_FOUND AND NOT HVD_SANITIZE)
  add_library(hvd_libtorch INTERFACE)
  target_include_directories(hvd_libtorch SYSTEM INTERFACE ${HVD_LIBTORCH_INCLUDE_DIR}
    ${HVD_LIBTORCH_INCLUDE_DIR}/torch/csrc/api/include)
  target_link_libraries(hvd_libtorch INTERFACE ${HVD_LIBTORCH_LIBRARY} ${HVD_LIBTORCH_CPU_LIBRARY}
    ${HVD_LIBTORCH_C10_LIBRARY})
else()
  message(STATUS "Without the tests of hvd/torch.h: there is no LibTorch with zlib, or sanitizers are on")
endif()
