#include "tests/runtime/host_gpu.h"

#include <cstring>

#include "runtime/arithmetic.h"
#include "runtime/gpu/passage.h"

namespace hvd::test {

using runtime::gpu::Communicator;
using runtime::gpu::Gpu;
using runtime::gpu::Identity;
using runtime::gpu::Joining;
using runtime::gpu::Mark;
using runtime::gpu::Passage;
using runtime::gpu::Reduction;
using runtime::gpu::Stretch;

bool Fabric::Room::meet(int rank, const void* mine, std::vector<const void*>& all) {
  std::unique_lock lock(mutex_);
  const auto round = round_;
  const auto own = static_cast<std::size_t>(rank);
  left_[own] = mine;
  if (!broken_ && ++here_ == size_) {
    complete_ = left_;
    here_ = 0;
    ++round_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return round_ != round || gone_[own]; });
  if (round_ == round) return false;
  all = complete_;
  return true;
}

void Fabric::Room::meet_again() {
  std::unique_lock lock(mutex_);
  const auto round = round_;
  if (++here_ == size_) {
    here_ = 0;
    ++round_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return round_ != round; });
}

void Fabric::Room::leave(int rank) {
  const std::lock_guard lock(mutex_);
  broken_ = true;
  gone_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
}

std::string Fabric::new_id() {
  const std::lock_guard lock(mutex_);
  std::string id = cat("room ", ++ids_);
  id.resize(128);
  return id;
}

std::shared_ptr<Fabric::Room> Fabric::room(const std::string& id, int size) {
  const std::lock_guard lock(mutex_);
  auto& room = rooms_[id];
  if (!room) room = std::make_shared<Room>(size);
  return room;
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

// What is put into it is done in that order, by a thread of its own.
class Lane {
 public:
  Lane() : thread_([this] { work(); }) {}
  ~Lane() {
    put(nullptr);
    thread_.join();
  }
  void put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !waiting_.empty(); });
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::thread thread_;
};

void pass(const Passage& passage, const Stretch& stretch) {
  if (passage.changes_nothing()) {
    std::memcpy(stretch.to, stretch.from, stretch.elements * size_of(passage.from));
    return;
  }
  const bool known = runtime::gpu::with_types(passage.from, passage.to, [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    for (std::size_t i = 0; i < stretch.elements; ++i) {
      From element;
      std::memcpy(&element, static_cast<const From*>(stretch.from) + i, sizeof(element));
      const To result =
          runtime::gpu::pass_element<From, To>(element, passage.factor, passage.divisor);
      std::memcpy(static_cast<To*>(stretch.to) + i, &result, sizeof(result));
    }
  });
  if (!known) std::abort();  // no kernel would do it
}

struct Call {
  enum class What { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
  What what;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements of reductions, else bytes
  DataType type = DataType::uint8;
  Reduction reduction = Reduction::sum;
  int peer = 0;
};
using Calls = std::vector<Call>;

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

// One group of calls of one member, in its lane.
class Group {
 public:
  Group(std::shared_ptr<Calls> calls, std::shared_ptr<Fabric::Room> room, int rank)
      : calls_(std::move(calls)), room_(std::move(room)), rank_(rank) {}

  // All members come with the same calls, but for who sends to whom.
  void operator()() const {
    std::vector<const void*> met;
    if (!room_->meet(rank_, calls_.get(), met)) return;
    std::vector<const Calls*> all;
    for (const auto* calls : met) all.push_back(static_cast<const Calls*>(calls));
    std::vector<std::pair<void*, std::vector<std::byte>>> results;
    std::vector<std::size_t> received(all.size());  // messages from each
    for (std::size_t i = 0; i < calls_->size(); ++i) {
      results.emplace_back((*calls_)[i].out, one(all, i, received));
    }
    // Nobody writes what others still read.
    room_->meet_again();
    for (const auto& [out, bytes] : results) {
      if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    }
    // And nobody goes on before all have written.
    room_->meet_again();
  }

 private:
  std::vector<std::byte> one(const std::vector<const Calls*>& all, std::size_t i,
                             std::vector<std::size_t>& received) const {
    const Call& own = (*calls_)[i];
    const auto bytes_of = [](const void* data, std::size_t bytes) {
      const auto* const begin = static_cast<const std::byte*>(data);
      return std::vector<std::byte>(begin, begin + bytes);
    };
    switch (own.what) {
      case Call::What::all_reduce:
        return reduced(all, i, 0, own.count);
      case Call::What::reduce_scatter:
        return reduced(all, i, static_cast<std::size_t>(rank_) * own.count, own.count);
      case Call::What::all_gather: {
        std::vector<std::byte> result;
        for (const auto* calls : all) {
          const auto part = bytes_of((*calls)[i].in, own.count);
          result.insert(result.end(), part.begin(), part.end());
        }
        return result;
      }
      case Call::What::broadcast:
        return bytes_of((*all[static_cast<std::size_t>(own.peer)])[i].in, own.count);
      case Call::What::send:
        return {};
      case Call::What::receive: {
        auto skip = received[static_cast<std::size_t>(own.peer)]++;
        for (const auto& call : *all[static_cast<std::size_t>(own.peer)]) {
          if (call.what != Call::What::send || call.peer != rank_) continue;
          if (skip-- == 0) return bytes_of(call.in, call.count);
        }
        std::abort();  // the library would wait for ever
      }
    }
    return {};
  }

