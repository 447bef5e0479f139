#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "rendezvous/access.h"
#include "rendezvous/client.h"
#include "worker/launch/launcher_store.h"
#include "worker/launch/rendezvous_exchange.h"

namespace hvd::worker {
namespace {

constexpr std::chrono::hours kLongestWait{24};
constexpr const char* kTokenFile = "./hvd-token";
constexpr std::chrono::milliseconds kSilent{0};  // until somebody is reported missing

class RendezvousStore final : public LauncherStore {
 public:
  RendezvousStore(SocketAddress where, const Token& token, std::string run, int rank, int size)
      : where_(std::move(where)), token_(token), run_(std::move(run)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // That of the world goes nowhere, and each run has another one.
  std::optional<Token> token() const override {
    return *Token::from_bytes(as_view(Mac(token_)({"hvd world", run_})));
  }

  Result<std::vector<std::string>> gather(std::string_view value, TimePoint deadline) override {
    // A scope is never used twice, also not by another store of this process.
    static std::atomic<int> gathers{0};
    const std::string scope = cat("launch.", run_, '.', ++gathers);
    rendezvous::Client client(client_options(deadline), token_);
    HVD_RETURN_IF_ERROR(claim_rank(client, scope));
    std::vector<std::string> members;
    for (int rank = 0; rank < size_; ++rank) members.push_back(cat("rank-", rank));
    RendezvousExchange exchange(client, scope, rank_, std::move(members), kSilent);
    return exchange.exchange(value, deadline);
  }

 private:
  // If two processes have the same rank, another rank is missing, and all would wait for it.
  Status claim_rank(rendezvous::Client& client, const std::string& scope) const {
    const std::string key = cat("claim-", rank_);
    const std::string own = to_hex(random_bytes(Token::kSize));
    const auto claimed = client.compare_and_set(scope, key, own, 0);
    if (claimed.status().code() != Code::already_exists) {
      return claimed.status().with_context(cat("claim rank ", rank_));
    }

    // The answer to an earlier try of this process may have been lost.
    const auto holder = client.get(scope, key);
    if (holder.ok() && holder->value == own) return {};
    return {Code::already_exists, cat("rank ", rank_, " is taken in run \"", run_,
                                      "\": another process has the same rank, or ", kRunIdVariable,
                                      " names an earlier run")};
  }

  // The service may come as late as the processes.
  rendezvous::ClientOptions client_options(TimePoint deadline) const {
    const auto left = std::min<Duration>(deadline - Clock::now(), kLongestWait);
    rendezvous::ClientOptions options{.host = where_.host, .port = where_.port};
    options.request_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(left);
    return options;
  }

  const SocketAddress where_;
  const Token token_;
  const std::string run_;
  const int rank_;
  const int size_;
};

}  // namespace

bool has_rendezvous(const EnvironmentLookup& lookup) {
  return !lookup(kRendezvousVariable).value_or("").empty();
}

Result<std::unique_ptr<LauncherStore>> open_rendezvous_store(const EnvironmentLookup& lookup,
                                                             const OtherLaunch& launch) {
  const auto where = rendezvous::parse_bind_address(lookup(kRendezvousVariable).value_or(""));
  HVD_RETURN_IF_ERROR(where.status().with_context(std::string(kRendezvousVariable)));
  const auto token = rendezvous::load_token(lookup(kTokenFileVariable).value_or(kTokenFile));
  HVD_RETURN_IF_ERROR(token.status().with_context(std::string(kTokenFileVariable)));
  if (!launch.size) {
    return Status(Code::failed_precondition,
                  cat(launch.launcher, " does not say how many processes there are"));
  }
  if (launch.rank >= *launch.size) {
    return Status(Code::invalid_argument,
                  cat("rank ", launch.rank, " must be below the size ", *launch.size));
  }
  const std::string run = lookup(kRunIdVariable).value_or(launch.run);
  if (run.empty()) {
    return Status(Code::failed_precondition,
                  cat(kRunIdVariable,
                      " is not set: a name of this run, another one for each, since the service "
                      "may still hold what an earlier run has said"));
  }
  return std::unique_ptr<LauncherStore>(
      std::make_unique<RendezvousStore>(*where, *token, run, launch.rank, *launch.size));
}

}  // namespace hvd::worker
