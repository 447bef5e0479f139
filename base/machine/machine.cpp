#include "base/machine/machine.h"

#include <arpa/inet.h>
#include <array>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/machine/cgroup.h"
#include "base/machine/proc.h"

namespace hvd {

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::uint64_t memory_and_swap() {
  struct sysinfo machine {};
  ::sysinfo(&machine);
  return memory_and_swap_within(std::uint64_t{machine.totalram} * machine.mem_unit,
                                std::uint64_t{machine.totalswap} * machine.mem_unit,
                                read_proc_file("/proc/self/cgroup"), kControlGroups);
}

std::vector<Interface> machine_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      address = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    } else {
      continue;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_ntop(family, address, text.data(), text.size()) == nullptr) continue;
    interfaces.push_back({entry->ifa_name, text.data()});
  }
  return interfaces;
}

std::optional<rlimit> raise_open_files() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return std::nullopt;
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace hvd
