#include "driver/this_machine.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <set>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

// As text, which is how we compare and show it; nothing for other families.
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

bool is_loopback(std::string_view address) {
  return address == "::1" || address.substr(0, 4) == "127.";
}

struct Interface {
  std::string name;
  std::string address;
};

std::vector<Interface> interfaces() {
  std::vector<Interface> result;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return result;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    std::string address = address_text(entry->ifa_addr);
    if (!address.empty()) result.push_back({entry->ifa_name, std::move(address)});
  }
  return result;
}

std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Result<std::vector<std::string>> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &list); error != 0) {
    const std::string why = error == EAI_SYSTEM ? Status::from_errno("getaddrinfo", errno).message()
                                                : ::gai_strerror(error);
    return Status(Code::not_found, why);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> result;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    result.push_back(address_text(entry->ai_addr));
  }
  return result;
}

}  // namespace

Status check_is_this_machine(const std::string& name) {
  if (name == "localhost" || is_loopback(name) || name == own_name()) return {};
  const auto addresses = addresses_of(name);
  if (!addresses) {
    return {Code::not_found, cat("host ", name, " cannot be found: ", addresses.status().message(),
                                 "; check the name")};
  }
  std::set<std::string> own;
  for (const auto& interface : interfaces()) own.insert(interface.address);
  for (const auto& address : *addresses) {
    if (is_loopback(address) || own.count(address) != 0) return {};
  }
  return {Code::invalid_argument,
          cat("host ", name, " (", join(*addresses, ", "),
              ") is not this machine, and this version starts workers on this machine only")};
}

std::string interface_of(const std::string& address) {
  for (const auto& interface : interfaces()) {
    if (interface.address == address) return interface.name;
  }
  return is_loopback(address) ? "lo" : "";
}

Result<std::uint16_t> free_port(const std::string& address) {
  auto listener = listen_tcp({address, 0}, 1);
  if (!listener) return listener.status();
  auto bound = local_address(listener->get());
  if (!bound) return bound.status();
  return bound->port;
}

}  // namespace hvd::driver
