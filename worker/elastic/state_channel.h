// The exchange between the members of a world about their state: collectives of the world, under
// names of their own, as calls that block. For any thread of the program; each name is in flight
// once at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/control/world.h"

namespace hvd::worker {

class StateChannel {
 public:
  // The world must outlive it.
  explicit StateChannel(runtime::World& world) : world_(world) {}
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }

  // The records of all ranks, in their order; all are of the same size. An error if some ranks have
  // joined.
  runtime::Failure gather(const std::string& name, std::string_view record,
                          std::vector<std::string>& all);
  // The root's bytes, in the same memory.
  runtime::Failure broadcast(const std::string& name, int root, std::span<std::byte> bytes);
  // The same in memory of the CUDA device on which this rank works. `meanwhile` is done while they
  // are on their way; it must not throw.
  runtime::Failure broadcast_on(int device, const std::string& name, int root,
                                std::span<std::byte> bytes,
                                const std::function<void()>& meanwhile = {});
  // splits[r] of `from` go to rank r; what comes lies in `into`, in the order of ranks, and has
  // exactly its size. `meanwhile`: as above.
  runtime::Failure scatter(const std::string& name, std::span<const std::byte> from,
                           std::vector<std::int64_t> splits, std::span<std::byte> into,
                           const std::function<void()>& meanwhile = {});
  runtime::Failure barrier(const std::string& name);
  // Ends the world, for this reason; returns why it has ended.
  runtime::Failure give_up(const Status& why);

 private:
  runtime::Outcome run(runtime::Entry entry, const std::function<void()>& meanwhile = {});

  runtime::World& world_;
};

}  // namespace hvd::worker
