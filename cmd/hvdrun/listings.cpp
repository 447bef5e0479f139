#include "cmd/hvdrun/listings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <string_view>

#include <hvd/version.h>

#include "base/machine/capacity.h"
#include "base/machine/topology.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/versions.h"

namespace hvd::cli {
namespace {

struct Feature {
  std::string_view name;
  bool built;
};

template <std::size_t N>
std::string section(std::string_view title, const std::array<Feature, N>& features) {
  std::string text = cat("\n", title, ":\n");
  for (const Feature& feature : features) {
    text += cat("    [", feature.built ? "X" : " ", "] ", feature.name, "\n");
  }
  return text;
}

// "a (4 slots), b"
std::string hosts_text(const std::vector<driver::HostSlots>& hosts) {
  std::vector<std::string> parts;
  for (const auto& host : hosts) {
    parts.push_back(host.slots == 0
                        ? host.name
                        : cat(host.name, " (", host.slots, host.slots == 1 ? " slot)" : " slots)"));
  }
  return join(parts, ", ");
}

constexpr std::string_view kNcclModule = "libhvd_nccl.so";
constexpr std::string_view kOpenMpiModule = "libhvd_openmpi.so";
constexpr std::string_view kMpichModule = "libhvd_mpich.so";
constexpr std::string_view kOneCclModule = "libhvd_oneccl.so";

std::string path_of_module(std::string_view file) {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::string_view library : {"../lib", "../" HVD_LIBDIR, "."}) {
    const auto module = (own / library / file).lexically_normal();
    if (std::filesystem::exists(module, error)) return module.string();
  }
  return {};
}

std::string job_text(const driver::JobSpec& spec) {
  std::string text = cat("in ", printable_word(spec.working_directory), ":");
  for (const auto& word : spec.command) text += cat(" ", printable_word(word));
  return text + cat("\ndata security: ", spec.data_security, "\n");
}

}  // namespace

std::string version_text() {
  return cat("hvdrun " HVD_VERSION_STRING " (build ", build_id(), ")\n");
}

Support support() {
#ifdef HVD_WITH_NCCL
  constexpr bool kNccl = true;
#else
  constexpr bool kNccl = false;
#endif
#ifdef HVD_WITH_ONECCL
  constexpr bool kOneCcl = true;
#else
  constexpr bool kOneCcl = false;
#endif
  const auto mpis = split(HVD_WITH_MPIS, ',');
  const auto is_built = [&](std::string_view mpi) {
    return std::find(mpis.begin(), mpis.end(), mpi) != mpis.end();
  };
  return {{kNccl, path_of_module(kNcclModule)},
          {is_built("openmpi"), path_of_module(kOpenMpiModule)},
          {is_built("mpich"), path_of_module(kMpichModule)},
          {kOneCcl, path_of_module(kOneCclModule)},
          count_gpus()};
}

std::string check_build_text(const Support& support) {
#ifdef HVD_WITH_PYTHON
  constexpr bool kPython = true;
#else
  constexpr bool kPython = false;
#endif
  constexpr std::array kFrameworks{Feature{"C++", true}, Feature{"TensorFlow", kPython},
                                   Feature{"PyTorch", kPython}, Feature{"MXNet", kPython}};
  constexpr std::array kControllers{Feature{"MPI", false}, Feature{"Gloo", true}};
  const bool mpi = support.open_mpi.built || support.mpich.built;
  const std::array operations{Feature{"NCCL", support.nccl.built}, Feature{"DDL", false},
                              Feature{"CCL", support.oneccl.built}, Feature{"MPI", mpi},
                              Feature{"Gloo", true}};
  const auto place_of = [](std::string_view file, const ModuleSupport& module) {
    return cat(file, ": ", module.path.empty() ? "not found beside hvdrun" : module.path);
  };
  const std::string nccl = place_of(kNcclModule, support.nccl);
  const std::string open_mpi = place_of(kOpenMpiModule, support.open_mpi);
  const std::string mpich = place_of(kMpichModule, support.mpich);
  const std::string oneccl = place_of(kOneCclModule, support.oneccl);
  const std::string gpus = cat("NVIDIA GPUs: ", support.gpus);
  const std::array here{Feature{nccl, !support.nccl.path.empty()}, Feature{gpus, support.gpus > 0},
                        Feature{open_mpi, !support.open_mpi.path.empty()},
                        Feature{mpich, !support.mpich.path.empty()},
                        Feature{oneccl, !support.oneccl.path.empty()}};
  return cat("hvd v" HVD_VERSION_STRING ":\n", section("Available Frameworks", kFrameworks),
             section("Available Controllers", kControllers),
             section("Available Tensor Operations", operations), section("On This Machine", here));
}

