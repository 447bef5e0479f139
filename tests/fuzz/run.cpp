#include "tests/fuzz/run.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <future>
#include <gtest/gtest-spi.h>
#include <memory>
#include <memory_resource>
#include <new>
#include <sys/mman.h>
#include <thread>

#include "base/text.h"
#include "tests/fuzz/expected.h"
#include "tests/fuzz/random.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/shm/heap_memory.h"

namespace hvd::fuzz {
namespace {

using runtime::Entry;
using runtime::Kind;
using runtime::Outcome;
using runtime::World;
using test::kLong;

constexpr std::byte kUntouched{0xA5};
constexpr std::size_t kGuard = 64;  // bytes before and behind an output

// The first finding of all ranks, in memory that is shared with ranks in processes of their own.
class FirstFinding {
 public:
  FirstFinding() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    shared_ = new (memory) Shared;
  }
  ~FirstFinding() { ::munmap(shared_, sizeof(Shared)); }
  FirstFinding(const FirstFinding&) = delete;
  FirstFinding& operator=(const FirstFinding&) = delete;

  void tell(int window, int call, const std::string& text) {
    if (shared_->told.exchange(true)) return;
    shared_->window = window;
    shared_->call = call;
    std::strncpy(shared_->text, text.c_str(), sizeof(shared_->text) - 1);
  }
  bool told() const { return shared_->told; }
  std::optional<Finding> get() const {
    if (!told()) return std::nullopt;
    return Finding{shared_->text, shared_->window, shared_->call};
  }

 private:
  struct Shared {
    std::atomic<bool> told = false;
    int window = -1;
    int call = -1;
    char text[2'000] = {};
  };
  Shared* shared_;
};

// One tensor of a call on one rank.
struct Memory {
  explicit Memory(bool in_heap) : output(test::HeapMemory::get(in_heap)) {}

  Bytes input;                          // unused in place
  std::vector<Bytes> more_leaves = {};  // beside the input, which is the first one
  std::pmr::vector<std::byte> output;   // with guards around it
  std::size_t size = 0;                 // of the output proper
  std::byte* begin() { return output.data() + kGuard; }

  void make_output(std::size_t bytes, std::size_t room) {
    size = bytes;
    output.assign(std::max(bytes, room) + 2 * kGuard, kUntouched);
  }
};

// A call that is in flight on one rank.
struct InFlight {
  Expected* expected;
  int position;
  std::vector<Memory> memories;
  std::vector<std::future<Outcome>> outcomes;
};

// The state that all ranks of a process share.
struct Shared {
  const Plan& plan;
  FirstFinding& first;
  std::vector<std::deque<Expected>> expected;  // of each window's calls

  Shared(const Plan& all, FirstFinding& finding) : plan(all), first(finding) {
    for (const auto& window : plan.windows) {
      auto& calls = expected.emplace_back();
      for (const auto& call : window.calls) calls.emplace_back(plan, call, window.joined);
    }
  }
};

class Rank {
 public:
  Rank(Shared& shared, int rank, World& world)
      : shared_(shared), plan_(shared.plan), rank_(rank), world_(world), ids_(plan_.sets.size()) {
    int next = 1;
    for (std::size_t set = 1; set < plan_.sets.size(); ++set) {
      if (plan_.sets[set].added == SetPlan::kFromTheStart) ids_[set] = next++;
    }
  }

  void run() {
    for (int window = 0; window < static_cast<int>(plan_.windows.size()); ++window) {
      window_ = window;
      change_sets();
      run_window(plan_.windows[static_cast<std::size_t>(window)]);
      if (shared_.first.told()) return;
    }
    window_ = -1;
    const auto left = world_.shutdown(Clock::now() + kLong);
    if (!left.ok()) complain(-1, cat("leaving the world: ", left.status.to_string()));
  }

 private:
  // The other ranks stop, too.
  void complain(int call, const std::string& text) {
    shared_.first.tell(window_, call, cat("rank ", rank_, ": ", text));
    world_.abort(Status(Code::aborted, "the fuzzer has found something"));
  }

