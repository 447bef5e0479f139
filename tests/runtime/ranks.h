// Ranks of a test: threads of it, or processes of their own. Where they meet before they are
// connected is an Exchange, whose every round is for all ranks, as often as they like.
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

// The same for a process, through a socket to the test, which answers when all have asked.
class SocketExchange final : public runtime::Exchange {
 public:
  explicit SocketExchange(int fd) : fd_(fd) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;

 private:
  int fd_;
};

enum class RanksAs { threads, processes };

using RankBody = std::function<void(int rank, runtime::Exchange& meeting)>;

// Calls `body` on as many ranks at the same time, and returns when all have ended. Processes are
// forked: they have what the test has made before, and whatever they change is theirs alone, except
// that their failures are failures of the test. Once one of them has failed, ended in another way,
// or left the others alone in a meeting, all are killed. None outlives the call, nor the test.
void on_ranks(RanksAs how, int size, const RankBody& body);

}  // namespace hvd::test
