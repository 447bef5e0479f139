#include "tests/fuzz/shrink.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace hvd::fuzz {
namespace {

constexpr int kTries = 4;

class Shrinker {
 public:
  Shrinker(const Plan& plan, const Finding& finding, TimePoint deadline)
      : deadline_(deadline), best_{plan, finding} {}

  Shrunk shrink() {
    bool smaller = true;
    while (smaller) {
      smaller = false;
      for (const auto& pass :
           {&Shrinker::drop_windows, &Shrinker::drop_calls, &Shrinker::drop_tensors,
            &Shrinker::make_world_usual, &Shrinker::make_calls_usual, &Shrinker::drop_last_rank,
            &Shrinker::drop_elements}) {
        smaller = (this->*pass)() || smaller;
      }
    }
    return best_;
  }

 private:
  // Whether there is still a finding after the change; if so, the change is kept.
  bool try_it(const std::function<void(Plan& plan)>& change) {
    Plan plan = best_.plan;
    change(plan);
    for (int i = 0; i < kTries && Clock::now() < deadline_; ++i) {
      ++best_.runs;
      if (auto finding = run(plan)) {
        best_.finding = *finding;
        best_.plan = std::move(plan);
        return true;
      }
    }
    return false;
  }

  bool drop_windows() {
    bool smaller = false;
    for (std::size_t i = best_.plan.windows.size(); i-- > 0;) {
      if (best_.plan.windows[i].calls.empty()) continue;
      smaller |= try_it([&](Plan& plan) { plan.windows[i] = {}; });
    }
    return smaller;
  }

  bool drop_calls() {
    bool smaller = false;
    for (std::size_t w = 0; w < best_.plan.windows.size(); ++w) {
      for (std::size_t i = best_.plan.windows[w].calls.size(); i-- > 0;) {
        if (best_.plan.windows[w].calls.size() == 1) break;
        smaller |= try_it([&](Plan& plan) {
          auto& calls = plan.windows[w].calls;
          calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
        });
      }
    }
    return smaller;
  }

  // The same change for each call, one by one, where `applies`.
  bool change_calls(const std::function<bool(CallPlan&)>& change) {
    bool smaller = false;
    for (std::size_t w = 0; w < best_.plan.windows.size(); ++w) {
      for (std::size_t i = 0; i < best_.plan.windows[w].calls.size(); ++i) {
        CallPlan changed = best_.plan.windows[w].calls[i];
        if (!change(changed)) continue;
        smaller |= try_it([&](Plan& plan) { plan.windows[w].calls[i] = changed; });
      }
    }
    return smaller;
  }

  bool drop_tensors() {
    return change_calls([](CallPlan& call) {
      if (call.tensors.size() == 1) return false;
      call.tensors.pop_back();
      return true;
    });
  }

  bool make_world_usual() {
    using Change = std::function<void(WorldPlan&)>;
    const std::vector<Change> changes{
        [](WorldPlan& world) { world.processes = false; },
        [](WorldPlan& world) { world.sockets = 1; },
        [](WorldPlan& world) { world.protection = Protection::none; },
        [](WorldPlan& world) { world.sockets = std::min(world.sockets, 2); },
        [](WorldPlan& world) { world.shares.assign(world.shares.size(), false); },
        [](WorldPlan& world) { world.host.assign(world.host.size(), 0); },
        [](WorldPlan& world) { world.hierarchical_allreduce = std::nullopt; },
        [](WorldPlan& world) { world.hierarchical_allgather = std::nullopt; },
        [](WorldPlan& world) { world.chunk_bytes = WorldPlan().chunk_bytes; },
        [](WorldPlan& world) { world.fusion_threshold = WorldPlan().fusion_threshold; },
        [](WorldPlan& world) { world.cycle_us = WorldPlan().cycle_us; },
        [](WorldPlan& world) { world.cache_capacity = WorldPlan().cache_capacity; },
        [](WorldPlan& world) { world.deterministic = false; },
        [](WorldPlan& world) { world.links = {}; },
    };
    bool smaller = false;
    for (const auto& change : changes) {
      Plan changed = best_.plan;
      change(changed.world);
      if (world_text(changed) == world_text(best_.plan)) continue;
      smaller |= try_it([&](Plan& plan) { change(plan.world); });
    }
    for (std::size_t i = 0; i < best_.plan.windows.size(); ++i) {
      if (best_.plan.windows[i].joined.empty()) continue;
      smaller |= try_it([&](Plan& plan) { plan.windows[i].joined.clear(); });
    }
    return smaller;
  }

  bool make_calls_usual() {
    const auto usual = [](auto CallPlan::*member) {
      return [member](CallPlan& call) {
        if (call.*member == CallPlan().*member) return false;
        call.*member = CallPlan().*member;
        return true;
      };
    };
    bool smaller = change_calls(usual(&CallPlan::compression));
    smaller |= change_calls(usual(&CallPlan::prescale));
    smaller |= change_calls(usual(&CallPlan::postscale));
    smaller |= change_calls(usual(&CallPlan::in_place));
    smaller |= change_calls(usual(&CallPlan::in_heap));
    smaller |= change_calls(usual(&CallPlan::allocated));
    smaller |= change_calls(usual(&CallPlan::op));
    return smaller | change_calls(usual(&CallPlan::type));
  }

  // Removes the rank from the world, its sets, and every call.
  static bool remove_last_rank(Plan& plan) {
    const int last = --plan.world.size;
    plan.world.host.pop_back();
    plan.world.shares.pop_back();
    std::vector<bool> was_member;
    for (auto& set : plan.sets) {
      was_member.push_back(set.ranks.back() == last);
      if (was_member.back()) set.ranks.pop_back();
      if (set.ranks.empty()) return false;
    }
    for (auto& window : plan.windows) {
      std::erase(window.joined, last);
      for (auto& call : window.calls) {
        if (!was_member[call.set]) continue;
        if (call.root == static_cast<int>(plan.sets[call.set].ranks.size())) call.root = 0;
        for (auto& tensor : call.tensors) {
          tensor.rows.pop_back();
          if (tensor.splits.empty()) continue;
          tensor.splits.pop_back();
          for (auto& splits : tensor.splits) splits.pop_back();
        }
      }
    }
    return true;
  }

  bool drop_last_rank() {
    bool smaller = false;
    while (best_.plan.world.size > 1 && Clock::now() < deadline_) {
      Plan fewer = best_.plan;
      if (!remove_last_rank(fewer) || !try_it([&](Plan& plan) { plan = fewer; })) break;
      smaller = true;
    }
    return smaller;
  }

  // Halves all tensors as long as the finding remains.
  bool drop_elements() {
    return change_calls([](CallPlan& call) {
      bool changed = false;
      for (auto& tensor : call.tensors) {
        if (call.kind == runtime::Kind::alltoall || tensor.rows.front() < 2) continue;
        for (auto& rows : tensor.rows) rows = (rows + 1) / 2;
        changed = true;
      }
      return changed;
    });
  }

  TimePoint deadline_;
  Shrunk best_;
};

}  // namespace

Shrunk shrink(const Plan& plan, const Finding& finding, TimePoint deadline) {
  return Shrinker(plan, finding, deadline).shrink();
}

}  // namespace hvd::fuzz
