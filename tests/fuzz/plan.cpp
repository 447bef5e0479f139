#include "tests/fuzz/plan.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "runtime/control/executor.h"
#include "runtime/core/reduce_in_order.h"
#include "runtime/ops/gloo_ops.h"
#include "runtime/ops/peers.h"
#include "runtime/ops/shm_ops.h"
#include "runtime/transport/messenger.h"
#include "tests/fuzz/random.h"
#include "tests/runtime/ops/reference.h"

namespace hvd::fuzz {
namespace {

using runtime::Kind;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kMost = 8 * kMegabyte;  // bytes of one tensor, what all ranks gather included
constexpr int kMostRanks = 8;
constexpr int kMostHosts = 4;

// Makes the plan of one seed, from the world to the splits of its last alltoall.
class Planner {
 public:
  explicit Planner(std::uint64_t seed) : random_(mixed(seed)) { plan_.seed = seed; }

  Plan make() {
    make_world();
    // The bytes of all ranks' tensors together: often few, so that there are many worlds.
    budget_ = random_.one_of<std::size_t>({4, 4, 4, 4, 16, 16, 64, 160}) * kMegabyte;
    const int windows = random_.between(2, 8);
    make_sets(windows);
    for (int window = 0; window < windows; ++window) make_window(window);
    return std::move(plan_);
  }