  std::future<Outcome> submit(Entry entry) { return test::submit(world_, std::move(entry)); }

  // Empty: it did not end in time. Every other wait drives the world's progress, as a program's
  // wait does.
  std::optional<Outcome> outcome_of(std::future<Outcome>& future) {
    if (drives_ = !drives_; drives_) test::progress_until_ready(world_, future);
    if (future.wait_for(kLong) == std::future_status::ready) return future.get();
    complain(-1, "a collective did not end within a minute");
    if (future.wait_for(kLong) == std::future_status::ready) return future.get();
    return std::nullopt;
  }

  Outcome control(Kind kind, const std::string& name, int set_id, const std::vector<int>& ranks) {
    Entry entry;
    entry.request.kind = kind;
    entry.request.name = name;
    entry.request.ranks = ranks;
    entry.request.process_set = set_id;
    auto future = submit(std::move(entry));
    auto outcome = outcome_of(future);
    if (!outcome) return Status(Code::deadline_exceeded, "it did not end");
    if (!outcome->ok()) complain(-1, cat(name, ": ", outcome->failure.status.to_string()));
    return *outcome;
  }

  void change_sets() {
    for (std::size_t set = 1; set < plan_.sets.size(); ++set) {
      const SetPlan& plan = plan_.sets[set];
      if (plan.removed == window_) {
        control(Kind::remove_process_set, cat("remove.", set), ids_[set], {});
      }
      if (plan.added == window_) {
        ids_[set] =
            control(Kind::add_process_set, cat("add.", set), runtime::kGlobalSet, plan.ranks)
                .process_set;
      }
    }
  }

