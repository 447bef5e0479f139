// The options of a bed and the names of everything in it. The program hvd-hosts, which runs the
// bed, gets the options as arguments. Plain values.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/testbed/hosts.h"

namespace hvd::test::bed {

inline constexpr int kHead = 0;  // hosts have the numbers from 1 on
inline constexpr int kMostHosts = 250;
inline constexpr int kUser = 5077;  // uid and gid of hvduser

struct Plan {
  BedOptions options;
  std::filesystem::path directory;  // of this bed, on this machine
  std::filesystem::path source;     // the repository and the build, which hosts do not see
  std::filesystem::path build;

  int last() const { return options.hosts; }
  std::filesystem::path directory_of(int number) const;
  // The private key that every host accepts.
  std::filesystem::path key() const { return directory / "id_ed25519"; }
};

std::string name_of(int number);  // "h1", "head"
std::string ipv4_of(int number);
std::string ipv6_of(int number);
std::string mac_of(int number);
// The address that IPv6 makes from it by itself.
std::string link_local_of(int number);

// To arguments and back; parse_options() removes the options that it knows from the front of
// `arguments`. Throws std::runtime_error on an invalid value.
std::vector<std::string> words_of(const BedOptions& options);
BedOptions parse_options(std::vector<std::string>& arguments);

}  // namespace hvd::test::bed
