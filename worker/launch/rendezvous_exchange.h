// runtime::Exchange over the rendezvous service: each rank puts its blob into the scope of the
// generation, and reads those of all ranks in one request, which waits until all are there. An
// empty one says that its rank has given up.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client.h"
#include "runtime/control/world.h"

namespace hvd::worker {

class RendezvousExchange final : public runtime::Exchange {
 public:
  // `members`: what they are called in messages, by rank. `first_report`: how long a wait lasts
  // before the lowest rank that is there reports the missing ones; later lines come more rarely. Of
  // zero it says nothing.
  RendezvousExchange(rendezvous::Client& client, std::string scope, int rank,
                     std::vector<std::string> members, std::chrono::milliseconds first_report)
      : client_(client),
        scope_(std::move(scope)),
        rank_(rank),
        members_(std::move(members)),
        first_report_(first_report) {}

  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;
  // For a rank whose exchange has failed before its blob was there: those that wait for it in this
  // scope need not wait any more, and their exchange fails, too.
  static Status withdraw(rendezvous::Client& client, const std::string& scope, int rank);
  // Others may have read this rank's blob, so that this scope cannot be used for another attempt.
  bool announced() const { return announced_; }

 private:
  std::string names_of(const std::vector<std::string>& missing) const;
  bool is_lowest_but(const std::vector<std::string>& missing) const;

  rendezvous::Client& client_;
  std::string scope_;
  int rank_;
  std::vector<std::string> members_;
  std::chrono::milliseconds first_report_;
  bool announced_ = false;
};

}  // namespace hvd::worker