 private:
  void make_world() {
    WorldPlan& world = plan_.world;
    world.size = random_.percent(5) ? 1 : random_.between(2, kMostRanks);
    world.processes = random_.percent(25);
    if (random_.percent(15)) {
      world.transport = runtime::Transport::gloo_tcp;
    } else {
      world.sockets = random_.between(1, 4);
      world.protection = static_cast<Protection>(random_.between(0, 2));
    }

    const int hosts = random_.between(1, kMostHosts);
    const bool in_turn = random_.percent(50);
    const int shared = random_.between(0, 3);  // no rank, all, those of some hosts, any
    std::vector<bool> host_shares;
    for (int host = 0; host < hosts; ++host) host_shares.push_back(random_.percent(50));
    for (int rank = 0; rank < world.size; ++rank) {
      const int host = in_turn ? rank * hosts / world.size : random_.between(0, hosts - 1);
      world.host.push_back(host);
      world.shares.push_back(shared == 1 ||
                             (shared == 2 && host_shares[static_cast<std::size_t>(host)]) ||
                             (shared == 3 && random_.percent(80)));
    }

    const std::vector<std::optional<bool>> choices{std::nullopt, true, true, false};
    world.hierarchical_allreduce = random_.one_of(choices);
    world.hierarchical_allgather = random_.one_of(choices);
    world.chunk_bytes = random_.one_of<std::size_t>({4 << 10, 12 << 10, 64 << 10, 256 << 10});
    world.fusion_threshold = random_.one_of<std::size_t>({0, 3'000, 100'000, 128 << 20, 128 << 20});
    world.cycle_us = random_.one_of<int>({0, 100, 1'000, 5'000});
    world.cache_capacity = random_.one_of<std::size_t>({0, 3, 1'024, 1'024});
    world.deterministic = random_.percent(20);
    // Measured speeds; some on which size decides; some for which the fewest steps are best; some
    // for which the fewest bytes in the fewest steps are best.
    world.links = random_.one_of<runtime::LinkSpeed>({{},
                                                      {std::chrono::milliseconds(2), 1'000},
                                                      {std::chrono::milliseconds(2), 1'000},
                                                      {std::chrono::seconds(10), 1'000'000},
                                                      {std::chrono::seconds(10), 1}});
  }

  std::vector<int> all_ranks() const {
    std::vector<int> ranks(static_cast<std::size_t>(plan_.world.size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  // A part of the world, never empty and never all of it.
  std::vector<int> some_ranks() {
    auto ranks = all_ranks();
    random_.shuffle(ranks);
    ranks.resize(1 + random_.below(ranks.size() - 1));
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  void make_sets(int windows) {
    plan_.sets.push_back({all_ranks(), SetPlan::kFromTheStart, {}});
    if (plan_.world.size < 2) return;
    for (int wanted = random_.between(0, 4); wanted > 0; --wanted) {
      SetPlan set{some_ranks(), SetPlan::kFromTheStart, {}};
      const bool is_there =
          std::any_of(plan_.sets.begin(), plan_.sets.end(),
                      [&](const SetPlan& known) { return known.ranks == set.ranks; });
      if (is_there) continue;
      if (random_.percent(60)) {
        set.added = random_.between(0, windows - 1);
        if (random_.percent(40)) set.removed = random_.between(set.added + 1, windows);
      }
      plan_.sets.push_back(std::move(set));
    }
  }

  void make_window(int number) {
    Window window;
    window.skewed = random_.percent(30);
    if (plan_.world.size > 1 && random_.percent(10)) window.joined = some_ranks();
    std::vector<std::string> names;
    for (int i = 0; i < 12; ++i) names.push_back(cat("tensor.", i));
    random_.shuffle(names);

    for (int count = random_.between(1, 6); count > 0; --count) {
      // Names are reused, with equal or different properties, to exercise the response cache.
      if (!past_.empty() && window.joined.empty() && random_.percent(30)) {
        CallPlan again = random_.one_of(past_);
        const auto name = std::find(names.begin(), names.end(), again.name);
        if (name != names.end() && plan_.sets[again.set].lives_in(number) && pay(again)) {
          names.erase(name);
          again.number = ++calls_;
          window.calls.push_back(std::move(again));
          continue;
        }
      }
      CallPlan call = make_call(number, window.joined);
      if (!pay(call)) continue;
      call.name = names.back();
      names.pop_back();
      past_.push_back(call);
      window.calls.push_back(std::move(call));
    }
    plan_.windows.push_back(std::move(window));
  }

  CallPlan make_call(int window, const std::vector<int>& joined) {
    CallPlan call;
    call.number = ++calls_;
    std::vector<std::size_t> sets;
    for (std::size_t set = 0; set < plan_.sets.size(); ++set) {
      if (plan_.sets[set].lives_in(window)) sets.push_back(set);
    }
    call.set = joined.empty() && random_.percent(60) ? random_.one_of(sets) : 0;
    call.kind = random_.one_of<Kind>({Kind::allreduce, Kind::allreduce, Kind::allreduce,
                                      Kind::broadcast, Kind::broadcast, Kind::allgather,
                                      Kind::alltoall, Kind::reducescatter, Kind::barrier});
    const std::vector<DataType> types(std::begin(test::kAllTypes), std::end(test::kAllTypes));
    call.type = random_.one_of(types);
    const auto& ranks = plan_.sets[call.set].ranks;
    do {
      call.root = random_.between(0, static_cast<int>(ranks.size()) - 1);
    } while (std::find(joined.begin(), joined.end(), ranks[static_cast<std::size_t>(call.root)]) !=
             joined.end());
    if (call.reduces()) make_reduction(call, joined.empty());
    if (call.kind == Kind::barrier) {
      call.tensors.push_back({std::vector<std::int64_t>(ranks.size()), {}, false, {}});
      return call;
    }

    // A group; tensors that are not packed into one buffer are sent in pieces of their own.
    const bool is_large = random_.percent(6);
    const int tensors = is_large              ? random_.between(8, 30)
                        : random_.percent(25) ? random_.between(2, 6)
                                              : 1;
    bool uneven = false;
    for (int i = 0; i < tensors; ++i) {
      const std::size_t bytes =
          is_large ? runtime::GlooOperationOptions{}.packed_bytes / 2 + random_.below(200'000)
                   : make_bytes(i > 0);
      call.tensors.push_back(make_tensor(call, ranks.size(), bytes));
      uneven = uneven || !call.tensors.back().splits.empty();
    }
    call.in_place = !uneven && random_.percent(40);
    call.in_heap = random_.one_of<InHeap>({InHeap::none, InHeap::most, InHeap::all});
    const bool may_allocate = call.kind == Kind::allgather || call.kind == Kind::alltoall ||
                              call.kind == Kind::reducescatter;
    call.allocated = may_allocate && !call.in_place && random_.percent(50);
    return call;
  }

  void make_reduction(CallPlan& call, bool no_joined) {
    call.op = random_.one_of<ReduceOp>({ReduceOp::average, ReduceOp::sum, ReduceOp::sum,
                                        ReduceOp::min, ReduceOp::max, ReduceOp::product});
    if (call.kind == Kind::allreduce && is_floating_point(call.type) && random_.percent(15)) {
      call.op = ReduceOp::adasum;
      return;
    }
    const bool adds = call.op == ReduceOp::sum || call.op == ReduceOp::average;
    if (call.kind == Kind::allreduce && adds && no_joined && random_.percent(20)) {
      call.leaves = random_.between(1, 3);
      return;
    }
    if (call.op == ReduceOp::product) return;  // with factors it would leave the types' range
    const bool is_wide = size_of(call.type) > 1 || call.type == DataType::boolean;
    if (is_wide && random_.percent(30)) call.prescale = 2;
    if (is_wide && random_.percent(30)) call.postscale = 0.5;
    const bool may_compress = call.type == DataType::float32 || call.type == DataType::float64;
    if (may_compress && random_.percent(40)) {
      call.compression = random_.percent(50) ? Compression::float16 : Compression::bfloat16;
    }
  }

  // Bytes of a tensor: none, few, around a threshold of the code, a little more than whole pieces,
  // or any number.
  std::size_t make_bytes(bool is_little) {
    const int which = random_.between(1, 100);
    if (which <= 20 || (is_little && which <= 60)) return random_.below(200);
    if (which <= 55) {
      const std::size_t limit =
          random_.one_of(limits()) * (random_.percent(30) ? random_.below(8) : 1);
      const std::size_t more = random_.below(random_.one_of<std::size_t>({2, 16, 300}));
      return random_.percent(50) ? limit + more : limit - std::min(limit, more);
    }
    if (which <= 75) return random_.below(8) * runtime::kPieceBytes + random_.below(2'000);
    return random_.up_to(kMost);
  }

  TensorPlan make_tensor(const CallPlan& call, std::size_t ranks, std::size_t bytes) {
    TensorPlan tensor;
    const bool ragged = call.kind == Kind::allgather || call.kind == Kind::alltoall;
    bytes = std::min(bytes, kMost);
    if (call.op == ReduceOp::adasum) bytes %= std::size_t{256} << 10;  // its sum is found slowly
    // The parts of the other ranks count, too.
    if (ragged) bytes /= ranks;
    const std::size_t elements = bytes / size_of(call.type);
    std::int64_t row = 1;
    if (random_.percent(30)) {
      tensor.row.push_back(random_.between(0, 7));
      if (random_.percent(30)) tensor.row.push_back(random_.between(1, 5));
      for (const auto extent : tensor.row) row *= extent;
    }
    const auto rows = static_cast<std::int64_t>(elements) / std::max<std::int64_t>(row, 1);
    tensor.rows.assign(ranks, rows);
    if (elements == 1 && tensor.row.empty() && !ragged && call.kind != Kind::reducescatter) {
      tensor.scalar = random_.percent(50);
    }
    if (call.kind == Kind::allgather) {
      const bool even = random_.percent(30);
      for (auto& own : tensor.rows) {
        if (!even)
          own = static_cast<std::int64_t>(random_.below(static_cast<std::size_t>(rows) + 2));
      }
    } else if (call.kind == Kind::alltoall) {
      make_splits(tensor, rows / static_cast<std::int64_t>(ranks));
    }
    return tensor;
  }

  void make_splits(TensorPlan& tensor, std::int64_t share) {
    const std::size_t ranks = tensor.rows.size();
    if (random_.percent(30)) {
      for (auto& own : tensor.rows) own = share * static_cast<std::int64_t>(ranks);
      return;
    }
    for (auto& own : tensor.rows) {
      std::vector<std::int64_t> splits;
      for (std::size_t to = 0; to < ranks; ++to) {
        const bool none = random_.percent(20);
        splits.push_back(none ? 0
                              : static_cast<std::int64_t>(
                                    random_.below(2 * static_cast<std::size_t>(share) + 2)));
      }
      own = std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) + random_.between(0, 2);
      tensor.splits.push_back(std::move(splits));
    }
  }

  // Whether the plan's remaining budget allows so many bytes.
  bool pay(const CallPlan& call) {
    std::size_t cost = 0;
    for (const auto& tensor : call.tensors) {
      std::int64_t rows = 0;
      for (const auto own : tensor.rows) rows += own;
      std::size_t bytes = static_cast<std::size_t>(rows) * size_of(call.type);
      for (const auto extent : tensor.row) bytes *= static_cast<std::size_t>(extent);
      cost += call.kind == Kind::allgather ? bytes * tensor.rows.size() : bytes;
    }
    if (cost > budget_) return false;
    budget_ -= cost;
    return true;
  }

  Random random_;
  Plan plan_;
  std::size_t budget_ = 0;
  int calls_ = 0;
  std::vector<CallPlan> past_;
};

std::string numbers_text(const std::vector<int>& numbers) {
  std::vector<std::string> texts;
  for (const int number : numbers) texts.push_back(std::to_string(number));
  return cat("{", join(texts, ","), "}");
}

std::string choice_text(const std::optional<bool>& choice) {
  return !choice ? "as it likes" : *choice ? "yes" : "no";
}

std::string tensor_text(const TensorPlan& tensor) {
  const auto shape_of = [&](std::int64_t rows) {
    std::vector<std::int64_t> shape{rows};
    shape.insert(shape.end(), tensor.row.begin(), tensor.row.end());
    return runtime::shape_text(tensor.scalar ? std::vector<std::int64_t>{} : shape);
  };
  const bool same = std::all_of(tensor.rows.begin(), tensor.rows.end(),
                                [&](std::int64_t rows) { return rows == tensor.rows.front(); });
  if (same && tensor.splits.empty()) return shape_of(tensor.rows.front());
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < tensor.rows.size(); ++i) {
    texts.push_back(shape_of(tensor.rows[i]));
    if (!tensor.splits.empty())
      texts.back() += cat(" splits ", runtime::shape_text(tensor.splits[i]));
  }
  return cat("(", join(texts, " | "), ")");
}

}  // namespace

const std::vector<std::size_t>& limits() {
  static const runtime::GlooOperationOptions gloo{};
  static const std::vector<std::size_t> all{
      64,
      512,
      1'024,
      4'096,
      runtime::kReducedAtOnce,
      std::size_t{16} << 10,  // what a connection reads ahead
      runtime::ShmOperationOptions().direct_bytes,
      gloo.direct_bytes,
      gloo.packed_bytes,
      runtime::Executor::kInlineBytes,
      gloo.few_steps_bytes,
      runtime::Messenger::Options().striped_from,
      runtime::kPieceBytes,
      kMost / 2,
  };
  return all;
}

Plan plan_of(std::uint64_t seed) { return Planner(seed).make(); }

std::string links_text(const runtime::LinkSpeed& links) {
  if (links == runtime::LinkSpeed()) return "measured";
  return cat(links.round_trip.count(), " us, ", links.megabytes_per_second, " MB/s");
}

std::string world_text(const Plan& plan) {
  const WorldPlan& world = plan.world;
  std::string sharing;
  for (const bool shares : world.shares) sharing += shares ? '1' : '0';
  std::vector<std::string> sets;
  for (std::size_t i = 1; i < plan.sets.size(); ++i) {
    const auto& set = plan.sets[i];
    sets.push_back(cat(i, " = ", numbers_text(set.ranks),
                       set.added >= 0 ? cat(" from window ", set.added) : "",
                       set.removed ? cat(" until ", *set.removed) : ""));
  }
  return cat(world.size, world.processes ? " processes" : " threads", ", hosts ",
             numbers_text(world.host),
             world.transport == runtime::Transport::hvd
                 ? cat(", hvd with ", world.sockets, " sockets for each pair, protection ",
                       name_of(world.protection))
                 : ", gloo-tcp",
             ", shared memory wanted ", sharing, " in chunks of ", world.chunk_bytes,
             ", by hosts: allreduce ", choice_text(world.hierarchical_allreduce), ", allgather ",
             choice_text(world.hierarchical_allgather), ", fusion up to ", world.fusion_threshold,
             ", cycle ", world.cycle_us, " us, cache ", world.cache_capacity,
             world.deterministic ? ", deterministic" : "", ", links ", links_text(world.links),
             sets.empty() ? "" : cat(", sets ", join(sets, ", ")));
}

std::string call_text(const Plan& plan, const CallPlan& call) {
  std::vector<std::string> tensors;
  for (const auto& tensor : call.tensors) tensors.push_back(tensor_text(tensor));
  std::string text = cat(call.name, ": ", kind_name(call.kind));
  if (call.kind == Kind::barrier) return cat(text, " of set ", call.set);
  if (call.reduces()) text += cat(" ", runtime::op_name(call.op));
  text += cat(" of ", runtime::type_name(call.type), join(tensors, " + "));
  if (call.set != 0) text += cat(" in set ", call.set);
  if (call.kind == Kind::broadcast) {
    text += cat(" from rank ", plan.sets[call.set].ranks[static_cast<std::size_t>(call.root)]);
  }
  if (call.leaves > 0) text += cat(", along a tree of up to ", call.leaves, " leaves of a rank");
  if (call.prescale != 1.0) text += cat(", prescale ", call.prescale);
  if (call.postscale != 1.0) text += cat(", postscale ", call.postscale);
  if (call.compression == Compression::float16) text += ", as float16";
  if (call.compression == Compression::bfloat16) text += ", as bfloat16";
  return cat(text, call.in_place ? ", in place" : "",
             call.in_heap == InHeap::all    ? ", in the heap"
             : call.in_heap == InHeap::most ? ", most in the heap"
                                            : "",
             call.allocated ? ", output allocated" : "");
}

std::string text_of(const Plan& plan) {
  std::string text = world_text(plan) + "\n";
  for (std::size_t i = 0; i < plan.windows.size(); ++i) {
    const Window& window = plan.windows[i];
    if (!window.joined.empty()) {
      text += cat("  window ", i, ": ", numbers_text(window.joined), " have joined\n");
    }
    for (const auto& call : window.calls) {
      text +=
          cat("  window ", i, window.skewed ? " (skewed)" : "", ": ", call_text(plan, call), "\n");
    }
  }
  return text;
}

}  // namespace hvd::fuzz
