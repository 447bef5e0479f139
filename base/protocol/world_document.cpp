#include "base/protocol/world_document.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace hvd {

using Json = nlohmann::json;

static std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void assign_local_and_cross_ranks(std::vector<WorldMember>& members) {
  std::map<std::string_view, int> local_sizes;
  for (auto& member : members) member.local_rank = local_sizes[member.host]++;

  std::vector<int> cross_sizes;                              // by local rank
  std::map<std::string_view, std::vector<int>> cross_ranks;  // of a host, by local rank
  for (const auto& member : members) {
    auto& of_host = cross_ranks[member.host];
    if (!of_host.empty()) continue;
    // Hosts are numbered in the order of their first members.
    const auto size = static_cast<std::size_t>(local_sizes[member.host]);
    if (cross_sizes.size() < size) cross_sizes.resize(size);
    for (std::size_t local = 0; local < size; ++local) of_host.push_back(cross_sizes[local]++);
  }

  for (auto& member : members) {
    const auto local = static_cast<std::size_t>(member.local_rank);
    member.local_size = local_sizes[member.host];
    member.cross_rank = cross_ranks[member.host][local];
    member.cross_size = cross_sizes[local];
  }
}

// Member by member: as one tree of JSON a world of 100,000 would take ten times the memory of its
// text.
std::string WorldDocument::to_json() const {
  std::string text = text_of({{"job", job_id},
                              {"generation", generation},
                              {"state", state == WorldState::effective ? "effective" : "proposed"},
                              {"size", members.size()}});
  text.back() = ',';
  if (last) text += "\"last\":true,";
  text += "\"members\":[";
  for (const auto& m : members) {
    if (&m != &members.front()) text += ',';
    Json member{{"rank", m.rank},
                {"host", m.host},
                {"slot", m.slot},
                {"incarnation", m.incarnation},
                {"address", m.address},
                {"local_rank", m.local_rank},
                {"local_size", m.local_size},
                {"cross_rank", m.cross_rank},
                {"cross_size", m.cross_size}};
    const auto rank = static_cast<std::size_t>(&m - members.data());
    if (rank < sealed_keys.size()) member["key"] = sealed_keys[rank];
    text += text_of(member);
  }
  return text + "]}";
}

static Status check(const WorldDocument& world) {
  const auto wrong = [](const std::string& what) {
    return Status(Code::data_loss, "world document: " + what);
  };
  if (world.members.empty()) return wrong("it has no members");
  if (!world.sealed_keys.empty() && world.sealed_keys.size() != world.members.size()) {
    return wrong("some members have a key, and others have none");
  }
  std::set<std::pair<std::string_view, int>> places;
  std::set<std::uint64_t> incarnations;
  for (std::size_t i = 0; i < world.members.size(); ++i) {
    const auto& m = world.members[i];
    if (m.rank != static_cast<int>(i)) return wrong(cat("rank ", m.rank, " stands at place ", i));
    if (!places.emplace(m.host, m.slot).second)
      return wrong(cat(m.worker(), " stands in it twice"));
    if (!incarnations.insert(m.incarnation).second)
      return wrong(cat("two members are of incarnation ", m.incarnation));
    if (m.local_rank < 0 || m.local_rank >= m.local_size || m.cross_rank < 0 ||
        m.cross_rank >= m.cross_size) {
      return wrong(cat("rank ", i, " has impossible local or cross ranks"));
    }
  }
  return {};
}

Result<WorldDocument> WorldDocument::from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  WorldDocument world;
  bool sound = true;

  // Numbers as they must be: whole, not negative, not silently cut to fit.
  const auto number = [&sound](const Json& object, const char* name) {
    const Json& field = object.at(name);
    sound = sound && field.is_number_unsigned() &&
            field.get<std::uint64_t>() <= std::numeric_limits<int>::max();
    return sound ? field.get<int>() : 0;
  };
  const auto long_number = [&sound](const Json& object, const char* name) {
    const Json& field = object.at(name);
    sound = sound && field.is_number_unsigned();
    return sound ? field.get<std::uint64_t>() : 0;
  };

  try {
    world.job_id = json.at("job").get<std::string>();
    world.generation = long_number(json, "generation");
    const auto state = json.at("state").get<std::string>();
    sound = sound && (state == "proposed" || state == "effective");
    world.state = state == "proposed" ? WorldState::proposed : WorldState::effective;
    if (json.contains("last")) world.last = json.at("last").get<bool>();

    const Json& members = json.at("members");
    sound = sound && members.is_array() && long_number(json, "size") == members.size();
    for (const auto& m : members) {
      world.members.push_back({.rank = number(m, "rank"),
                               .host = m.at("host"),
                               .slot = number(m, "slot"),
                               .incarnation = long_number(m, "incarnation"),
                               .address = m.at("address"),
                               .local_rank = number(m, "local_rank"),
                               .local_size = number(m, "local_size"),
                               .cross_rank = number(m, "cross_rank"),
                               .cross_size = number(m, "cross_size")});
      if (m.contains("key")) world.sealed_keys.push_back(m.at("key"));
    }
  } catch (const Json::exception&) {
    sound = false;
  }

  if (!sound) {
    return Status(Code::data_loss,
                  "world document: not JSON, or a field is missing or of the wrong type");
  }
  HVD_RETURN_IF_ERROR(check(world));
  return world;
}

const WorldMember* WorldDocument::find(std::uint64_t incarnation) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const WorldMember& member) {
    return member.incarnation == incarnation;
  });
  return found == members.end() ? nullptr : &*found;
}

}  // namespace hvd
