// Collectives between simulated GPUs: the calls that one member groups, as bytes that it brings to
// a Room, and the results of the bytes of all members.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/gpu/gpu.h"
#include "tests/runtime/gpu/host_network.h"

namespace hvd::test {

struct HostCall {
  enum class What { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
  What what = What::all_reduce;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements of reductions, else bytes
  DataType type = DataType::uint8;
  runtime::gpu::Reduction reduction = runtime::gpu::Reduction::sum;
  int peer = 0;
};

// One group of calls of one member, to be put into its lane.
class HostCalls {
 public:
  HostCalls(std::vector<HostCall> calls, std::shared_ptr<Room> room, int rank, int size)
      : calls_(std::move(calls)), room_(std::move(room)), rank_(rank), size_(size) {}

  // All members come with the same calls, except for senders and receivers.
  void operator()() const;

 private:
  using All = std::vector<std::vector<HostCall>>;
  std::size_t input_bytes(const HostCall& call) const;
  std::string encode() const;
  // Their inputs lie in `text`.
  static std::vector<HostCall> decode(const std::string& text);
  std::vector<std::byte> one(const All& all, std::size_t i,
                             std::vector<std::size_t>& received) const;
  std::vector<std::byte> reduced(const All& all, std::size_t i, std::size_t from,
                                 std::size_t count) const;

  std::vector<HostCall> calls_;
  std::shared_ptr<Room> room_;
  int rank_;
  int size_;
};

}  // namespace hvd::test
