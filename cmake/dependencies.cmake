# Everything comes from the distribution's packages; scripts/setup names each and why.
find_package(Threads REQUIRED)
# A wheel has OpenSSL inside libhvd.so. TensorFlow offers functions of the same names to the whole process, those of
# BoringSSL, and an OpenSSL in a library of its own would call these.
if(DEFINED SKBUILD)
  find_library(HVD_OPENSSL_ARCHIVE libcrypto.a)
  mark_as_advanced(HVD_OPENSSL_ARCHIVE)
  if(HVD_OPENSSL_ARCHIVE)
    set(OPENSSL_USE_STATIC_LIBS ON)
  endif()
endif()
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto SSL)
find_package(Boost 1.81 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Gloo REQUIRED)
# Of PMIx only the header is used (worker/launch). Without it, programs that mpirun starts are refused.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(PMIX QUIET pmix)
  # Likewise of MUNGE (base/security/munge.h). Without it, agents under Slurm need a token file.
  pkg_check_modules(MUNGE QUIET munge)
endif()

if(HVD_BUILD_LAUNCHER)
  find_package(CLI11 REQUIRED)
  find_package(yaml-cpp REQUIRED)
  # Its own CMake file names a target, but not where the headers are, in the versions that distributions have.
  find_path(HVD_LIBSSH_INCLUDE_DIR libssh/libssh.h REQUIRED)
  find_library(HVD_LIBSSH_LIBRARY ssh REQUIRED)
  mark_as_advanced(HVD_LIBSSH_INCLUDE_DIR HVD_LIBSSH_LIBRARY)
  add_library(hvd_libssh INTERFACE)
  target_include_directories(hvd_libssh SYSTEM INTERFACE ${HVD_LIBSSH_INCLUDE_DIR})
  target_link_libraries(hvd_libssh INTERFACE ${HVD_LIBSSH_LIBRARY})
  # Its core alone. Its own CMake file asks for all of its libraries, and for what these need.
  find_path(HVD_PROMETHEUS_INCLUDE_DIR prometheus/registry.h REQUIRED)
  find_library(HVD_PROMETHEUS_LIBRARY prometheus-cpp-core REQUIRED)
  mark_as_advanced(HVD_PROMETHEUS_INCLUDE_DIR HVD_PROMETHEUS_LIBRARY)
  add_library(hvd_prometheus INTERFACE)
  target_include_directories(hvd_prometheus SYSTEM INTERFACE ${HVD_PROMETHEUS_INCLUDE_DIR})
  target_link_libraries(hvd_prometheus INTERFACE ${HVD_PROMETHEUS_LIBRARY})
endif()

# Asio and Beast are compiled once, in base/asio.cpp and rendezvous/beast.cpp, not in every file that uses them.
add_library(hvd_boost INTERFACE)
target_link_libraries(hvd_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(hvd_boost INTERFACE
  BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)

if(HVD_BUILD_PYTHON)
  # The distribution's own Python has the distribution's NumPy and PyTorch.
  if(NOT DEFINED SKBUILD AND NOT DEFINED Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
    set(Python3_EXECUTABLE /usr/bin/python3)
  endif()
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()
