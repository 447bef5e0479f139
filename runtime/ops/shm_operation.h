// What the operations in shared memory have in common; for shm_*_ops.cpp.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/ops/layout.h"
#include "runtime/ops/local_ops.h"
#include "runtime/ops/shm_ops.h"

namespace hvd::runtime {

class ShmOperation : public Operation {
 public:
  ShmOperation(Kind kind, std::string_view name, std::shared_ptr<Host> host)
      : kind_(kind), name_(name), host_(std::move(host)) {}

  std::string_view name() const final { return name_; }
  bool enabled(const Response& response, const Group& group) const final;
  Status execute(const Response& response, const Group& group, std::span<Entry> entries,
                 std::span<Outcome> outcomes) final;
  void abort() final { host_->abort(); }

 protected:
  struct Work {
    const Response& response;
    const Group& group;
    const Active& active;  // at least two ranks, of which this is one
    std::span<Entry> entries;
    std::span<Outcome> outcomes;
  };
  // An error that concerns one tensor goes into its outcome, and no further: the others count on
  // what this rank writes, not on what it reads. May throw what allocators throw.
  virtual Status run(const Work& work, Meeting& meeting) = 0;

 private:
  Kind kind_;
  std::string_view name_;
  std::shared_ptr<Host> host_;
};

// Several stretches of memory as if they lay side by side, counted in elements or bytes. Null: what
// would be written there is not.
template <typename Pointer>
class Strip {
 public:
  void add(Pointer data, std::size_t size) {
    if (size == 0) return;
    pieces_.push_back({data, size_, size});
    size_ += size;
  }
  void clear() {
    pieces_.clear();
    size_ = 0;
  }
  std::size_t size() const { return size_; }

  // Calls f(data, before, from, count) for each piece of [from, to): `count` of what begins at
  // `before` behind `data`; they begin at `from` in the range.
  template <typename F>
  void for_range(std::size_t begin, std::size_t end, F f) const {
    end = std::min(end, size_);
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                  [](std::size_t at, const Piece& p) { return at < p.begin; });
    if (piece != pieces_.begin()) --piece;
    for (std::size_t at = begin; at < end; ++piece) {
      const std::size_t before = at - piece->begin;
      const std::size_t count = std::min(end - at, piece->size - before);
      if (piece->data != nullptr) f(piece->data, before, at - begin, count);
      at += count;
    }
  }

 private:
  struct Piece {
    Pointer data;
    std::size_t begin;
    std::size_t size;
  };
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};
using Inputs = Strip<const std::byte*>;
using Outputs = Strip<std::byte*>;

std::unique_ptr<Operation> make_shm_allreduce(const std::shared_ptr<Host>& host,
                                              const ShmOperationOptions& options);
std::unique_ptr<Operation> make_shm_reducescatter(const std::shared_ptr<Host>& host);
std::unique_ptr<Operation> make_shm_allgather(const std::shared_ptr<Host>& host);
std::unique_ptr<Operation> make_shm_alltoall(const std::shared_ptr<Host>& host);
std::unique_ptr<Operation> make_shm_broadcast(const std::shared_ptr<Host>& host);
std::unique_ptr<Operation> make_shm_barrier(const std::shared_ptr<Host>& host);

}  // namespace hvd::runtime
