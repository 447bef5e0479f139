#include "tests/runtime/gpu/host_calls.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/core/arithmetic.h"

namespace hvd::test {

using runtime::gpu::Reduction;
using What = HostCall::What;

namespace {

constexpr std::size_t kHostAlignment = 16;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
}

// In front of a call's input.
struct alignas(kHostAlignment) Header {
  HostCall call;
  std::size_t bytes = 0;
};

ReduceOp op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::product:
      return ReduceOp::product;
    case Reduction::max:
      return ReduceOp::max;
    case Reduction::min:
      return ReduceOp::min;
    default:
      return ReduceOp::sum;
  }
}

std::vector<std::byte> bytes_of(const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

}  // namespace

void HostCalls::operator()() const {
  std::vector<std::string> texts;
  if (!room_->meet(encode(), texts)) return;
  All all;
  for (const auto& text : texts) all.push_back(decode(text));
  std::vector<std::size_t> received(all.size());  // messages from each
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const auto bytes = one(all, i, received);
    if (!bytes.empty()) std::memcpy(calls_[i].out, bytes.data(), bytes.size());
  }
}

std::size_t HostCalls::input_bytes(const HostCall& call) const {
  switch (call.what) {
    case What::all_reduce:
      return call.count * size_of(call.type);
    case What::reduce_scatter:
      return call.count * size_of(call.type) * static_cast<std::size_t>(size_);
    case What::all_gather:
    case What::send:
      return call.count;
    case What::broadcast:
      return call.peer == rank_ ? call.count : 0;
    case What::receive:
      return 0;
  }
  return 0;
}

std::string HostCalls::encode() const {
  std::string text;
  for (const auto& call : calls_) {
    Header header{call, input_bytes(call)};
    const std::size_t at = text.size();
    text.resize(at + sizeof(header) + aligned(header.bytes));
    std::memcpy(text.data() + at, &header, sizeof(header));
    if (header.bytes > 0) std::memcpy(text.data() + at + sizeof(header), call.in, header.bytes);
  }
  return text;
}

std::vector<HostCall> HostCalls::decode(const std::string& text) {
  std::vector<HostCall> calls;
  for (std::size_t at = 0; at < text.size();) {
    Header header;
    std::memcpy(&header, text.data() + at, sizeof(header));
    at += sizeof(header);
    header.call.in = text.data() + at;
    calls.push_back(header.call);
    at += aligned(header.bytes);
  }
  return calls;
}

std::vector<std::byte> HostCalls::one(const All& all, std::size_t i,
                                      std::vector<std::size_t>& received) const {
  const HostCall& own = calls_[i];
  const auto peer = static_cast<std::size_t>(own.peer);
  switch (own.what) {
    case What::all_reduce:
      return reduced(all, i, 0, own.count);
    case What::reduce_scatter:
      return reduced(all, i, static_cast<std::size_t>(rank_) * own.count, own.count);
    case What::all_gather: {
      std::vector<std::byte> result;
      for (const auto& calls : all) {
        const auto part = bytes_of(calls[i].in, own.count);
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    }
    case What::broadcast:
      return bytes_of(all[peer][i].in, own.count);
    case What::send:
      return {};
    case What::receive: {
      auto skip = received[peer]++;
      for (const auto& call : all[peer]) {
        if (call.what != What::send || call.peer != rank_) continue;
        if (skip-- == 0) return bytes_of(call.in, call.count);
      }
      std::abort();  // the library would wait for ever
    }
  }
  return {};
}

std::vector<std::byte> HostCalls::reduced(const All& all, std::size_t i, std::size_t from,
                                          std::size_t count) const {
  const HostCall& own = calls_[i];
  const std::size_t element = size_of(own.type);
  std::vector<std::byte> result(count * element);
  const auto reduce = runtime::reduce_function(own.type, op_of(own.reduction));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto* const in = static_cast<const std::byte*>(all[rank][i].in) + from * element;
    if (rank == 0) {
      std::memcpy(result.data(), in, result.size());
    } else {
      reduce(result.data(), result.data(), in, count);
    }
  }
  if (own.reduction == Reduction::average) {
    runtime::divide(own.type, result.data(), count, static_cast<int>(all.size()));
  }
  return result;
}

}  // namespace hvd::test
