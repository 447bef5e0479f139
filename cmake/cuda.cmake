# CUDA and NCCL, for the one module that knows them: taken where they are, and left out, with one line that says so, where
# they are not. HVD_CUDA=OFF leaves them out anyway, ON insists. Looked for in the toolkit that nvcc is of or
# CUDAToolkit_ROOT names, and NCCL also in NCCL_ROOT and among the wheels in build/cuda, where scripts/setup --cuda puts them.
set(HVD_CUDA AUTO CACHE STRING "The module for GPUs: AUTO (if CUDA and NCCL are here), ON or OFF")
set_property(CACHE HVD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(HVD_HAS_CUDA FALSE)

function(hvd_without_cuda why)
  if(HVD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HVD_CUDA=ON, but ${why}. scripts/setup --cuda says what can be done.")
  endif()
  message(STATUS "Without the module for GPUs: ${why}")
endfunction()

if(NOT HVD_CUDA)
  message(STATUS "Without the module for GPUs: HVD_CUDA is ${HVD_CUDA}")
  return()
endif()
if(HVD_SANITIZE)
  hvd_without_cuda("sanitizers cannot look into it")
  return()
endif()

# A wheel is a folder nvidia/cu13 (or cu12) with bin, include and lib, and nvidia/nccl.
file(GLOB wheels LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/build/cuda/nvidia/cu1[2-9]")
if(wheels AND NOT CUDAToolkit_ROOT AND NOT DEFINED ENV{CUDAToolkit_ROOT})
  find_program(HVD_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT HVD_NVCC)
    list(POP_BACK wheels CUDAToolkit_ROOT)
  endif()
endif()
find_package(CUDAToolkit 12.0 QUIET)
find_path(HVD_NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
  "${PROJECT_SOURCE_DIR}/build/cuda/nvidia/nccl" PATH_SUFFIXES include)
find_library(HVD_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} ${CUDAToolkit_LIBRARY_DIR}
  "${PROJECT_SOURCE_DIR}/build/cuda/nvidia/nccl" PATH_SUFFIXES lib lib64)
mark_as_advanced(HVD_NVCC HVD_NCCL_INCLUDE_DIR HVD_NCCL_LIBRARY)

if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT TARGET CUDA::cudart_static)
  hvd_without_cuda("there is no CUDA toolkit of 12.0 or newer here")
elseif(NOT HVD_NCCL_INCLUDE_DIR OR NOT HVD_NCCL_LIBRARY)
  hvd_without_cuda("there is a CUDA toolkit (${CUDAToolkit_VERSION}), but no NCCL")
else()
  file(STRINGS "${HVD_NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" nccl_version "${nccl_lines}")
  string(REPLACE ";" "." nccl_version "${nccl_version}")
  if(nccl_version VERSION_LESS 2.19)
    hvd_without_cuda("NCCL ${nccl_version} is older than 2.19")
  else()
    set(HVD_HAS_CUDA TRUE)
    message(STATUS "With the module for GPUs: CUDA ${CUDAToolkit_VERSION}, NCCL ${nccl_version} (${HVD_NCCL_LIBRARY})")
  endif()
endif()

# hvd_cuda_object(VARIABLE file.cu): compiled by nvcc alone; there is too little of it for a language of its own. Two kinds of
# machine code, and two forms for what comes between and after them.
function(hvd_cuda_object variable source)
  get_filename_component(name ${source} NAME)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  set(launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
  add_custom_command(OUTPUT ${object}
    COMMAND ${launcher} ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -O3 --expt-relaxed-constexpr -lineinfo
      -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC,-fvisibility=hidden
      -gencode arch=compute_75,code=compute_75 -gencode arch=compute_80,code=sm_80
      -gencode arch=compute_90,code=[sm_90,compute_90]
      -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/base/include
      -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}" VERBATIM)
  set(${variable} ${object} PARENT_SCOPE)
endfunction()
