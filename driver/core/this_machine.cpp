#include "driver/core/this_machine.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <fstream>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include "base/machine/machine.h"
#include "base/machine/ports.h"
#include "base/printable.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/job/addresses.h"

namespace hvd::driver {
namespace {

// The address as text, in which form it is compared and shown; empty for other families.
std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = nullptr;
  if (address != nullptr && address->sa_family == AF_INET) {
    raw = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address != nullptr && address->sa_family == AF_INET6) {
    raw = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return {};
  }
  return ::inet_ntop(address->sa_family, raw, text.data(), text.size()) == nullptr ? ""
                                                                                   : text.data();
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> result;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    result.push_back(address_text(entry->ai_addr));
  }
  return result;
}

bool is_own_address(const std::string& address) {
  if (is_loopback_address(address)) return true;
  const auto own = machine_interfaces();
  return std::any_of(own.begin(), own.end(),
                     [&](const auto& interface) { return interface.address == address; });
}

}  // namespace

std::optional<bool> is_this_machine_without_lookup(const std::string& name) {
  if (name == "localhost" || name == machine_name()) return true;
  if (!is_ip_address(name)) return std::nullopt;
  return is_own_address(name);
}

bool is_this_machine(const std::string& name) {
  if (const auto known = is_this_machine_without_lookup(name)) return *known;
  const auto addresses = addresses_of(name);
  return std::any_of(addresses.begin(), addresses.end(), is_own_address);
}

// The socket at which an agent that holds workers is found belongs to the namespace.
std::string this_machine_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network {};
  static_cast<void>(::stat("/proc/self/ns/net", &network));
  return cat(printable(boot), ":", network.st_ino);
}

Result<std::uint16_t> free_port(const std::string& address, const std::optional<PortRange>& range) {
  const auto is_free = [&](std::uint16_t tried) { return listen_tcp({address, tried}, 1).ok(); };
  if (!range) {
    if (const auto port = find_port(ephemeral_ports(), is_free); port != 0) return port;
  }

  auto listener = listen_tcp({address, 0}, {range}, 1);
  if (!listener) return listener.status();
  auto bound = local_address(listener->get());
  if (!bound) return bound.status();
  return bound->port;
}

RaisedFileLimit::RaisedFileLimit() : before_(raise_open_files()) {}

RaisedFileLimit::~RaisedFileLimit() {
  if (before_) ::setrlimit(RLIMIT_NOFILE, &*before_);
}

}  // namespace hvd::driver
