// oneCCL as the operations on tensors of the host use it, and the module in which all that knows
// oneCCL is: found, loaded and asked only where oneCCL was chosen (runtime/core/loadable.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/types.h>

#include "base/status.h"
#include "runtime/core/loadable.h"
#include "runtime/ops/library.h"

namespace hvd::runtime {
namespace ccl {

// This process on its host.
struct Self {
  int local_rank = 0;
  int local_size = 1;
  std::string interface = {};  // over which it is connected to others; empty: not known
};

// Tells all members of a set, and returns what each of them has told, in their order: texts of one
// length. May throw.
using Tell = std::function<std::vector<std::string>(std::string own)>;

inline constexpr std::string_view kModuleVariable = "HVD_CCL_MODULE";
inline constexpr const char* kModuleEntry = "hvd_ccl_module";
// Changes with everything that a module and its loader must agree about.
inline constexpr std::uint32_t kModuleInterface = 1;

struct Module : ModuleHead {
  // Begins oneCCL at the first call. Sets those of its variables that the environment lacks and
  // without which it would not meet its peers here.
  Status (*begin)(const Self& self) = nullptr;
  bool (*reduces)(DataType type, ReduceOp op) = nullptr;
  // The communicator of a set, of whose `size` members this one is `rank`; all of them call it.
  // They meet at a store of the first, of which `tell` tells them. Blocks.
  Result<std::unique_ptr<LibraryCommunicator>> (*make)(int rank, int size,
                                                       const Tell& tell) = nullptr;
};

// Whether the module lies where it would be looked for; loads nothing.
bool is_built();
// The module; loads it at the first call that succeeds. Safe from any thread.
Result<const Module*> module();

}  // namespace ccl

class CclLibrary final : public Library {
 public:
  using TellGroup = std::function<std::vector<std::string>(const Group& group, std::string own)>;
  // `tell`: as ccl::Tell, to the members of a group.
  CclLibrary(const ccl::Module& module, ccl::Self self, TellGroup tell)
      : module_(module), self_(std::move(self)), tell_(std::move(tell)) {}

  std::string_view name() const override { return "ccl"; }
  std::string_view title() const override { return "oneCCL"; }
  Status open() override { return module_.begin(self_); }
  bool reduces(DataType type, ReduceOp op) const override { return module_.reduces(type, op); }
  bool wants_equal_parts() const override { return true; }
  // To begin a call takes as long as to copy some megabytes.
  std::size_t packed_bytes() const override { return std::size_t{16} << 20; }
  Result<std::unique_ptr<LibraryCommunicator>> make(const Group& group) override;

 private:
  const ccl::Module& module_;
  const ccl::Self self_;
  const TellGroup tell_;
};

}  // namespace hvd::runtime
