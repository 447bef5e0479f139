// How the members of a world find each other: through the rendezvous service, one write and one
// blocking bulk read each. For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/client.h"
#include "runtime/world.h"

namespace hvd::worker {

class RendezvousExchange final : public runtime::Exchange {
 public:
  // `scope` is the same on all members and never used twice.
  RendezvousExchange(rendezvous::Client& client, std::string scope, int rank, int size)
      : client_(client), scope_(std::move(scope)), rank_(rank), size_(size) {}

  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;

 private:
  rendezvous::Client& client_;
  std::string scope_;
  int rank_;
  int size_;
};

}  // namespace hvd::worker
