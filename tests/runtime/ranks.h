// Ranks of a test, as threads or as processes. They exchange their addresses through an Exchange,
// each round of which is for all ranks; there may be any number of rounds.
#pragma once

#include <functional>

#include "runtime/control/world.h"
#include "tests/runtime/negotiation/hub.h"

namespace hvd::test {

class HubExchange final : public runtime::Exchange {
 public:
  HubExchange(Hub& hub, int rank) : hub_(hub), rank_(rank) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override {
    return hub_.exchange(rank_, blob, deadline);
  }

 private:
  Hub& hub_;
  int rank_;
};

// The same for a process, through a socket to the test, which answers once all ranks have asked.
class SocketExchange final : public runtime::Exchange {
 public:
  explicit SocketExchange(int fd) : fd_(fd) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;

 private:
  int fd_;
};

enum class RanksAs { threads, processes };

using RankBody = std::function<void(int rank, runtime::Exchange& exchange)>;

// Calls `body` on as many ranks at the same time, and returns when all have ended. Processes are
// forked: they see what the test created before, and changes of theirs stay their own, except that
// their failures are failures of the test. Once one of them has failed, has ended in another way,
// or does not take part in an exchange, all are killed. None outlives the call, nor the test.
void on_ranks(RanksAs how, int size, const RankBody& body);

}  // namespace hvd::test
