// The coordinator's half of the negotiation: requests of all ranks in, one total order of responses
// out. A pure state machine: no clock, socket or thread inside. Lives on rank 0, for one thread.
//
// A tensor is ready once every rank has asked for it. If the ranks agree about it, it waits in line
// to be batched with others; if they do not, an error that names both sides takes its place, in the
// same order on every rank, and the world goes on.
//
// While rank 0's executor has enough to do, ready tensors gather, and that is what fills a batch:
// one batch runs, one waits behind it, the rest is still here and may be joined. After `cycle_time`
// a tensor may go all the same, as long as no more than kMaxAhead batches are under way.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/fusion.h"
#include "runtime/request.h"

namespace hvd::runtime {

class Coordinator {
 public:
  static constexpr int kEnoughAhead = 2;
  static constexpr int kMaxAhead = 4;

  // `hosts[rank]` is named in errors.
  Coordinator(std::vector<std::string> hosts, std::size_t fusion_threshold, Duration cycle_time);

  // What `rank` is ready for. An error means that this rank does not keep to the protocol.
  Status submit(int rank, std::vector<Request> requests, TimePoint now);
  // No more requests of `rank` will come: what others still wait for with it can never be.
  void leave(int rank, TimePoint now);
  bool has_left(int rank) const { return left_[static_cast<std::size_t>(rank)]; }
  bool all_left() const { return left_count_ == size(); }

  // What all ranks are to run next, in this order; `under_way` batches of former calls are not done
  // yet on rank 0.
  std::vector<Response> poll(TimePoint now, int under_way);
  // When to poll again although nothing has arrived and no batch has ended.
  TimePoint next_poll(int under_way) const;
  // Tensors that wait for some rank.
  std::size_t incomplete() const { return table_.size(); }

 private:
  struct Row {
    std::vector<std::optional<Request>> by_rank;
    int count = 0;
  };
  int size() const { return static_cast<int>(hosts_.size()); }
  std::string who(int rank) const;
  Status disagreement(const Row& row) const;
  void complete(Row row, TimePoint now);
  void fail_for_left(Row row, int rank, TimePoint now);

  std::vector<std::string> hosts_;
  std::size_t fusion_threshold_;
  Duration cycle_time_;
  std::unordered_map<std::string, Row> table_;
  std::deque<Ready> ready_;
  std::vector<bool> left_;
  int left_count_ = 0;
};

}  // namespace hvd::runtime
