#include "worker/launch/launched_world.h"

#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/text.h"

namespace hvd::worker {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 6> kLocalInterfaces{"lo",   "docker", "podman",
                                                           "veth", "virbr",  "br-"};

bool is_ipv6(const Interface& interface) {
  return interface.address.find(':') != std::string::npos;
}

bool stays_on_this_host(const Interface& interface) {
  const auto begins = [&](std::string_view name) { return interface.name.starts_with(name); };
  return std::any_of(kLocalInterfaces.begin(), kLocalInterfaces.end(), begins) ||
         interface.address.starts_with("127.") || interface.address == "::1" ||
         interface.address.starts_with("169.254.") || interface.address.starts_with("fe80:");
}

const Interface* find(const Introduction& introduction, const std::string& name) {
  const auto found =
      std::find_if(introduction.interfaces.begin(), introduction.interfaces.end(),
                   [&](const Interface& interface) { return interface.name == name; });
  return found == introduction.interfaces.end() ? nullptr : &*found;
}

std::optional<std::string> common_interface(const std::vector<Introduction>& introductions) {
  for (const auto& interface : introductions.front().interfaces) {
    const bool everywhere =
        std::all_of(introductions.begin(), introductions.end(),
                    [&](const Introduction& one) { return find(one, interface.name) != nullptr; });
    if (everywhere) return interface.name;
  }
  return std::nullopt;
}

std::string who(std::size_t rank, const Introduction& one) {
  return cat("rank ", rank, " on ", one.host);
}

Status check_builds(const std::vector<Introduction>& introductions) {
  const Introduction& first = introductions.front();
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    const Introduction& one = introductions[rank];
    if (one.build_id == first.build_id) continue;
    return {Code::failed_precondition,
            cat(who(rank, one), " has hvd of build ", one.build_id, ", and ", who(0, first),
                " of build ", first.build_id, ": install the same hvd on both hosts")};
  }
  return {};
}

Status check_interfaces(const std::vector<Introduction>& introductions) {
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    const Introduction& one = introductions[rank];
    if (!one.interfaces.empty()) continue;
    const std::string lacks =
        one.wanted.empty() ? "address at which other hosts could reach it; HVD_NETWORK_INTERFACE "
                             "names interfaces"
                           : cat("interface ", printable(one.wanted), " (HVD_NETWORK_INTERFACE)");
    return {Code::failed_precondition, cat(who(rank, one), " has no ", lacks)};
  }
  return {};
}

}  // namespace

std::string Introduction::to_json() const {
  Json json{{"build", build_id},
            {"host", host},
            {"token", token},
            {"wanted", wanted},
            {"interfaces", Json::array()}};
  for (const auto& interface : interfaces) {
    json["interfaces"].push_back({interface.name, interface.address});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Introduction> Introduction::from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  try {
    Introduction read{json.at("build"), json.at("host"), {}, json.at("wanted"), json.at("token")};
    for (const auto& interface : json.at("interfaces")) {
      read.interfaces.push_back({interface.at(0), interface.at(1)});
    }
    return read;
  } catch (const Json::exception&) {
    return Status(Code::data_loss, "it does not tell where it is in a form that is known");
  }
}

std::vector<Interface> reachable_interfaces(const std::vector<Interface>& all,
                                            std::string_view wanted) {
  std::vector<Interface> reachable;
  for (const auto& name : split(wanted, ',')) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(reachable),
                 [&](const Interface& interface) { return interface.name == name; });
  }
  if (!wanted.empty()) return reachable;

  std::copy_if(all.begin(), all.end(), std::back_inserter(reachable),
               [](const Interface& interface) { return !stays_on_this_host(interface); });
  std::stable_partition(reachable.begin(), reachable.end(),
                        [](const Interface& interface) { return !is_ipv6(interface); });
  return reachable;
}

Result<std::vector<WorldMember>> arrange(const std::vector<Introduction>& introductions) {
  const Introduction& first = introductions.front();
  const bool one_host =
      std::all_of(introductions.begin(), introductions.end(),
                  [&](const Introduction& one) { return one.host == first.host; });
  HVD_RETURN_IF_ERROR(check_builds(introductions));
  if (!one_host) HVD_RETURN_IF_ERROR(check_interfaces(introductions));

  const auto common = common_interface(introductions);
  std::vector<WorldMember> members;
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    const Introduction& one = introductions[rank];
    WorldMember member;
    member.rank = static_cast<int>(rank);
    member.host = one.host;
    member.incarnation = rank + 1;
    if (one_host) {
      member.address = "127.0.0.1";
    } else {
      member.address = (common ? *find(one, *common) : one.interfaces.front()).address;
    }
    members.push_back(std::move(member));
  }

  assign_local_and_cross_ranks(members);
  for (auto& member : members) member.slot = member.local_rank;
  return members;
}

Result<LaunchedWorld> meet(LauncherStore& store, const Introduction& own, TimePoint deadline) {
  auto answers = store.gather(own.to_json(), deadline);
  HVD_RETURN_IF_ERROR(answers.status());
  std::vector<Introduction> introductions;
  for (std::size_t rank = 0; rank < answers->size(); ++rank) {
    auto read = Introduction::from_json((*answers)[rank]);
    HVD_RETURN_IF_ERROR(read.status().with_context(cat("rank ", rank)));
    introductions.push_back(std::move(*read));
  }

  auto members = arrange(introductions);
  HVD_RETURN_IF_ERROR(members.status());
  if (const auto token = store.token()) return LaunchedWorld{std::move(*members), *token};
  auto token = Token::from_hex(introductions.front().token);
  HVD_RETURN_IF_ERROR(token.status().with_context("the token of rank 0"));
  return LaunchedWorld{std::move(*members), *token};
}

}  // namespace hvd::worker
