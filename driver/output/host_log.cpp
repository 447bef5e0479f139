#include "driver/output/host_log.h"

#include <variant>
#include <vector>

#include "base/text.h"

namespace hvd::driver {

std::string host_log_text(const Event& event, const Job& job) {
  const auto host = [&job](HostIndex index) { return cat("host ", job.hosts()[index].name, ": "); };
  if (const auto* const progress = std::get_if<event::HostProgress>(&event)) {
    return cat(host(progress->host), name_of(progress->step));
  }
  if (const auto* const ready = std::get_if<event::AgentReady>(&event)) {
    return cat(host(ready->host), "its agent is ready; it counts ", ready->capacity.cores,
               " cores and ", ready->capacity.gpus, " GPUs");
  }
  if (const auto* const found = std::get_if<event::AddressFound>(&event)) {
    return cat(host(found->host), "the others reach it at ", found->address);
  }
  if (const auto* const chosen = std::get_if<event::AddressesChosen>(&event)) {
    std::vector<std::string> places;
    for (HostIndex index = 0; index < chosen->addresses.size(); ++index) {
      places.push_back(cat(job.hosts()[index].name, " at ", chosen->addresses[index]));
    }
    return cat("the hosts reach each other: ", hvd::join(places, ", "));
  }
  return {};
}

}  // namespace hvd::driver
