#include "tests/testbed/plan.h"

#include <array>
#include <cstdio>
#include <stdexcept>

#include "base/text.h"

namespace hvd::test::bed {
namespace {

int address_number(int number) { return number == kHead ? 254 : number; }

}  // namespace

std::filesystem::path Plan::directory_of(int number) const { return directory / name_of(number); }

std::string name_of(int number) { return number == kHead ? "head" : cat("h", number); }
std::string ipv4_of(int number) { return cat("10.77.0.", address_number(number)); }
std::string ipv6_of(int number) { return cat("fd77::", address_number(number)); }

std::string mac_of(int number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "02:77:00:00:00:%02x",
                static_cast<unsigned>(address_number(number)));
  return text.data();
}

std::string link_local_of(int number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "fe80::77:ff:fe00:%x",
                static_cast<unsigned>(address_number(number)));
  return text.data();
}

std::vector<std::string> words_of(const BedOptions& options) {
  std::vector<std::string> arguments{"--hosts", std::to_string(options.hosts)};
  if (!options.ipv4) arguments.emplace_back("--no-ipv4");
  if (!options.ipv6) arguments.emplace_back("--no-ipv6");
  if (!options.head_knows_hosts) arguments.emplace_back("--unknown-hosts");
  if (!options.head_may_log_in) arguments.emplace_back("--no-login");
  for (const auto& setting : options.sshd_settings) {
    arguments.emplace_back("--sshd-setting");
    arguments.push_back(setting);
  }
  return arguments;
}

BedOptions parse_options(std::vector<std::string>& arguments) {
  BedOptions options;
  auto at = arguments.begin();
  const auto value = [&] {
    if (at + 1 == arguments.end()) throw std::runtime_error(cat(*at, " needs a value"));
    return *++at;
  };
  for (; at != arguments.end(); ++at) {
    if (*at == "--hosts") {
      const std::string text = value();
      const auto number = parse_number<int>(text);
      if (!number) throw std::runtime_error(cat("--hosts: \"", text, "\" is no number"));
      options.hosts = *number;
    } else if (*at == "--no-ipv4") {
      options.ipv4 = false;
    } else if (*at == "--no-ipv6") {
      options.ipv6 = false;
    } else if (*at == "--unknown-hosts") {
      options.head_knows_hosts = false;
    } else if (*at == "--no-login") {
      options.head_may_log_in = false;
    } else if (*at == "--sshd-setting") {
      options.sshd_settings.push_back(value());
    } else {
      break;
    }
  }
  arguments.erase(arguments.begin(), at);
  if (options.hosts < 1 || options.hosts > kMostHosts) {
    throw std::runtime_error(cat("a bed has 1 to ", kMostHosts, " hosts, not ", options.hosts));
  }
  if (!options.ipv4 && !options.ipv6) {
    throw std::runtime_error("a bed needs IPv4 or IPv6: both are off");
  }
  return options;
}

}  // namespace hvd::test::bed
