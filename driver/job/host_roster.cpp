#include "driver/job/host_roster.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxErrors = 3;  // in one line

const event::FoundHost* find(const HostRoster::Found& hosts, const std::string& name) {
  const auto host = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const auto& one) { return one.host.name == name; });
  return host == hosts.end() ? nullptr : &*host;
}

}  // namespace

// ---- names ----

void HostRoster::name(Found hosts, TimePoint now) {
  is_known_ = true;
  named_ = std::move(hosts);
  find_used_hosts();
  std::erase_if(errors_, [this](const auto& error) { return find_used(error.first) == nullptr; });
  budget_.forget_old(now);
  std::erase_if(counted_slots_, [this](const auto& count) { return is_old(count.first); });
  std::erase_if(slot_errors_, [this](const auto& error) { return is_old(error.first.first); });
}

void HostRoster::joined_agent_is_gone(const std::string& host) {
  std::erase_if(named_, [&](const event::FoundHost& found) {
    return found.joins && found.host.name == host;
  });
  find_used_hosts();
}

void HostRoster::find_used_hosts() {
  used_ = named_;
  std::erase_if(used_, [this](const event::FoundHost& found) {
    return requests_.drained.contains(found.host.name);
  });
}

const event::FoundHost* HostRoster::find_named(const std::string& host) const {
  return find(named_, host);
}

const event::FoundHost* HostRoster::find_used(const std::string& host) const {
  return find(used_, host);
}

bool HostRoster::is_old(const std::string& host) const {
  return !budget_.remembers(host) && !hosts_.current(host) && find_named(host) == nullptr;
}

// ---- requests of people ----

bool HostRoster::drain(const std::string& name) {
  const bool is_new = requests_.drained.insert(name).second;
  find_used_hosts();
  return is_new;
}

void HostRoster::use_again(const std::string& name) {
  requests_.drained.erase(name);
  find_used_hosts();
}

std::string HostRoster::drained_text() const {
  const auto& drained = requests_.drained;
  if (drained.empty()) return {};
  return cat(", ", names_text({drained.begin(), drained.end()}),
             drained.size() == 1 ? " is drained" : " are drained");
}

// ---- slots ----

int HostRoster::slots_of(const HostSlots& host) const {
  int least = 0;
  if (planned_slots_) {
    const auto planned = planned_slots_->find(host.name);
    if (planned != planned_slots_->end()) least = planned->second;
  }
  if (host.slots > 0) return std::max(host.slots, least);
  const auto counted = counted_slots_.find(host.name);
  return std::max(counted == counted_slots_.end() ? 0 : slots_found(host, counted->second), least);
}

int HostRoster::ready_slots(const HostSlots& host, TimePoint now,
                            std::optional<int> without) const {
  const auto current = hosts_.current(host.name);
  if (!current || !hosts_.is_usable(*current) || budget_.rests(host.name, now)) return 0;
  const int all = slots_of(host);
  const auto resting = budget_.resting_slots(host.name, now);
  std::set<int> unused(resting.begin(), resting.end());
  for (const int slot : requests_.drained_slots(host.name)) unused.insert(slot);
  if (without) unused.insert(*without);
  return all - static_cast<int>(std::count_if(unused.begin(), unused.end(),
                                              [&](int slot) { return slot < all; }));
}

int HostRoster::ready_slots(TimePoint now) const {
  int slots = 0;
  for (const auto& found : used_) slots += std::max(ready_slots(found.host, now), 0);
  return slots;
}

std::vector<Room> HostRoster::rooms(TimePoint now) const {
  std::vector<Room> rooms;
  for (const auto& found : used_) {
    const std::string& name = found.host.name;
    const auto current = hosts_.current(name);
    const bool rests = !current || !hosts_.is_usable(*current) || budget_.rests(name, now);
    rooms.push_back({name, slots_of(found.host), rests, budget_.resting_slots(name, now),
                     requests_.drained_slots(name)});
  }
  return rooms;
}

std::optional<int> HostRoster::slots_for_ever(TimePoint now) const {
  int slots = 0;
  // A drained host may be used again.
  for (const auto& found : named_) {
    const std::string& name = found.host.name;
    if (budget_.rest_ends(name) == kNever) continue;
    const int all = slots_of(found.host);
    if (all == 0) return std::nullopt;
    slots += all;
    for (const int slot : budget_.resting_slots(name, now)) {
      if (slot < all && budget_.slot_rest_ends(name, slot) == kNever) --slots;
    }
  }
  return slots;
}

std::string HostRoster::room_text(TimePoint now) const {
  if (!is_known()) return "no host is known yet";
  const auto slots = static_cast<std::size_t>(ready_slots(now));
  const auto ready = std::count_if(used_.begin(), used_.end(), [&](const auto& found) {
    return ready_slots(found.host, now) > 0;
  });
  return cat(counted(slots, "slot"), slots == 1 ? " is" : " are", " ready on ", ready, " of ",
             counted(used_.size(), "host"));
}

// ---- failures ----

const HostError* HostRoster::error_of(const std::string& host) const {
  const auto error = errors_.find(host);
  return error == errors_.end() ? nullptr : &error->second;
}

std::string HostRoster::errors_text(TimePoint now) const {
  std::vector<std::string> parts;
  for (const auto& [name, error] : errors_) {
    if (parts.size() == kMaxErrors) break;
    parts.push_back(cat(name, ": ", name_of(error.step), ": ", error.message));
  }
  std::size_t all = errors_.size();
  for (const auto& [place, how] : slot_errors_) {
    const auto& [host, slot] = place;
    const bool rests = budget_.rests(host, now) || budget_.slot_rest_ends(host, slot) > now;
    if (!rests || find_used(host) == nullptr) continue;
    ++all;
    if (parts.size() < kMaxErrors) {
      parts.push_back(cat(host, "#", slot, " is set aside, since it ", how));
    }
  }
  if (parts.empty()) return {};
  if (all > parts.size()) parts.push_back(cat(all - parts.size(), " more"));
  return cat(" (", join(parts, "; "), ")");
}

}  // namespace hvd::driver
