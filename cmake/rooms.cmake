# A room is one static library, `hvd_<room>`. Includes are written from the root: #include "base/status.h".

function(hvd_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # With -O2 and above g++ 12 warns of what cannot be, inside its own std::string and in coroutines (its bug 105329).
    target_compile_options(${target} PRIVATE -Wno-restrict -Wno-maybe-uninitialized)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Where several files are compiled at a time it takes what is private to a file for what is private to a header.
    target_compile_options(${target} PRIVATE $<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:-Wno-subobject-linkage>)
  endif()
  if(HVD_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/base/include)
endfunction()

# As it comes, g++ looks again and again for memory that it need not keep, which takes a tenth of its time and more. The code
# is the same.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")  # in KB
endif()

if(HVD_SANITIZE)
  # -g1 is enough for the lines of a report; -g takes half as long again to compile, and -O1 twice as long as -O0, which
  # the tests do not win back.
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O0 -g1)
  # These checks stand before each access and take a third of the time to compile. AddressSanitizer stops at a null pointer
  # too, and at accesses beyond an object.
  add_compile_options(-fno-sanitize=null,object-size)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Clang 14 cannot compile these checks in coroutines: "Cannot represent a difference across sections".
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=function>)
    # The macros by which g++, and newer versions of clang, say what the code is compiled for.
    if(HVD_SANITIZE MATCHES address)
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    elseif(HVD_SANITIZE MATCHES thread)
      add_compile_definitions(__SANITIZE_THREAD__=1)
    endif()
  endif()
  add_link_options(-fsanitize=${HVD_SANITIZE})
endif()
if(HVD_FUZZ)
  # libFuzzer sees which code an input reaches. It runs what it compiles a million times, so -O1 pays here.
  add_compile_options(-fsanitize=fuzzer-no-link -O1)
endif()

# hvd_room(NAME sources...): the library of one room.
function(hvd_room name)
  add_library(hvd_${name} STATIC ${ARGN})
  hvd_compile_options(hvd_${name})
endfunction()
