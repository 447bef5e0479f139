// The join tokens of a running job: each lets agents join instead of the token file, but for a
// while, a number of times, or on one host only. People make them by `hvdrun token`. Their secrets
// derive from the job's key, which every run has anew, so that nothing but their terms and uses is
// kept, and a token is worth nothing in another run.
//
// A token that does not hold any more still proves that its holder was given it: such an agent is
// told why it may not join, where a stranger learns nothing.
//
// The next hvdrun of a job that is kept (--state) has its tokens from to_json(). An agent that has
// joined gets a pass. With it and its token it may join the next hvdrun, which is no use of the
// token, and also when the token does not hold any more.
//
// A value that is handed the time; for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/security/tls_psk.h"
#include "base/status.h"

namespace hvd::driver::join {

struct JoinTokenTerms {
  static constexpr std::uint32_t kMost = 1'000'000'000;  // seconds, and uses

  std::string host;              // the only one that may join by it; empty: any
  std::chrono::seconds time{0};  // that it holds; 0: as long as the job
  std::uint32_t uses = 0;        // agents that may join by it; 0: any number
};

class JoinTokens {
 public:
  // So many are remembered. With one more the oldest that does not hold any more is forgotten: its
  // holder is a stranger then.
  static constexpr std::size_t kMost = 10'000;

  using WallTime = std::chrono::system_clock::time_point;

  // `keep` is called after each change, before anybody hears of it. If it fails, nobody joins by
  // what has not been kept.
  explicit JoinTokens(
      const Token& job_key, std::function<Status()> keep = [] { return Status(); })
      : job_key_(job_key), keep_(std::move(keep)) {}

  // Without secrets. The two times are of one moment.
  std::string to_json(TimePoint now, WallTime wall_time) const;
  // The tokens of a driver that has died, in place of those that are here.
  Status restore(std::string_view json, TimePoint now, WallTime wall_time);

  // resource_exhausted: there are kMost that hold.
  Result<PskKey> make(const JoinTokenTerms& terms, TimePoint now);
  // Nobody joins by it any more; those that have joined stay. not_found: there is no such token.
  Status revoke(std::string_view id);
  // A new one on the terms of an old one, which is revoked.
  Result<PskKey> rotate(std::string_view id, TimePoint now);
  // One line for each, in the order in which they were made.
  std::string to_text(TimePoint now) const;

  // The secret of a token of this job, whether it holds or not.
  std::optional<Token> secret_of(std::string_view id) const;
  bool holds(std::string_view id, TimePoint now) const;
  // permission_denied: an agent of this host may not join by it, and the message says why. `pass`
  // is what the agent has from an earlier driver of the job, if anything.
  Status check(std::string_view id, std::string_view host, std::string_view pass,
               TimePoint now) const;
  // An agent joins that has passed check().
  Status use(std::string_view id, std::string_view host, std::string_view pass);
  // For an agent that joins, and later joins another driver of the job under the same name.
  std::string pass_for(std::string_view id, std::string_view host) const;

 private:
  struct Made {
    JoinTokenTerms terms;
    TimePoint until = kNever;
    std::uint32_t used = 0;
    bool is_revoked = false;
  };

  Made* find(std::string_view id);
  const Made* find(std::string_view id) const;
  void forget_one(TimePoint now);
  // It has joined an earlier driver, and has not come to this one yet.
  bool comes_back(std::string_view id, std::string_view host, std::string_view pass) const;
  static std::string state_of(const Made& token, TimePoint now);

  Token job_key_;
  std::function<Status()> keep_;
  std::map<std::uint32_t, Made> made_;  // by number
  std::uint32_t last_ = 0;
  // Agents that this driver has let join: id and host.
  std::set<std::pair<std::string, std::string>> joined_;
};

}  // namespace hvd::driver::join