namespace {

// The processors that a worker of a plan will be bound to; of another machine only the part is
// known here.
std::string binding_text(const driver::JobSpec& spec, const WorldMember& member) {
  static const auto processors = usable_processors();
  if (member.host == "localhost") {
    return cat("processors ", processors_text(part_of(processors, spec.binding, member.local_rank,
                                                      member.local_size)));
  }
  return cat("part ", member.local_rank + 1, " of ", member.local_size, " of the ",
             spec.binding == Binding::cores ? "cores" : "NUMA nodes");
}

// An elastic job begins with as many of the slots as it may use, if their hosts are ready in time.
driver::Plan plan_of_first_world(const driver::JobSpec& spec, const driver::Plan& plan) {
  if (!spec.elastic || !plan.oversubscription.empty()) return plan;
  const auto& limits = spec.elastic->limits;
  long long workers = 0;
  for (const auto& host : spec.hosts) workers += host.slots;
  if (limits.most > 0) workers = std::min<long long>(workers, limits.most + limits.spares);
  workers = std::min<long long>(workers, driver::kMaxWorkers);
  auto first = driver::plan_static(
      spec.hosts, driver::world_size(static_cast<int>(workers), limits), spec.oversubscribe);
  return first.ok() ? *std::move(first) : plan;
}

std::string limits_text(const driver::Limits& limits) {
  return cat("at least ", limits.least, limits.most == 0 ? "" : cat(", at most ", limits.most));
}

}  // namespace

std::string dry_run_text(const driver::JobSpec& spec, const driver::Plan& plan) {
  if (spec.elastic && spec.hosts.empty()) {
    const std::string& script = spec.elastic->discovery_script;
    return cat("workers on the hosts that ",
               script.empty() ? "join" : cat(printable_word(script), " prints"),
               script.empty() || !spec.join ? "" : ", and on those that join", ", ",
               limits_text(spec.elastic->limits), "\n", job_text(spec));
  }
  if (plan.members.empty() && !spec.hosts.empty()) {
    return cat(
        spec.processes > 0 ? cat(spec.processes, " workers on ") : "as many workers as slots on ",
        hosts_text(spec.hosts),
        "; a host without a number has one slot for each GPU, else for each core\n",
        job_text(spec));
  }

  if (plan.members.empty()) {
    return cat(spec.processes, " workers on the hosts that join\n", job_text(spec));
  }

  const driver::Plan first = plan_of_first_world(spec, plan);
  std::size_t width = 4;
  for (const auto& member : first.members) width = std::max(width, member.host.size());
  std::ostringstream out;
  const auto column = [&](std::string_view text, std::size_t size) {
    out << std::left << std::setw(static_cast<int>(size) + 2) << text;
  };

  column("rank", 4);
  column("host", width);
  column("slot", 4);
  column("local", 9);
  if (spec.binding == Binding::none) {
    out << "cross\n";
  } else {
    column("cross", 9);
    out << "bound to\n";
  }

  for (const auto& member : first.members) {
    column(std::to_string(member.rank), 4);
    column(member.host, width);
    column(std::to_string(member.slot), 4);
    column(cat(member.local_rank, " of ", member.local_size), 9);
    const std::string cross = cat(member.cross_rank, " of ", member.cross_size);
    if (spec.binding == Binding::none) {
      out << cross << '\n';
    } else {
      column(cross, 9);
      out << binding_text(spec, member) << '\n';
    }
  }
  if (spec.elastic) {
    out << "the first world, if all hosts are ready in time; " << limits_text(spec.elastic->limits)
        << " workers\n";
  }
  out << job_text(spec);
  return std::move(out).str();
}

std::string environment_text(const std::vector<std::string>& environment,
                             const std::vector<std::string>& host_variables) {
  std::string text;
  for (const auto& entry : environment) {
    const auto equals = entry.find('=');
    text += cat(printable(entry.substr(0, equals + 1)),
                equals + 1 < entry.size() ? printable_word(entry.substr(equals + 1)) : "", "\n");
  }
  if (!host_variables.empty()) {
    text +=
        cat("# from each host, where it has them: ", printable(join(host_variables, " ")), "\n");
  }
  return text;
}

}  // namespace hvd::cli
