#include "tests/runtime/gpu/host_gpu.h"

#include <cstring>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "runtime/gpu/element_cast.h"
#include "tests/runtime/gpu/host_calls.h"
#include "tests/runtime/gpu/host_lane.h"

namespace hvd::test {

using runtime::gpu::Communicator;
using runtime::gpu::CopyExtent;
using runtime::gpu::ElementCast;
using runtime::gpu::Gpu;
using runtime::gpu::Identity;
using runtime::gpu::Joining;
using runtime::gpu::Mark;
using runtime::gpu::Reduction;

void* HostGpuMemory::allocate(std::size_t bytes) {
  return ::operator new(std::max<std::size_t>(bytes, 1));
}
void HostGpuMemory::release(void* memory) { ::operator delete(memory); }

HostGpuMemory& HostGpuMemory::plain() {
  static HostGpuMemory only;
  return only;
}

bool HostEvent::State::is_set() const {
  const std::lock_guard lock(mutex_);
  return set_;
}

void HostEvent::State::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return set_; });
}

void HostEvent::State::set() {
  const std::lock_guard lock(mutex_);
  set_ = true;
  changed_.notify_all();
}

namespace {

void pass(const ElementCast& cast, const CopyExtent& extent) {
  if (cast.changes_nothing()) {
    std::memcpy(extent.to, extent.from, extent.elements * size_of(cast.from));
    return;
  }
  const bool known = runtime::gpu::with_types(cast.from, cast.to, [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    for (std::size_t i = 0; i < extent.elements; ++i) {
      From element;
      std::memcpy(&element, static_cast<const From*>(extent.from) + i, sizeof(element));
      const To result = runtime::gpu::cast_element<From, To>(element, cast.factor, cast.divisor);
      std::memcpy(static_cast<To*>(extent.to) + i, &result, sizeof(result));
    }
  });
  if (!known) std::abort();  // no kernel would do it
}

// False for types that the library would refuse, or reduce wrongly.
bool is_native(DataType type, bool adds_float8) {
  if (is_float8(type)) return adds_float8;
  return type != DataType::boolean && type != DataType::uint16 && type != DataType::int16;
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Network& network, const Joining& joining, HostLane& lane,
                   const HostGpuOptions& options)
      : network_(network),
        room_(network.enter(joining.ids.front(), joining.rank, joining.size)),
        rank_(joining.rank),
        size_(joining.size),
        lane_(lane),
        options_(options) {
    ++network_.living;
  }
  ~HostCommunicator() override {
    if (!ended_) --network_.living;
  }

  Status begin() override {
    calls_.clear();
    return {};
  }
  Status end() override {
    lane_.put(HostCalls(std::exchange(calls_, {}), room_, rank_, size_));
    return {};
  }
  Status all_reduce(const void* in, void* out, std::size_t elements, DataType type,
                    Reduction reduction) override {
    return add({HostCall::What::all_reduce, in, out, elements, type, reduction});
  }
  Status reduce_scatter(const void* in, void* out, std::size_t elements, DataType type,
                        Reduction reduction) override {
    ++network_.scattered;
    return add({HostCall::What::reduce_scatter, in, out, elements, type, reduction});
  }
  Status all_gather(const void* in, void* out, std::size_t bytes) override {
    return add({HostCall::What::all_gather, in, out, bytes});
  }
  Status broadcast(const void* in, void* out, std::size_t bytes, int root) override {
    HostCall call{HostCall::What::broadcast, in, out, bytes};
    call.peer = root;
    return add(call);
  }
  Status send(const void* data, std::size_t bytes, int to) override {
    HostCall call{HostCall::What::send, data, nullptr, bytes};
    call.peer = to;
    return add(call);
  }
  Status receive(void* data, std::size_t bytes, int from) override {
    HostCall call{HostCall::What::receive, nullptr, data, bytes};
    call.peer = from;
    return add(call);
  }
  // Not at the first look, as the library's.
  Result<bool> settled() override { return looks_++ % 2 == 1; }

  Status finalize() override {
    ++network_.finalized;
    return {};
  }
  bool can_revoke() const override { return options_.can_revoke; }
  Status revoke() override {
    ++network_.revoked;
    room_->leave();
    return {};
  }
  Status destroy() override {
    --network_.living;
    ended_ = true;
    return {};
  }
  void abort() {
    room_->leave();
    ++network_.aborted;
    --network_.living;
    ended_ = true;
  }

