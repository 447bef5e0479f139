#include "runtime/control/library_choice.h"

#include <string>
#include <utility>

#include "base/machine/machine.h"
#include "runtime/gpu/gpu_ops.h"
#include "runtime/ops/ccl.h"
#include "runtime/ops/mpi_library.h"

namespace hvd::runtime {
namespace {

ccl::Self self_of(const WorldSpec& spec) {
  const Member& own = spec.members[static_cast<std::size_t>(spec.rank)];
  ccl::Self self{.local_rank = 0, .local_size = 0};
  for (int rank = 0; rank < spec.size(); ++rank) {
    if (spec.members[static_cast<std::size_t>(rank)].host != own.host) continue;
    if (rank < spec.rank) ++self.local_rank;
    ++self.local_size;
  }
  for (const auto& interface : machine_interfaces()) {
    if (interface.address == own.address) self.interface = interface.name;
  }
  return self;
}

}  // namespace

Result<std::unique_ptr<Library>> chosen_library(const WorldSpec& spec,
                                                const std::shared_ptr<Mesh>& mesh) {
  if (spec.config.cpu_operations == CpuOperations::mpi) {
    const auto module = mpi::module();
    HVD_RETURN_IF_ERROR(module.status());
    return std::unique_ptr<Library>(
        std::make_unique<MpiLibrary>(**module, spec.rank, spec.size(), spec.config.mpi_threads));
  }
  const auto module = ccl::module();
  HVD_RETURN_IF_ERROR(module.status());
  auto tell = [mesh, timeout = spec.config.collective_timeout](const Group& group,
                                                               std::string own) {
    const Active all{.ranks = group.ranks, .positions = {}, .rank = group.rank};
    return tell_over(*mesh, timeout, group, all, std::move(own));
  };
  return std::unique_ptr<Library>(
      std::make_unique<CclLibrary>(**module, self_of(spec), std::move(tell)));
}

}  // namespace hvd::runtime
