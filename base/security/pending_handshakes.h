// The connections of an acceptor that have not proved yet that they belong to the job: few, for a
// short time, and never at the cost of those that have proved it. When there are too many, the
// oldest one of the address with the most of them is closed, so that a flood from one place drives
// out itself; an honest client proves itself within milliseconds. Among addresses that have as many
// chance decides, as with sshd's MaxStartups: a stranger with thousands of addresses would
// otherwise know when an honest client is the oldest. Connections that have begun well go last.
//
// A value that is handed the time, and random numbers, if a test has some. `Key` says which
// connection it is; its owner closes it. For one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"

namespace hvd {

// How many connections that have proved nothing an acceptor bears: `most`, and no more than this
// process can spare of the descriptors that it may open (one part in `parts`), so that there are
// always some for the members of the job.
std::size_t pending_limit(std::size_t most, std::size_t parts);

// Where a connection comes from, as far as one party can choose its address: the IPv4 address, or
// the network (/64) of an IPv6 address. Empty for a Unix socket.
std::string origin_of(const void* address);  // a sockaddr
std::string origin_of_peer(int socket);

template <typename Key>
class PendingHandshakes {
 public:
  PendingHandshakes(std::size_t most, Duration time, std::uint64_t seed = std::random_device()())
      : most_(std::max<std::size_t>(most, 1)), time_(time), random_(seed) {}

  std::size_t size() const { return by_key_.size(); }
  std::size_t most() const { return most_; }
  bool contains(const Key& key) const { return by_key_.count(key) != 0; }

  // One more. Returns the one that is to be closed for it and is forgotten here; never `key`.
  std::optional<Key> add(const Key& key, std::string origin, TimePoint now) {
    const std::uint64_t number = next_++;
    by_origin_[origin].emplace(number, Pending{key});
    by_age_.emplace(number, Aged{key, now + time_});
    by_key_.emplace(key, Place{std::move(origin), number});
    return size() > most_ ? evict() : std::nullopt;
  }

  // Only a member of the job is likely to send the bytes that have come on it.
  void note_begun(const Key& key) {
    const auto found = by_key_.find(key);
    if (found != by_key_.end())
      by_origin_[found->second.origin].at(found->second.number).begun = true;
  }

  // It has proved itself, or is gone. False if it was not known.
  bool remove(const Key& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return false;
    const Place place = found->second;
    const auto group = by_origin_.find(place.origin);
    group->second.erase(place.number);
    if (group->second.empty()) by_origin_.erase(group);
    by_age_.erase(place.number);
    by_key_.erase(found);
    return true;
  }

  // Forgets the oldest one of an origin that has most, for instance because no descriptor is left.
  std::optional<Key> evict() {
    std::size_t most = 0;
    for (const auto& [origin, group] : by_origin_) most = std::max(most, group.size());

    // Each candidate replaces the one before it with the chance that makes all of them as likely.
    const Pending* chosen = nullptr;
    std::uint64_t candidates = 0;
    for (const auto& [origin, group] : by_origin_) {
      if (group.size() != most) continue;
      const Pending& candidate = first_to_go(group);
      if (chosen != nullptr && candidate.begun != chosen->begun) {
        if (candidate.begun) continue;
        candidates = 0;
      }
      if (random_() % ++candidates == 0) chosen = &candidate;
    }

    if (chosen == nullptr) return std::nullopt;
    const Key key = chosen->key;
    remove(key);
    return key;
  }

  // Forgets the oldest one if its time is up. To be called until there is none.
  std::optional<Key> take_expired(TimePoint now) {
    if (deadline() > now) return std::nullopt;
    const Key key = by_age_.begin()->second.key;
    remove(key);
    return key;
  }
  // When the next one's time is up.
  TimePoint deadline() const { return by_age_.empty() ? kNever : by_age_.begin()->second.until; }

 private:
  struct Place {
    std::string origin;
    std::uint64_t number = 0;
  };

  struct Pending {
    Key key;
    bool begun = false;
  };
  using Group = std::map<std::uint64_t, Pending>;  // of one origin, the oldest first

  static const Pending& first_to_go(const Group& group) {
    const auto silent =
        std::find_if(group.begin(), group.end(), [](const auto& one) { return !one.second.begun; });
    return (silent == group.end() ? group.begin() : silent)->second;
  }

  struct Aged {
    Key key;
    TimePoint until;
  };

  std::size_t most_;
  Duration time_;
  std::uint64_t next_ = 0;  // the order in which they came
  std::map<Key, Place> by_key_;
  std::map<std::string, Group> by_origin_;
  std::map<std::uint64_t, Aged> by_age_;
  std::mt19937_64 random_;
};

// Counts what may happen very often, so that it is told once in a while, with how often it was.
class CountedWarning {
 public:
  explicit CountedWarning(Duration every = std::chrono::seconds(30)) : every_(every) {}

  // Once more. If it is to be told now: how often it happened since it was told last.
  std::optional<std::size_t> count(TimePoint now) {
    ++untold_;
    if (told_ && now < *told_ + every_) return std::nullopt;
    told_ = now;
    return std::exchange(untold_, 0);
  }

 private:
  Duration every_;
  std::optional<TimePoint> told_;
  std::size_t untold_ = 0;
};

}  // namespace hvd