 private:
  Status add(HostCall call) {
    const bool reduces =
        call.what == HostCall::What::all_reduce || call.what == HostCall::What::reduce_scatter;
    if (reduces && !is_native(call.type, options_.adds_float8))
      return {Code::internal, "no type of the library"};
    if (reduces && call.reduction == Reduction::average && call.type < DataType::float16) {
      return {Code::internal, "no average of integers"};
    }
    call.in = options_.memory->reach(call.in);
    call.out = options_.memory->reach(call.out);
    calls_.push_back(call);
    return {};
  }

  Network& network_;
  std::shared_ptr<Room> room_;
  int rank_;
  int size_;
  HostLane& lane_;
  HostGpuOptions options_;
  bool ended_ = false;
  unsigned looks_ = 0;
  std::vector<HostCall> calls_;
};

class HostGpu final : public Gpu {
 public:
  HostGpu(Network& network, int device, int lanes, const HostGpuOptions& options)
      : network_(network), options_(options), lanes_(static_cast<std::size_t>(lanes)) {
    static std::atomic<int> made = 0;
    identity_ = {options.uuid.empty() ? cat("GPU-", ++made) : options.uuid,
                 "a host's memory",
                 cat("0000:0", device, ":00.0"),
                 options.library_version,
                 options.may_share_device,
                 options.adds_float8};
  }

  const Identity& identity() const override { return identity_; }
  Status enter() override { return {}; }
  Result<void*> allocate(int /*lane*/, std::size_t bytes) override {
    void* const memory = options_.memory->allocate(bytes);
    if (memory == nullptr) return Status(Code::resource_exhausted, "the device has no more memory");
    return memory;
  }
  void release(int lane, void* memory) override {
    at(lane).put([all = options_.memory, memory] { all->release(memory); });
  }
  Status copy(int lane, const ElementCast& cast, std::span<const CopyExtent> extents) override {
    std::vector<CopyExtent> all(extents.begin(), extents.end());
    for (auto& extent : all) {
      extent.from = options_.memory->reach(extent.from);
      extent.to = options_.memory->reach(extent.to);
    }
    at(lane).put([cast, all = std::move(all)] {
      for (const auto& extent : all) pass(cast, extent);
    });
    return {};
  }
  Result<void*> allocate_host(std::size_t bytes) override {
    return HostGpuMemory::plain().allocate(bytes);
  }
  void release_host(int lane, void* memory) override {
    at(lane).put([memory] { HostGpuMemory::plain().release(memory); });
  }
  Status transfer(int lane, const void* from, void* to, std::size_t bytes) override {
    at(lane).put([from = options_.memory->reach(from), to = options_.memory->reach(to), bytes] {
      std::memcpy(to, from, bytes);
    });
    return {};
  }
  Status wait_for(int lane, ReadyEvent& event) override {
    const auto* const of_device = dynamic_cast<HostEvent*>(&event);
    if (of_device == nullptr) {
      event.wait();
      return {};
    }
    at(lane).put([state = of_device->state()] { state->wait(); });
    return {};
  }
  Result<Mark> mark(int lane) override {
    auto* const mark = new std::atomic<bool>(false);
    marks_.push_back(std::unique_ptr<std::atomic<bool>>(mark));
    at(lane).put([mark] { *mark = true; });
    return Mark(mark);
  }
  Result<bool> reached(Mark mark) override { return static_cast<std::atomic<bool>*>(mark)->load(); }
  void forget(Mark /*mark*/) override {}
  Status hold(cuda::Stream stream, Mark mark) override {
    reinterpret_cast<std::atomic<Mark>*>(stream)->store(mark);
    return {};
  }
  Result<std::string> new_id() override { return network_.new_id(); }
  Result<std::unique_ptr<Communicator>> join(const Joining& joining) override {
    return std::unique_ptr<Communicator>(
        std::make_unique<HostCommunicator>(network_, joining, at(joining.lane), options_));
  }
  Status abort_together(std::span<Communicator* const> communicators) override {
    for (auto* const one : communicators) static_cast<HostCommunicator*>(one)->abort();
    return {};
  }

 private:
  HostLane& at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }

  Network& network_;
  HostGpuOptions options_;
  Identity identity_;
  std::vector<std::unique_ptr<std::atomic<bool>>> marks_;  // of the executor's thread
  std::deque<HostLane> lanes_;                             // ends first
};

}  // namespace

std::unique_ptr<Gpu> make_host_gpu(Network& network, int device, int lanes,
                                   const HostGpuOptions& options) {
  return std::make_unique<HostGpu>(network, device, lanes, options);
}

}  // namespace hvd::test
