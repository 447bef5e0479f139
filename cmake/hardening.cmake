# What makes a mistake in memory end the process rather than serve an attacker. tests/packaging/hardening_test.py reads from
# the programs and libraries that it is there. docs/internals/packages.md has what it costs.
option(HVD_HARDENING "Compile and link with the usual defences against mistakes in memory" ON)
if(NOT HVD_HARDENING OR NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  return()
endif()

# Checks of bounds where the compiler knows a size. They need the optimiser, and the sanitizers have checks of their own.
if(NOT HVD_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  # Some compilers come with another level, and warn of two.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
# A stack that was written over is found when its function returns, and one that grows does not jump over its guard page.
add_compile_options(-fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86" AND NOT HVD_FUZZ)
  # Processors with CET jump to the beginnings of functions alone, and return to where they were called from. The linker marks
  # a file for that where all that is linked into it is marked, which the C library's own objects in Debian 12 are not.
  add_compile_options(-fcf-protection)
endif()
# Wrong indices of containers, where a developer sees them.
if(HVD_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

# Tables of functions cannot be written once the program runs, and neither stack nor data can be run. To look all functions up
# at the start takes no time that could be measured (docs/internals/packages.md).
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
