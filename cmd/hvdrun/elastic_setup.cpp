#include "cmd/hvdrun/elastic_setup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <string>

#include "base/other_launcher.h"
#include "base/text.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {
namespace {

using std::chrono::milliseconds;

// A static job has no use for these, so that giving one is an error.
constexpr std::array<std::string_view, 18> kElasticOnly{"state-file",
                                                        "state-every",
                                                        "keep-state-in-agents",
                                                        "replace-stragglers",
                                                        "requeue",
                                                        "spares",
                                                        "elastic-timeout",
                                                        "reset-limit",
                                                        "planned-reset-limit",
                                                        "failure-policy",
                                                        "restarts",
                                                        "restarts-forget-after",
                                                        "blacklist-cooldown-range",
                                                        "leave-grace",
                                                        "notice-command",
                                                        "discovery-interval",
                                                        "discovery-timeout",
                                                        "grow-delay"};

Status check_nothing_elastic(const Values& values) {
  for (const auto flag : kElasticOnly) {
    const auto found = values.find(flag);
    if (found == values.end() || found->second.source.starts_with("environment variable")) continue;
    return invalid(cat(found->second.source,
                       ": needs an elastic job: add --host-discovery-script, --min-np, --max-np or "
                       "--max-restarts"));
  }
  return {};
}

// Options that an elastic job cannot have.
Status check_compatible_options(const SettingsReader& settings, const driver::JobSpec& spec,
                                bool discovers) {
  const char* const why = settings.has("host-discovery-script") ? "host-discovery-script"
                          : settings.has("min-np")              ? "min-np"
                          : settings.has("max-np")              ? "max-np"
                                                                : "max-restarts";
  if (spec.legacy_clients) {
    return invalid(cat(settings.name(why), " and ", settings.name("legacy-clients"),
                       ": programs built with Horovod cannot run in an elastic job"));
  }
  if (settings.text("cpu-operations") == "ccl") {
    return invalid(cat(settings.name(why), " and ", settings.name("cpu-operations"), ": ",
                       kNoCclInElasticJobs));
  }
  if (discovers || settings.has("host-discovery-script")) return {};
  for (const std::string_view flag : {"discovery-interval", "discovery-timeout"}) {
    if (!settings.has(flag)) continue;
    return invalid(cat(settings.name(flag), ": there is no --host-discovery-script to run"));
  }
  return {};
}

Result<driver::Limits> limits_of(const SettingsReader& settings, const driver::JobSpec& spec,
                                 const driver::Plan& plan, bool discovers) {
  const int wanted = spec.processes;
  driver::Limits limits;
  const bool may_shrink =
      discovers || settings.has("host-discovery-script") || settings.has("max-np");
  const int whole = wanted > 0 || may_shrink ? wanted : static_cast<int>(plan.members.size());
  limits.least = settings.has("min-np") ? settings.integer("min-np") : std::max(whole, 1);
  limits.spares = settings.integer("spares");
  if (settings.has("max-np")) {
    limits.most = settings.integer("max-np");
  } else if (!settings.has("host-discovery-script")) {
    limits.most = wanted;  // -np workers run, as without --min-np
  }

  if (!plan.members.empty()) {
    const Status least = driver::check_least(limits.least, spec.hosts, plan);
    HVD_RETURN_IF_ERROR(settings.explain("min-np", least));
  }
  return limits;
}

milliseconds to_milliseconds(double seconds) { return milliseconds(std::llround(seconds * 1000)); }

}  // namespace

std::optional<SecondsRange> parse_seconds_range(std::string_view text) {
  const auto middle = text.find_first_of(" ,");
  if (middle == std::string_view::npos) return std::nullopt;
  const auto low = parse_number<double>(trim(text.substr(0, middle)));
  const auto high = parse_number<double>(trim(text.substr(middle + 1)));
  if (!low || !high || !(*low >= 0.001) || !(*low <= *high) || !(*high <= kMaxSeconds)) {
    return std::nullopt;
  }
  return SecondsRange{*low, *high};
}

bool is_elastic(const Values& values) {
  const SettingsReader settings(values);
  return settings.has("host-discovery-script") || settings.has("min-np") ||
         settings.has("max-np") || settings.integer("max-restarts") > 0;
}

Status check_worker_numbers(const Values& values) {
  const SettingsReader settings(values);
  const int wanted = settings.integer("num-proc");  // 0: not given, as the others
  const int least = settings.integer("min-np");
  const int most = settings.integer("max-np");
  if (most > 0 && wanted > most) {
    return invalid(cat(settings.shown("max-np"), " is less than ", settings.shown("num-proc")));
  }
  if (wanted > 0 && least > wanted) {
    return invalid(cat(settings.shown("min-np"), " is more than ", settings.shown("num-proc")));
  }
  if (most > 0 && least > most) {
    return invalid(cat(settings.shown("min-np"), " is more than ", settings.shown("max-np")));
  }
  return {};
}

Result<std::optional<driver::ElasticSpec>> elastic_spec(const Values& values,
                                                        const driver::JobSpec& spec,
                                                        const driver::Plan& plan, bool discovers) {
  const SettingsReader settings(values);
  if (!is_elastic(values)) {
    HVD_RETURN_IF_ERROR(check_nothing_elastic(values));
    return std::optional<driver::ElasticSpec>();
  }
  HVD_RETURN_IF_ERROR(check_compatible_options(settings, spec, discovers));

  HVD_RETURN_IF_ERROR(check_worker_numbers(values));
  auto limits = limits_of(settings, spec, plan, discovers);
  if (!limits.ok()) return limits.status();

  driver::ElasticSpec elastic;
  elastic.limits = *limits;
  elastic.discovery_script = settings.text("host-discovery-script");
  elastic.slots_per_host = settings.integer("slots-per-host");  // 0: not given
  elastic.discovery_interval = settings.seconds("discovery-interval");
  elastic.discovery_timeout = settings.seconds("discovery-timeout");
  elastic.elastic_timeout = settings.seconds("elastic-timeout");
  elastic.leave_grace = settings.seconds("leave-grace");
  elastic.notice_command = settings.text("notice-command");
  elastic.replaces_slow = settings.boolean("replace-stragglers");
  elastic.keeps_state_in_agents = settings.boolean("keep-state-in-agents");
  if (settings.has("reset-limit")) elastic.reset_limit = settings.integer("reset-limit");
  if (settings.has("state-file")) elastic.suspended_by.insert(SIGTERM);
  if (settings.has("max-restarts")) elastic.max_restarts = settings.integer("max-restarts");
  elastic.grow_delay = settings.seconds("grow-delay");
  if (settings.has("planned-reset-limit")) {
    elastic.planned_reset_limit = settings.integer("planned-reset-limit");
  }

  driver::BudgetOptions& budget = elastic.budget;
  budget.restarts = settings.integer("restarts");
  budget.forget_after = settings.seconds("restarts-forget-after");
  if (settings.text("failure-policy") == "host") {
    budget.policy = driver::FailurePolicy::host;
    budget.longest = milliseconds(0);  // as in Horovod, unless a range is given
  }
  if (const auto range = parse_seconds_range(settings.text("blacklist-cooldown-range"))) {
    budget.shortest = to_milliseconds(range->low);
    budget.longest = to_milliseconds(range->high);
  }
  return std::optional(std::move(elastic));
}

}  // namespace hvd::cli
