#include "base/protocol/world_document.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/text.h"
#include "base/wire.h"

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
    const Json member{{"rank", m.rank},
                      {"host", m.host},
                      {"slot", m.slot},
                      {"incarnation", m.incarnation},
                      {"address", m.address},
                      {"local_rank", m.local_rank},
                      {"local_size", m.local_size},
                      {"cross_rank", m.cross_rank},
                      {"cross_size", m.cross_size}};
    text += text_of(member);
  }
  return text + "]}";
}

namespace {

// The names and addresses of all members together take no more.
constexpr std::uint64_t kMostBytesOfNames = std::uint64_t{64} << 20;

enum Flags : std::uint8_t { kIsEffective = 1, kIsLast = 2 };

// Members that follow each other on one host, in slots and of incarnations that count up by one.
struct Stretch {
  std::string host;
  std::string address;
  std::uint64_t slot = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t count = 0;

  std::uint64_t next_incarnation() const { return incarnation + count; }
  bool takes(const WorldMember& member) const {
    return member.host == host && member.address == address &&
           static_cast<std::uint64_t>(member.slot) == slot + count &&
           member.incarnation == next_incarnation();
  }
};

std::vector<Stretch> stretches_of(const std::vector<WorldMember>& members) {
  std::vector<Stretch> stretches;
  for (const auto& member : members) {
    if (stretches.empty() || !stretches.back().takes(member)) {
      stretches.push_back({member.host, member.address, static_cast<std::uint64_t>(member.slot),
                           member.incarnation, 0});
    }
    ++stretches.back().count;
  }
  return stretches;
}

// Names and addresses of neighbours begin alike: how much, and the rest.
void write_after(WireWriter& out, std::string_view before, std::string_view text) {
  const auto both = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
  const auto alike = static_cast<std::size_t>(both.second - text.begin());
  out.varint(alike).varint(text.size() - alike).raw(text.substr(alike));
}

bool read_after(WireReader& in, std::string_view before, std::string& text) {
  const std::uint64_t alike = in.varint();
  const std::uint64_t rest = in.varint();
  if (in.failed() || alike > before.size()) return false;
  text = before.substr(0, alike);
  text += in.raw(rest);
  return !in.failed();
}

Status wrong(std::string_view what) { return {Code::data_loss, cat("world document: ", what)}; }

Result<std::vector<Stretch>> read_stretches(WireReader& in) {
  constexpr std::uint64_t kMostSlots = std::numeric_limits<int>::max();
  std::vector<Stretch> stretches;
  Stretch before;
  std::uint64_t members = 0;
  std::uint64_t bytes_of_names = 0;
  for (std::uint64_t left = in.varint(); left > 0; --left) {
    Stretch stretch;
    const bool is_whole = read_after(in, before.host, stretch.host) &&
                          read_after(in, before.address, stretch.address);
    const std::uint64_t count = in.varint();
    stretch.count = count >> 1;
    stretch.incarnation = before.next_incarnation();
    if ((count & 1) != 0) {
      stretch.slot = in.varint();
      stretch.incarnation += in.varint();
    }
    if (!is_whole || in.failed())
      return wrong("it ends too early, or a name begins as none before it");
    members += std::min<std::uint64_t>(stretch.count, kMostMembers + 1);
    if (stretch.count == 0) return wrong("a host without a member");
    if (members > kMostMembers) return wrong(cat("it has more than ", kMostMembers, " members"));
    bytes_of_names += stretch.count * (stretch.host.size() + stretch.address.size());
    if (bytes_of_names > kMostBytesOfNames) return wrong("its names are too long");
    if (stretch.slot > kMostSlots - stretch.count) return wrong("a slot is not a number of one");
    before = stretch;
    stretches.push_back(std::move(stretch));
  }
  return stretches;
}

Status check_identities(const WorldDocument& world) {
  std::set<std::pair<std::string_view, int>> places;
  std::set<std::uint64_t> incarnations;
  for (const auto& member : world.members) {
    if (!places.emplace(member.host, member.slot).second) {
      return wrong(cat(printable(member.worker()), " stands in it twice"));
    }
    if (!incarnations.insert(member.incarnation).second) {
      return wrong(cat("two members are of incarnation ", member.incarnation));
    }
  }
  return {};
}

}  // namespace

std::string WorldDocument::encode() const {
  WireWriter out;
  out.str(job_id).u64(generation);
  out.u8(static_cast<std::uint8_t>((state == WorldState::effective ? kIsEffective : 0) |
                                   (last ? kIsLast : 0)));
  const auto stretches = stretches_of(members);
  out.varint(stretches.size());
  Stretch before;
  for (const auto& stretch : stretches) {
    write_after(out, before.host, stretch.host);
    write_after(out, before.address, stretch.address);
    // A difference of unsigned numbers: one that is negative is large, and comes back.
    const std::uint64_t ahead = stretch.incarnation - before.next_incarnation();
    const bool begins_plainly = stretch.slot == 0 && ahead == 0;
    out.varint(stretch.count << 1 | (begins_plainly ? 0 : 1));
    if (!begins_plainly) out.varint(stretch.slot).varint(ahead);
    before = stretch;
  }
  return out.take();
}

Result<WorldDocument> WorldDocument::decode(std::string_view bytes) {
  WireReader in(bytes);
  WorldDocument world;
  world.job_id = in.str();
  world.generation = in.u64();
  const std::uint8_t flags = in.u8();
  if ((flags & ~(kIsEffective | kIsLast)) != 0) return wrong("it has an unknown property");
  world.state = (flags & kIsEffective) != 0 ? WorldState::effective : WorldState::proposed;
  world.last = (flags & kIsLast) != 0;

  const auto stretches = read_stretches(in);
  HVD_RETURN_IF_ERROR(stretches.status());
  HVD_RETURN_IF_ERROR(in.finish("world document"));
  if (stretches->empty()) return wrong("it has no members");
  for (const auto& stretch : *stretches) {
    for (std::uint64_t i = 0; i < stretch.count; ++i) {
      world.members.push_back({.rank = static_cast<int>(world.members.size()),
                               .host = stretch.host,
                               .slot = static_cast<int>(stretch.slot + i),
                               .incarnation = stretch.incarnation + i,
                               .address = stretch.address});
    }
  }
  HVD_RETURN_IF_ERROR(check_identities(world));
  assign_local_and_cross_ranks(world.members);
  return world;
}

const WorldMember* WorldDocument::find(std::uint64_t incarnation) const {
  const auto found = std::find_if(members.begin(), members.end(), [&](const WorldMember& member) {
    return member.incarnation == incarnation;
  });
  return found == members.end() ? nullptr : &*found;
}

}  // namespace hvd
