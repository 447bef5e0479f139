#include "driver/metrics/host_metrics.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace hvd::driver {
namespace {

constexpr std::array<std::string_view, kHostOutcomes> kHostOutcomeNames{"left", "lost", "failed"};

// The outcome of the phase that this change of a host's state ends, if it ends one.
std::optional<HostOutcome> outcome_of_move(HostState from, HostState to) {
  if (from == HostState::ready && to == HostState::closing) return HostOutcome::left;
  const bool ends = to == HostState::dropping || to == HostState::gone;
  if (from == HostState::ready && ends) return HostOutcome::lost;
  if (from == HostState::starting && ends) return HostOutcome::failed;
  return std::nullopt;
}

}  // namespace

HostMetrics::HostMetrics(prometheus::Registry& registry)
    : in_state_(
          gauge_family(registry, "hvd_hosts", "Hosts that take part, by the state of their agent."),
          "state", names_of_states<HostState, kLiveStates>()),
      slots_(gauge_family(registry, "hvd_slots", "Slots of the hosts that are ready.").Add({})),
      joined_(counter_family(registry, "hvd_hosts_joined_total", "Hosts that have become ready.")
                  .Add({})),
      ended_(counter_family(registry, "hvd_hosts_ended_total",
                            "Hosts that take no part any more, by why."),
             "outcome", kHostOutcomeNames) {}

void HostMetrics::on_step(const JobStep& step, const NamedByStep& named) {
  seen_.resize(step.job.hosts().size(), HostState::planned);
  for (const HostIndex host : named.hosts) {
    const HostState to = step.job.hosts()[host].state;
    const HostState from = std::exchange(seen_[host], to);
    if (from == to) continue;
    if (to == HostState::ready) joined_.Increment();
    if (const auto outcome = outcome_of_move(from, to)) ended_[*outcome].Increment();
  }
}

void HostMetrics::look(const Job& job) {
  std::array<std::size_t, kLiveStates> counts{};
  int slots = 0;
  for (HostIndex host = 0; host < job.hosts().size(); ++host) {
    const HostState state = job.hosts()[host].state;
    if (state == HostState::ready) slots += job.slots_at(host);
    if (state != HostState::gone) ++counts[static_cast<std::size_t>(state)];
  }
  for (std::size_t state = 0; state < kLiveStates; ++state) {
    in_state_[state].Set(static_cast<double>(counts[state]));
  }
  slots_.Set(slots);
}

}  // namespace hvd::driver
