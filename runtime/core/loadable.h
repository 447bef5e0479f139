// Modules of hvd that are loaded at run time, so that one installation serves machines with and
// without the library behind each of them (CUDA and NCCL, MPI, oneCCL). A module has one symbol, a
// function that returns the address of a value that begins with a ModuleHead. Once loaded it stays.
// Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::runtime {

struct ModuleHead {
  std::uint32_t interface = 0;               // first, whatever else changes
  std::string_view (*build_id)() = nullptr;  // must be ours
};

// A module, as those who look for it know it.
struct ModuleKind {
  std::string_view file;      // "libhvd_nccl.so"
  std::string_view variable;  // names another file
  const char* entry;          // the symbol
  std::uint32_t interface;    // must be the module's
  std::string_view need;      // "tensors of a GPU need hvd's module for NCCL"
  std::string_view remedy;    // "Build hvd where CUDA and NCCL are (scripts/setup --cuda)"
};

// Where it is looked for, in this order: where the variable says; else beside the library or
// program that this code is in, in ../lib from there, and where the system's loader looks.
std::vector<std::string> module_paths(const ModuleKind& kind);
// Whether a file lies at one of these places, but where the system's loader looks; loads nothing.
bool lies_there(const ModuleKind& kind);
// The first of these that exists; an error says where it was looked for, or what is wrong with it.
Result<const void*> load_module(const ModuleKind& kind, const std::vector<std::string>& paths);

}  // namespace hvd::runtime
