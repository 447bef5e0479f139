// The join tokens of a running job: each lets agents join instead of the token file, but for a
// while, a number of times, or on one host only. People make them by `hvdrun token`. Their secrets
// derive from the job's key, which every run has anew, so that nothing but their terms is kept, and
// a token is worth nothing in another run.
//
// A token that does not hold any more still proves that its holder was given it: such an agent is
// told why it may not join, where a stranger learns nothing.
//
// A value that is handed the time; for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

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

  explicit JoinTokens(const Token& job_key) : job_key_(job_key) {}

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
  // permission_denied: an agent of this host may not join by it, and the message says why.
  Status check(std::string_view id, std::string_view host, TimePoint now) const;
  // An agent has joined by it.
  void use(std::string_view id);

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
  static std::string state_of(const Made& token, TimePoint now);

  Token job_key_;
  std::map<std::uint32_t, Made> made_;  // by number
  std::uint32_t last_ = 0;
};

}  // namespace hvd::driver::join