  std::vector<std::byte> reduced(const std::vector<const Calls*>& all, std::size_t i,
                                 std::size_t from, std::size_t count) const {
    const Call& own = (*calls_)[i];
    const std::size_t element = size_of(own.type);
    std::vector<std::byte> result(count * element);
    const auto reduce = runtime::reduce_function(own.type, op_of(own.reduction));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const auto* const in = static_cast<const std::byte*>((*all[rank])[i].in) + from * element;
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

  std::shared_ptr<Calls> calls_;
  std::shared_ptr<Fabric::Room> room_;
  int rank_;
};

// What the library would refuse, or do wrong.
bool is_native(DataType type, bool adds_float8) {
  if (is_float8(type)) return adds_float8;
  return type != DataType::boolean && type != DataType::uint16 && type != DataType::int16;
}

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Fabric& fabric, const Joining& joining, Lane& lane,
                   const HostGpuOptions& options)
      : fabric_(fabric),
        room_(fabric.room(joining.ids.front(), joining.size)),
        rank_(joining.rank),
        lane_(lane),
        options_(options) {
    ++fabric_.living;
  }
  ~HostCommunicator() override {
    if (!ended_) --fabric_.living;
  }

  Status begin() override {
    calls_ = std::make_shared<Calls>();
    return {};
  }
  Status end() override {
    lane_.put(Group(std::move(calls_), room_, rank_));
    return {};
  }
  Status all_reduce(const void* in, void* out, std::size_t elements, DataType type,
                    Reduction reduction) override {
    return add({Call::What::all_reduce, in, out, elements, type, reduction});
  }
  Status reduce_scatter(const void* in, void* out, std::size_t elements, DataType type,
                        Reduction reduction) override {
    ++fabric_.scattered;
    return add({Call::What::reduce_scatter, in, out, elements, type, reduction});
  }
  Status all_gather(const void* in, void* out, std::size_t bytes) override {
    return add({Call::What::all_gather, in, out, bytes});
  }
  Status broadcast(const void* in, void* out, std::size_t bytes, int root) override {
    Call call{Call::What::broadcast, in, out, bytes};
    call.peer = root;
    return add(call);
  }
  Status send(const void* data, std::size_t bytes, int to) override {
    Call call{Call::What::send, data, nullptr, bytes};
    call.peer = to;
    return add(call);
  }
  Status receive(void* data, std::size_t bytes, int from) override {
    Call call{Call::What::receive, nullptr, data, bytes};
    call.peer = from;
    return add(call);
  }
  // Not at the first look, as the library's.
  Result<bool> settled() override { return looks_++ % 2 == 1; }

  Status finalize() override {
    ++fabric_.finalized;
    return {};
  }
  bool can_revoke() const override { return options_.can_revoke; }
  Status revoke() override {
    ++fabric_.revoked;
    room_->leave(rank_);
    return {};
  }
  Status destroy() override {
    --fabric_.living;
    ended_ = true;
    return {};
  }
  void abort() {
    room_->leave(rank_);
    ++fabric_.aborted;
    --fabric_.living;
    ended_ = true;
  }

 private:
  Status add(Call call) {
    const bool reduces =
        call.what == Call::What::all_reduce || call.what == Call::What::reduce_scatter;
    if (reduces && !is_native(call.type, options_.adds_float8))
      return {Code::internal, "no type of the library"};
    if (reduces && call.reduction == Reduction::average && call.type < DataType::float16) {
      return {Code::internal, "no average of integers"};
    }
    calls_->push_back(call);
    return {};
  }

  Fabric& fabric_;
  std::shared_ptr<Fabric::Room> room_;
  int rank_;
  Lane& lane_;
  HostGpuOptions options_;
  bool ended_ = false;
  unsigned looks_ = 0;
  std::shared_ptr<Calls> calls_;
};

class HostGpu final : public Gpu {
 public:
  HostGpu(Fabric& fabric, int device, int lanes, const HostGpuOptions& options)
      : fabric_(fabric), options_(options), lanes_(static_cast<std::size_t>(lanes)) {
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
    return ::operator new(std::max<std::size_t>(bytes, 1));
  }
  void release(int lane, void* memory) override {
    at(lane).put([memory] { ::operator delete(memory); });
  }
  Status copy(int lane, const Passage& passage, std::span<const Stretch> stretches) override {
    at(lane).put([passage, all = std::vector<Stretch>(stretches.begin(), stretches.end())] {
      for (const auto& stretch : all) pass(passage, stretch);
    });
    return {};
  }
  Result<void*> allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  void release_host(int lane, void* memory) override { release(lane, memory); }
  Status transfer(int lane, const void* from, void* to, std::size_t bytes) override {
    at(lane).put([=] { std::memcpy(to, from, bytes); });
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
  Status hold(void* stream, Mark mark) override {
    static_cast<std::atomic<Mark>*>(stream)->store(mark);
    return {};
  }
  Result<std::string> new_id() override { return fabric_.new_id(); }
  Result<std::unique_ptr<Communicator>> join(const Joining& joining) override {
    return std::unique_ptr<Communicator>(
        std::make_unique<HostCommunicator>(fabric_, joining, at(joining.lane), options_));
  }
  Status abort_together(std::span<Communicator* const> communicators) override {
    for (auto* const one : communicators) static_cast<HostCommunicator*>(one)->abort();
    return {};
  }

 private:
  Lane& at(int lane) { return lanes_[static_cast<std::size_t>(lane)]; }

  Fabric& fabric_;
  HostGpuOptions options_;
  Identity identity_;
  std::vector<std::unique_ptr<std::atomic<bool>>> marks_;  // of the executor's thread
  std::deque<Lane> lanes_;                                 // ends first
};

}  // namespace

std::unique_ptr<Gpu> make_host_gpu(Fabric& fabric, int device, int lanes,
                                   const HostGpuOptions& options) {
  return std::make_unique<HostGpu>(fabric, device, lanes, options);
}

}  // namespace hvd::test
