// The parts that the operations in shared memory have in common; for shm_*_ops.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/ops/layout.h"
#include "runtime/ops/local_ops.h"
#include "runtime/ops/scatter_list.h"
#include "runtime/ops/shm_ops.h"

namespace hvd::runtime {

class ShmOperation : public Operation {
 public:
  ShmOperation(Kind kind, std::string_view name, std::shared_ptr<ShmGroup> host)
      : kind_(kind), name_(name), host_(std::move(host)) {}

  std::string_view name() const final { return name_; }
  bool enabled(const Response& response, const Group& group) const final;
  Status execute(const Response& response, const Group& group, const Entries& entries,
                 std::span<Outcome> outcomes) final;
  bool gives_notice() const final { return true; }
  void abort() final { host_->abort(); }

 protected:
  struct Work {
    const Response& response;
    const Group& group;
    const Active& active;  // at least two ranks, of which this is one
    const Entries& entries;
    std::span<Outcome> outcomes;
  };
  // An error that concerns one tensor goes into its outcome, and no further: the others count on
  // what this rank writes, not on what it reads. May throw what allocators throw.
  virtual Status run(const Work& work, ShmCollective& collective) = 0;

 private:
  Kind kind_;
  std::string_view name_;
  std::shared_ptr<ShmGroup> host_;
};

// So many elements, rounded up to a multiple of kReduceGrain.
std::size_t whole_grains(std::size_t count);

// Which of `count` elements the rank at that position reduces for all.
struct Share {
  std::size_t begin;
  std::size_t end;
};
Share share_of(const ShmCollective& collective, int rank, std::size_t count);

std::unique_ptr<Operation> make_shm_allreduce(const std::shared_ptr<ShmGroup>& host,
                                              const ShmOperationOptions& options);
std::unique_ptr<Operation> make_shm_reducescatter(const std::shared_ptr<ShmGroup>& host);
std::unique_ptr<Operation> make_shm_allgather(const std::shared_ptr<ShmGroup>& host);
std::unique_ptr<Operation> make_shm_alltoall(const std::shared_ptr<ShmGroup>& host);
std::unique_ptr<Operation> make_shm_broadcast(const std::shared_ptr<ShmGroup>& host);
std::unique_ptr<Operation> make_shm_barrier(const std::shared_ptr<ShmGroup>& host);

}  // namespace hvd::runtime