  void run_window(const Window& window) {
    const bool joined =
        std::find(window.joined.begin(), window.joined.end(), rank_) != window.joined.end();
    const auto number = static_cast<std::uint64_t>(window_);
    Random random(mixed(plan_.seed + (number << 32) + static_cast<std::uint64_t>(rank_)));
    if (window.skewed) std::this_thread::sleep_for(std::chrono::microseconds(random.below(5'000)));

    auto& calls = shared_.expected[static_cast<std::size_t>(window_)];
    std::vector<Expected*> own;
    for (auto& expected : calls) {
      if (!joined && expected.position_of(rank_) >= 0) own.push_back(&expected);
    }
    random.shuffle(own);
    std::deque<InFlight> in_flight;
    for (auto* expected : own) begin(*expected, in_flight.emplace_back());
    std::vector<InFlight*> order;
    for (auto& one : in_flight) order.push_back(&one);
    random.shuffle(order);
    for (auto* one : order) end(*one);

    if (!window.joined.empty()) {
      control(Kind::join, std::string(runtime::kJoinName), runtime::kGlobalSet, {});
    }
  }

  // Prepares memory and entries of the call, and enqueues it.
  void begin(Expected& expected, InFlight& one) {
    const CallPlan& call = expected.call();
    one.expected = &expected;
    one.position = expected.position_of(rank_);
    one.memories.reserve(call.tensors.size());  // callbacks refer to them
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      one.memories.emplace_back(call.is_in_heap(one.position));
    }
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      entries.push_back(entry_of(expected, i, one.position, one.memories[i]));
      auto promise = std::make_shared<std::promise<Outcome>>();
      one.outcomes.push_back(promise->get_future());
      entries.back().done = [promise](const Outcome& outcome) { promise->set_value(outcome); };
      entries.back().done_wakes_only = call.number % 2 == 0;
    }

    const std::size_t count = entries.size();
    const auto refused =
        count > 1 ? world_.enqueue(std::move(entries)) : world_.enqueue(std::move(entries.front()));
    if (refused.ok()) return;
    one.outcomes.clear();
    if (!shared_.first.told()) complain(call.number, cat("refused: ", refused.status.to_string()));
  }

  Entry entry_of(const Expected& expected, std::size_t i, int position, Memory& memory) {
    const CallPlan& call = expected.call();
    const TensorPlan& tensor = call.tensors[i];
    Entry entry;
    entry.request.name = call.tensors.size() > 1 ? cat(call.name, ".", i) : call.name;
    entry.request.kind = call.kind;
    entry.request.type = call.type;
    entry.request.op = call.op;
    entry.request.prescale = call.prescale;
    entry.request.postscale = call.postscale;
    entry.request.compression = call.compression;
    entry.request.process_set = ids_[call.set];
    const auto& ranks = plan_.sets[call.set].ranks;
    if (call.kind == Kind::broadcast) {
      entry.request.root = ranks[static_cast<std::size_t>(call.root)];
    }
    if (call.tensors.size() > 1) {
      entry.request.group = call.name;
      entry.request.group_size = static_cast<int>(call.tensors.size());
    }
    if (call.kind == Kind::barrier) return entry;
    entry.request.shape = expected.input_shape(i, position);

    Bytes input = expected.input(i, position);
    const std::size_t size =
        static_cast<std::size_t>(elements_of(expected.output_shape(i, position))) *
        size_of(call.type);
    if (call.in_place) {
      // In an in-place allgather the input lies at its place in the output.
      const std::size_t at =
          call.kind == Kind::allgather ? expected.offset_in_output(i, position) : 0;
      memory.make_output(size, at + input.size());
      std::copy(input.begin(), input.end(), memory.begin() + at);
      entry.input = memory.begin() + at;
    } else {
      memory.input = std::move(input);
      entry.input = memory.input.data();
      if (!call.allocated) memory.make_output(size, size);
    }
    if (call.leaves > 0) give_leaves(expected, i, position, memory, entry);
    entry.output = call.allocated ? nullptr : memory.begin();
    if (call.allocated) {
      entry.allocate = [&memory, type = call.type](const std::vector<std::int64_t>& shape) {
        const std::size_t bytes = static_cast<std::size_t>(elements_of(shape)) * size_of(type);
        memory.make_output(bytes, bytes);
        return static_cast<void*>(memory.begin());
      };
    }
    if (!tensor.splits.empty()) entry.splits = tensor.splits[static_cast<std::size_t>(position)];
    return entry;
  }

  static void give_leaves(const Expected& expected, std::size_t tensor, int position,
                          Memory& memory, Entry& entry) {
    const CallPlan& call = expected.call();
    const test::LeavesOfInputs leaves(expected.active_ranks(), call.leaves);
    runtime::TreeInput input{leaves.tree, {}};
    auto* const first = static_cast<std::byte*>(const_cast<void*>(entry.input));
    for (const auto& leaf : leaves.of_rank[static_cast<std::size_t>(position)]) {
      Bytes bytes = leaf.of(expected.input(tensor, leaf.input), size_of(call.type));
      if (input.leaves.empty()) {
        std::copy(bytes.begin(), bytes.end(), first);
        input.leaves.push_back(first);
      } else {
        input.leaves.push_back(memory.more_leaves.emplace_back(std::move(bytes)).data());
      }
    }
    entry.request.tree = leaves.tree->digest();
    entry.leaves = std::make_shared<const runtime::TreeInput>(std::move(input));
    entry.input = nullptr;
  }

  void end(InFlight& one) {
    const CallPlan& call = one.expected->call();
    for (std::size_t i = 0; i < one.outcomes.size(); ++i) {
      const auto outcome = outcome_of(one.outcomes[i]);
      if (!outcome) std::abort();  // its memory is in use: nothing may go on from here
      if (shared_.first.told()) continue;
      const auto wrong = complaint(one, i, *outcome);
      if (!wrong.empty()) complain(call.number, cat("tensor ", i, ": ", wrong));
    }
  }

  std::string complaint(InFlight& one, std::size_t i, const Outcome& outcome) {
    Expected& expected = *one.expected;
    const CallPlan& call = expected.call();
    if (!outcome.ok()) return outcome.failure.status.to_string();
    if (call.kind == Kind::barrier) return {};
    Memory& memory = one.memories[i];
    const auto shape = expected.output_shape(i, one.position);
    if (outcome.shape != shape) {
      return cat("its shape is ", runtime::shape_text(outcome.shape), ", not ",
                 runtime::shape_text(shape));
    }
    if (call.kind == Kind::alltoall) {
      const auto splits = expected.received_splits(i, one.position);
      if (outcome.received_splits != splits) {
        return cat("the splits received are ", runtime::shape_text(outcome.received_splits),
                   ", not ", runtime::shape_text(splits));
      }
    }
    if (outcome.output != memory.begin()) return "the output lies elsewhere";
    if (auto wrong = expected.complaint(i, one.position, memory.begin()); !wrong.empty()) {
      return wrong;
    }

    const auto is_untouched = [](const std::byte* begin, std::size_t count) {
      return std::all_of(begin, begin + count, [](std::byte byte) { return byte == kUntouched; });
    };
    if (!is_untouched(memory.output.data(), kGuard) ||
        !is_untouched(memory.output.data() + memory.output.size() - kGuard, kGuard)) {
      return "something was written outside of the output";
    }
    if (!call.in_place && memory.input != expected.input(i, one.position)) {
      return "the input was changed";
    }
    return {};
  }

  Shared& shared_;
  const Plan& plan_;
  int rank_;
  World& world_;
  std::vector<int> ids_;  // ids of the sets; 0: not created yet
  int window_ = -1;
  bool drives_ = false;
};

runtime::WorldSpec spec_of(const Plan& plan, int rank) {
  const WorldPlan& world = plan.world;
  auto spec = test::spec_of(rank, world.size);
  for (std::size_t other = 0; other < spec.members.size(); ++other) {
    spec.members[other].host = cat("h", world.host[other]);
    spec.members[other].worker = cat("h", world.host[other], "#", other);
  }
  spec.config.transport = world.transport;
  spec.config.sockets_per_pair = world.sockets;
  spec.config.data_security = world.protection;
  spec.config.shared_memory = world.shares[static_cast<std::size_t>(rank)];
  spec.config.hierarchical_allreduce = world.hierarchical_allreduce;
  spec.config.hierarchical_allgather = world.hierarchical_allgather;
  spec.config.chunk_bytes = world.chunk_bytes;
  spec.config.fusion_threshold = world.fusion_threshold;
  spec.config.cycle_time = std::chrono::microseconds(world.cycle_us);
  spec.config.cache_capacity = world.cache_capacity;
  spec.config.deterministic = world.deterministic;
  spec.config.link_speed = world.links;
  for (std::size_t set = 1; set < plan.sets.size(); ++set) {
    if (plan.sets[set].added == SetPlan::kFromTheStart) {
      spec.process_sets.push_back(plan.sets[set].ranks);
    }
  }
  return spec;
}

}  // namespace

std::optional<Finding> run(const Plan& plan) {
  FirstFinding first;
  Shared shared(plan, first);
  const auto how = plan.world.processes ? test::RanksAs::processes : test::RanksAs::threads;
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter kept(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    test::on_ranks(how, plan.world.size, [&](int rank, runtime::Exchange& exchange) {
      try {
        auto world = World::create(spec_of(plan, rank), exchange);
        if (world.ok()) {
          Rank(shared, rank, **world).run();
        } else {
          first.tell(-1, -1, cat("rank ", rank, ": ", world.status().to_string()));
        }
      } catch (const std::exception& error) {
        first.tell(-1, -1, cat("rank ", rank, ": ", error.what()));
      }
    });
  }
  // A process that has died could not report its finding.
  if (failures.size() > 0) first.tell(-1, -1, failures.GetTestPartResult(0).message());
  return first.get();
}

}  // namespace hvd::fuzz
