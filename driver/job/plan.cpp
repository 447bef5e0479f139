#include "driver/job/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "driver/job/staffing.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxHostsShown = 4;

Status check_hosts(const std::vector<HostSlots>& hosts) {
  if (hosts.empty()) return {Code::invalid_argument, "there is no host to run on"};
  std::set<std::string> names;
  for (const auto& host : hosts) {
    if (host.slots < 1) {
      return {Code::invalid_argument,
              cat("host ", host.name, " has ", host.slots, " slots; it needs at least one")};
    }
    if (!names.insert(host.name).second) {
      return {Code::invalid_argument, cat("host ", host.name, " is named twice")};
    }
  }
  return {};
}

// The first hosts are filled first.
std::vector<int> fill(const std::vector<HostSlots>& hosts, int processes) {
  std::vector<int> counts;
  for (const auto& host : hosts) {
    counts.push_back(std::min(host.slots, processes));
    processes -= counts.back();
  }
  return counts;
}

// In proportion to the slots, by largest remainder; among equals the earlier host gets one more.
std::vector<int> spread(const std::vector<HostSlots>& hosts, int processes, long long slots) {
  std::vector<int> counts;
  std::vector<std::size_t> order(hosts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  int left = processes;
  const auto share = [&](std::size_t host) { return 1LL * processes * hosts[host].slots; };
  for (const std::size_t host : order) {
    counts.push_back(static_cast<int>(share(host) / slots));
    left -= counts.back();
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return share(a) % slots > share(b) % slots;
  });
  for (int index = 0; index < left; ++index) ++counts[order[static_cast<std::size_t>(index)]];
  return counts;
}

std::string oversubscription_line(const std::vector<HostSlots>& hosts,
                                  const std::vector<int>& counts, int processes, long long slots) {
  std::vector<std::string> parts;
  for (std::size_t host = 0; host < std::min(hosts.size(), kMaxHostsShown); ++host) {
    parts.push_back(cat(counts[host], " on ", hosts[host].name, " (", hosts[host].slots,
                        hosts[host].slots == 1 ? " slot)" : " slots)"));
  }
  if (hosts.size() > kMaxHostsShown) {
    parts.push_back(cat("and so on over ", hosts.size(), " hosts"));
  }
  return cat("oversubscribed: ", processes, " processes on ", slots,
             slots == 1 ? " slot: " : " slots: ", join(parts, ", "),
             "; --no-oversubscribe makes this an error");
}

Status check_processes(int processes, long long slots) {
  constexpr auto kMost = static_cast<long long>(kMaxWorkers);
  if (processes == 0 && slots > kMost) {
    return {Code::invalid_argument,
            cat("the hosts have ", with_thousands(static_cast<unsigned long long>(slots)),
                " slots; a job may have ", with_thousands(kMaxWorkers),
                " workers: say how many with -np")};
  }
  if (processes < 0 || processes > kMost) {
    return {Code::invalid_argument, cat("the number of processes must be from 1 to ",
                                        with_thousands(kMaxWorkers), ", not ", processes)};
  }
  return {};
}

}  // namespace

std::string slots_text(const HostSlots& host, const Capacity& capacity) {
  const int found = slots_by(capacity);
  const int slots = slots_found(host, found);
  return cat("host ", host.name, ": ", slots_text(capacity),
             slots < found ? cat("; max_slots leaves ", slots) : "");
}

std::vector<HostSlots> hosts_to_ask(const std::vector<HostSlots>& hosts, int processes) {
  if (processes < 1) return hosts;
  std::vector<HostSlots> asked;
  long long least = 0;
  for (const auto& host : hosts) {
    if (least >= processes) break;
    least += std::max(host.slots, 1);
    asked.push_back(host);
  }
  return asked;
}

Result<Plan> plan_static(const std::vector<HostSlots>& hosts, int processes, bool oversubscribe) {
  HVD_RETURN_IF_ERROR(check_hosts(hosts));
  long long slots = 0;
  for (const auto& host : hosts) slots += host.slots;
  HVD_RETURN_IF_ERROR(check_processes(processes, slots));
  if (processes == 0) processes = static_cast<int>(slots);

  Plan plan;
  std::vector<int> counts;
  if (processes <= slots) {
    counts = fill(hosts, processes);
  } else if (!oversubscribe) {
    return Status(Code::resource_exhausted, cat("Requested more processes (", processes,
                                                ") than there are available slots (", slots, ")"));
  } else {
    counts = spread(hosts, processes, slots);
    plan.oversubscription = oversubscription_line(hosts, counts, processes, slots);
  }
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (int slot = 0; slot < counts[host]; ++slot) {
      WorldMember member;
      member.rank = static_cast<int>(plan.members.size());
      member.host = hosts[host].name;
      member.slot = slot;
      plan.members.push_back(std::move(member));
    }
  }
  assign_local_and_cross_ranks(plan.members);
  return plan;
}

Status check_ports(const PortRange& range, const std::string& host, int workers, int of_hvdrun) {
  const int needed = kPortsOfAWorker * workers + kPortsOfAHost + of_hvdrun;
  if (needed <= range.size()) return {};
  return {
      Code::resource_exhausted,
      cat("--port-range ", range.to_string(), " has too few ports (", range.size(), ") for host ",
          host, ", which needs ", needed, ": ", kPortsOfAWorker, " for each of its workers (",
          workers, ") and ", needed - kPortsOfAWorker * workers, " more")};
}

Status check_least(int least, const std::vector<HostSlots>& hosts, const Plan& plan) {
  long long room = 0;
  for (const auto& host : hosts) room += host.slots;
  room = std::max(room, static_cast<long long>(plan.members.size()));
  if (least <= room) return {};
  return {Code::invalid_argument,
          cat("--min-np ", least, " is more than the ", room, room == 1 ? " slot" : " slots",
              " of the hosts that are named")};
}

std::map<std::string, std::size_t> legacy_scope_sizes(const std::vector<WorldMember>& members) {
  std::map<std::string, std::size_t> sizes;
  sizes["global"] = members.size();
  for (const auto& member : members) {
    ++sizes[cat("local_", member.host)];
    ++sizes[cat("cross_", member.local_rank)];
  }
  return sizes;
}

}  // namespace hvd::driver
