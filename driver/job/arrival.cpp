#include "driver/job/arrival.h"

#include <algorithm>
#include <cstddef>

#include "base/text.h"

namespace hvd::driver {
namespace {

bool reached(const Try& one, std::size_t target) {
  return target < one.answer.errors.size() && one.answer.errors[target].empty();
}

bool has_tried(const Try& one) { return one.answer.failure.empty() && !one.answer.errors.empty(); }

// The number of tries that reach this target; 0 if a required one does not.
std::ptrdiff_t count_reaching(const std::vector<Try>& tries, std::size_t target) {
  const bool is_refused = std::any_of(tries.begin(), tries.end(), [&](const Try& one) {
    return one.has_to_reach && has_tried(one) && !reached(one, target);
  });
  if (is_refused) return 0;
  return std::count_if(tries.begin(), tries.end(),
                       [&](const Try& one) { return reached(one, target); });
}

std::string errors_of(const std::vector<agent_link::ProbeTarget>& targets,
                      const ProbeAnswer& answer) {
  if (!answer.failure.empty()) return answer.failure;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < targets.size() && i < answer.errors.size(); ++i) {
    const std::string& error = answer.errors[i];
    const bool named = error.find(targets[i].address) != std::string::npos;
    parts.push_back(named ? error : cat(targets[i].address, ": ", error));
  }
  return join(parts, "; ");
}

}  // namespace

Result<std::vector<std::string>> of_one_family(std::vector<std::string> candidates,
                                               const std::string& in_use) {
  if (in_use.empty()) return candidates;
  const std::string all = join(candidates, ", ");
  std::erase_if(candidates, [&](const auto& one) { return is_v6(one) != is_v6(in_use); });
  if (!candidates.empty()) return candidates;
  return Status(Code::not_found,
                cat("it has no ", is_v6(in_use) ? "IPv6" : "IPv4",
                    " address, by which the job's workers reach each other; it has ", all));
}

std::vector<agent_link::ProbeTarget> targets_of_others(const Arrival& arrival) {
  std::vector<agent_link::ProbeTarget> targets;
  if (arrival.host.probe_port == 0) return targets;
  for (const auto& address : arrival.candidates) {
    targets.push_back({address, arrival.host.probe_port, arrival.host.probe_greeting});
  }
  return targets;
}

std::vector<agent_link::ProbeTarget> targets_of_itself(const Arrival& arrival) {
  std::vector<agent_link::ProbeTarget> targets;
  for (const auto& endpoint : arrival.endpoints)
    targets.push_back({endpoint.host, endpoint.port, ""});
  return targets;
}

bool is_enough(const std::optional<ProbeAnswer>& own, const std::vector<Try>& tries) {
  if (!own) return false;
  const auto answered = [](const Try& one) {
    return !one.answer.failure.empty() || !one.answer.errors.empty();
  };
  if (std::all_of(tries.begin(), tries.end(), answered)) return true;
  const bool waits = std::any_of(tries.begin(), tries.end(), [&](const Try& one) {
    return one.has_to_reach && !answered(one);
  });
  if (waits) return false;
  return std::any_of(tries.begin(), tries.end(), [](const Try& one) { return reached(one, 0); });
}

Result<ArrivalChoice> choose_arrival(const Arrival& arrival, const ProbeAnswer& own,
                                     const std::vector<Try>& tries) {
  ArrivalChoice choice;
  // The endpoint of this machine.
  std::size_t endpoint = arrival.endpoints.size();
  for (std::size_t i = arrival.endpoints.size(); i-- > 0;) {
    const bool good = i < own.errors.size() && own.errors[i].empty();
    if (good && (arrival.here.empty() || arrival.endpoints[i].host == arrival.here)) endpoint = i;
  }
  if (endpoint == arrival.endpoints.size()) {
    return Status(Code::unavailable,
                  cat(arrival.here.empty() ? "this machine cannot be reached from it: "
                                           : cat("the workers on this machine, at ", arrival.here,
                                                 ", cannot be reached from it: "),
                      errors_of(targets_of_itself(arrival), own),
                      "; --network-interface or --advertise-address choose another address"));
  }
  choice.rendezvous = arrival.endpoints[endpoint];

  // The address of the new host. One that could not even try has an error of its own.
  const auto targets = targets_of_others(arrival);
  const bool tried = std::any_of(tries.begin(), tries.end(), has_tried);
  choice.address = arrival.candidates.front();
  if (targets.empty() || !tried) return choice;
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto count = count_reaching(tries, i);
    if (count <= most) continue;
    most = count;
    choice.address = targets[i].address;
  }
  if (most > 0) return choice;
  auto first = std::find_if(tries.begin(), tries.end(),
                            [](const Try& one) { return one.has_to_reach && has_tried(one); });
  if (first == tries.end()) first = std::find_if(tries.begin(), tries.end(), has_tried);
  return Status(Code::unavailable, cat("no address of it can be reached from ", first->who, ": ",
                                       errors_of(targets, first->answer), kChooseAnother));
}

}  // namespace hvd::driver
