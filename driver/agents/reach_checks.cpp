#include "driver/agents/reach_checks.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace hvd::driver {
namespace {

using BrokenWays = std::map<ReachChecks::Way, std::string>;

// The host without which most hosts reach each other again; of several the newest, so that rank 0
// stays where it is. Nothing: no way is broken.
std::optional<HostIndex> host_to_rest(const BrokenWays& ways) {
  std::map<HostIndex, std::set<HostIndex>> missed;
  for (const auto& [way, error] : ways) {
    missed[way.from].insert(way.to);
    missed[way.to].insert(way.from);
  }
  std::optional<HostIndex> choice;
  std::size_t most = 0;
  for (const auto& [host, others] : missed) {
    if (others.size() < most) continue;
    most = others.size();
    choice = host;
  }
  return choice;
}

}  // namespace

ReachChecks::ReachChecks(boost::asio::io_context& io, Limits limits, OnLost on_lost)
    : limits_(limits), on_lost_(std::move(on_lost)), reports_timer_(io), answers_timer_(io) {}

void ReachChecks::begin(const Way& way, const Probes& probes) {
  if (ways_.empty()) {
    takes_reports_ = true;
    reports_timer_.begin(limits_.reports, [this] {
      takes_reports_ = false;
      choose_if_complete();
    });
  }
  ways_.try_emplace(way);
  pending_[probes.attempt] = {way, way.from};
  pending_[probes.ping] = {way, way.to};
  answers_timer_.begin(limits_.answers, [this] { remove_silent_hosts(); });
}

void ReachChecks::on_answer(std::uint32_t probe, const std::string& error) {
  const auto pending = pending_.find(probe);
  if (pending == pending_.end()) return;
  if (!error.empty()) ways_[pending->second.way] = error;
  pending_.erase(pending);
  choose_if_complete();
}

void ReachChecks::forget(HostIndex host) {
  remove(host);
  choose_if_complete();
}

void ReachChecks::remove(HostIndex host) {
  std::erase_if(ways_, [host](const auto& way) { return way.first.touches(host); });
  std::erase_if(pending_, [host](const auto& probe) { return probe.second.way.touches(host); });
}

void ReachChecks::remove_silent_hosts() {
  while (!pending_.empty()) remove(pending_.begin()->second.agent);
  choose_if_complete();
}

void ReachChecks::choose_if_complete() {
  if (takes_reports_ || !pending_.empty()) return;
  answers_timer_.cancel();
  // The round is over before the first call of on_lost_, which may forget hosts.
  BrokenWays broken = std::exchange(ways_, {});
  std::erase_if(broken, [](const auto& way) { return way.second.empty(); });

  std::vector<std::tuple<HostIndex, Way, std::string>> lost;
  while (const auto host = host_to_rest(broken)) {
    const auto is_of_host = [host](const auto& way) { return way.first.touches(*host); };
    const auto& [way, error] = *std::find_if(broken.begin(), broken.end(), is_of_host);
    lost.emplace_back(*host, way, error);
    std::erase_if(broken, is_of_host);
  }
  for (const auto& [host, way, error] : lost) on_lost_(host, way, error);
}

}  // namespace hvd::driver
