#include "driver/journal/journal_json.h"

#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/printable.h"
#include "base/text.h"

using Json = nlohmann::json;

namespace nlohmann {

// Counts of its unit.
template <typename Count, typename Unit>
struct adl_serializer<std::chrono::duration<Count, Unit>> {
  static void to_json(Json& json, const std::chrono::duration<Count, Unit>& time) {
    json = time.count();
  }
  static void from_json(const Json& json, std::chrono::duration<Count, Unit>& time) {
    const auto count = json.get<Count>();
    // Beyond a few decades sums of times would overflow.
    constexpr std::chrono::seconds kMost{900'000'000};
    if (count < 0 ||
        count > std::chrono::duration_cast<std::chrono::duration<Count, Unit>>(kMost).count()) {
      throw std::invalid_argument(std::to_string(count) + " is not a valid time");
    }
    time = std::chrono::duration<Count, Unit>(count);
  }
};

// Null without a value.
template <typename Value>
struct adl_serializer<std::optional<Value>> {
  static void to_json(Json& json, const std::optional<Value>& value) {
    json = value ? Json(*value) : Json();
  }
  static void from_json(const Json& json, std::optional<Value>& value) {
    value.reset();
    if (!json.is_null()) value = json.get<Value>();
  }
};

}  // namespace nlohmann

// The conversions stand in the namespaces of their types, where the library looks for them.
namespace hvd {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Capacity, gpus, cores)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorldMember, rank, host, slot, incarnation, address, local_rank,
                                   local_size, cross_rank, cross_size)

static void to_json(Json& json, const WorldDocument& world) { json = Json::parse(world.to_json()); }

}  // namespace hvd

namespace hvd::driver {

// ---- enumerations, by name ----

template <typename Enum, std::size_t count>
struct Names {
  std::array<std::pair<Enum, std::string_view>, count> all;

  std::string_view of(Enum value) const {
    for (const auto& [one, name] : all) {
      if (one == value) return name;
    }
    throw std::invalid_argument("a value without a name");
  }
  Enum called(const Json& json) const {
    const auto wanted = json.get<std::string>();
    for (const auto& [one, name] : all) {
      if (name == wanted) return one;
    }
    throw std::invalid_argument(cat(quoted(wanted), " is unknown"));
  }
};

static constexpr Names<FailurePolicy, 2> kPolicies{
    {{{FailurePolicy::slot, "slot"}, {FailurePolicy::host, "host"}}}};
static constexpr Names<action::Say::To, 3> kSayTargets{{{{action::Say::To::verbose, "verbose"},
                                                         {action::Say::To::notice, "notice"},
                                                         {action::Say::To::warning, "warning"}}}};

static void to_json(Json& json, FailurePolicy policy) { json = kPolicies.of(policy); }
static void from_json(const Json& json, FailurePolicy& policy) { policy = kPolicies.called(json); }

static void to_json(Json& json, Step step) { json = name_of(step); }
static void from_json(const Json& json, Step& step) {
  const auto wanted = json.get<std::string>();
  for (auto one = Step::resolve; one <= Step::run_workers;
       one = static_cast<Step>(static_cast<int>(one) + 1)) {
    if (name_of(one) == wanted) {
      step = one;
      return;
    }
  }
  throw std::invalid_argument(cat("no step is called ", quoted(wanted)));
}

// ---- values ----

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostSlots, name, slots, max_slots, destination, user, port,
                                   advertise_address)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostError, step, message, exit_code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FailedHost, name, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Limits, least, most, spares)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BudgetOptions, policy, restarts, forget_after, shortest, longest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlanRequest, hosts, processes, oversubscribe)
// A field that is new is missing in journals of before.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ElasticOptions, limits, processes, budget,
                                                reset_limit, planned_reset_limit, max_restarts,
                                                grow_delay, elastic_timeout, leave_grace,
                                                loss_gather, leave_gather, join_gather, jitter_seed,
                                                plan_list, hosts_are_fixed, oversubscribe,
                                                suspends_when_all_go, replaces_slow,
                                                keeps_state_in_agents)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobOptions, job_id, pace, grace, start_timeout, gather_time,
                                   heartbeat_timeout, orphan_timeout, init_timeout, local_hosts,
                                   stop_margin, kill_timeout, close_timeout, drop_timeout, elastic)

static void to_json(Json& json, const JobFailure& failure) {
  json = {{"rank", failure.rank},  {"host", failure.host},   {"slot", failure.slot},
          {"pid", failure.pid},    {"cause", failure.cause}, {"incarnation", failure.incarnation},
          {"hosts", failure.hosts}};
}

// ---- events ----

namespace event {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostProgress, host, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentReady, host, capacity)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFailed, host, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AddressesChosen, addresses)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Heard, host)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Unserved, host)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentGone, host, how)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentBroken, host, how)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Launched, host, incarnation, pid, kept)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LaunchFailed, host, incarnation, error_number, message)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Initialised, host, incarnation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Done, host, incarnation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Exited, host, incarnation, exit_code, signal_number, core_dumped,
                                   out_of_memory, memory_limit, kept)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FoundHost, host, local, joins)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostsFound, hosts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DiscoveryFailed, message)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AddressFound, host, address, rendezvous)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostLeaves, host, is_notice, left)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerReady, host, incarnation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LeaveRequested, host, incarnation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorkerLeft, host, incarnation, reason, for_good)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Described, host, incarnation, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Committed, host, incarnation, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Saving, host, incarnation, total, written, is_in_place)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WorldEntered, generation, slowest, leave, wait, connect, vote,
                                   sync, step, received, redone)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FoundSlow, host, incarnation, is_slow)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StopRequested, signal_number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SuspendRequested, signal_number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DrainRequested, host_name, undo)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ScaleRequested, size)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Resumed, stopped)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TakenOver, epoch, without_driver)
static void to_json(Json& json, const Quiet::Word& word) { json = {word.host, word.ago}; }
static void from_json(const Json& json, Quiet::Word& word) {
  if (json.size() != 2) throw std::invalid_argument("a host and a time are expected");
  json.at(0).get_to(word.host);
  json.at(1).get_to(word.ago);
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quiet, heard, unserved)

}  // namespace event

// ---- actions ----

namespace action {

static void to_json(Json& json, const PublishWorld& action) {
  json = {{"world", action.world}, {"why", action.why}};
}
static void to_json(Json& json, const VoidCommits& action) {
  json = {{"generation", action.generation}};
}
static void to_json(Json& json, const StartAgent& action) { json = {{"host", action.host}}; }
static void to_json(Json& json, const FindAddress& action) { json = {{"host", action.host}}; }
static void to_json(Json& json, const Launch& action) {
  json = {{"host", action.host}, {"member", action.member}};
}
static void to_json(Json& json, const StopWorkers& action) {
  json = {{"host", action.host},
          {"incarnation", action.incarnation},
          {"grace", action.grace},
          {"reason", action.reason}};
}
static void to_json(Json& json, const KillWorkers& action) {
  json = {{"host", action.host}, {"incarnation", action.incarnation}};
}
static void to_json(Json& json, const DescribeWorker& action) {
  json = {{"host", action.host}, {"incarnation", action.incarnation}};
}
static void to_json(Json& json, const ShutDownAgent& action) {
  json = {{"host", action.host}, {"exit_code", action.exit_code}};
}
static void to_json(Json& json, const DropAgent& action) { json = {{"host", action.host}}; }
static void to_json(Json& json, const Say& action) {
  json = {{"to", kSayTargets.of(action.to)}, {"text", action.text}};
}
static void to_json(Json& json, const Answer& action) {
  json = {{"accepted", action.accepted}, {"text", action.text}};
}
static void to_json(Json& json, const Finish& action) {
  json = {{"exit_code", action.exit_code},
          {"failure", action.failure},
          {"reason", action.reason},
          {"suspended", action.suspended}};
}

}  // namespace action

namespace {

// ---- by their names ----

// In the order of the variants.
constexpr std::array<std::string_view, std::variant_size_v<Event>> kEvents{"begin",
                                                                           "host_progress",
                                                                           "agent_ready",
                                                                           "host_failed",
                                                                           "addresses_chosen",
                                                                           "heard",
                                                                           "unserved",
                                                                           "agent_gone",
                                                                           "agent_broken",
                                                                           "launched",
                                                                           "launch_failed",
                                                                           "initialised",
                                                                           "done",
                                                                           "exited",
                                                                           "hosts_found",
                                                                           "discovery_failed",
                                                                           "address_found",
                                                                           "host_leaves",
                                                                           "worker_ready",
                                                                           "leave_requested",
                                                                           "worker_left",
                                                                           "described",
                                                                           "committed",
                                                                           "saving",
                                                                           "world_entered",
                                                                           "found_slow",
                                                                           "stop_requested",
                                                                           "suspend_requested",
                                                                           "drain_requested",
                                                                           "scale_requested",
                                                                           "resumed",
                                                                           "taken_over",
                                                                           "quiet",
                                                                           "tick"};
constexpr std::array<std::string_view, std::variant_size_v<Action>> kActions{"publish_world",
                                                                             "start_agent",
                                                                             "choose_addresses",
                                                                             "plan_stands",
                                                                             "find_address",
                                                                             "void_commits",
                                                                             "launch",
                                                                             "stop_workers",
                                                                             "kill_workers",
                                                                             "describe_worker",
                                                                             "shut_down_agent",
                                                                             "drop_agent",
                                                                             "say",
                                                                             "answer",
                                                                             "finish"};
static_assert(!kEvents.back().empty() && !kActions.back().empty(), "each one has a name");

template <typename Value>
Json fields_of(const Value& value) {
  if constexpr (std::is_empty_v<Value>) {
    return Json::object();
  } else {
    return Json(value);
  }
}

template <typename Value>
Value value_from(const Json& json) {
  if constexpr (std::is_empty_v<Value>) {
    return {};
  } else {
    return json.get<Value>();
  }
}

template <typename Variant>
Json json_of_one(const Variant& value, std::string_view kind, std::string_view name,
                 const std::vector<JobHost>& hosts) {
  Json json = std::visit([](const auto& one) { return fields_of(one); }, value);
  json[std::string(kind)] = name;
  if (const auto host = json.find("host"); host != json.end()) {
    const auto index = host->get<HostIndex>();
    if (index < hosts.size()) json["host_name"] = hosts[index].name;
  }
  return json;
}

template <std::size_t index = 0>
Event event_called(std::string_view name, const Json& json) {
  if constexpr (index == kEvents.size()) {
    throw std::invalid_argument(cat("no event is called ", quoted(name)));
  } else {
    if (kEvents[index] != name) return event_called<index + 1>(name, json);
    return value_from<std::variant_alternative_t<index, Event>>(json);
  }
}

// A fraction that no integer holds must not be converted to one, which the library does without
// looking.
void check_fractions(const Json& json) {
  constexpr double kMost = 0x1p53;
  if (json.is_number_float() && !(std::abs(json.get<double>()) <= kMost)) {
    throw std::invalid_argument("a number is too large");
  }
  if (!json.is_structured()) return;
  for (const auto& part : json) check_fractions(part);
}

// Calls `read`, whose exceptions are errors of the text.
template <typename Read>
auto exceptions_as_status(const char* what, Read read) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const std::exception& error) {
    return Status(Code::data_loss, cat(what, ": ", printable(error.what())));
  }
}

}  // namespace

Json json_of(const Event& event, const std::vector<JobHost>& hosts) {
  return json_of_one(event, "event", kEvents[event.index()], hosts);
}

Result<Event> event_from(const Json& json) {
  return exceptions_as_status("it is not an event of a job", [&] {
    check_fractions(json);
    const auto name = json.at("event").get<std::string>();
    Event event = event_called(name, json);
    // A number that did not fit is another one now.
    const Json read = json_of(event, {});
    for (const auto& [field, value] : read.items()) {
      if (json.at(field) != value) throw std::invalid_argument(cat(quoted(field), " is wrong"));
    }
    return event;
  });
}

Json json_of(const Action& action, const std::vector<JobHost>& hosts) {
  return json_of_one(action, "action", kActions[action.index()], hosts);
}

Json json_of(const JobStart& start) {
  Json json{{"options", start.options}};
  if (const auto* const members = std::get_if<std::vector<WorldMember>>(&start.workers)) {
    json["members"] = *members;
  } else if (const auto* const request = std::get_if<PlanRequest>(&start.workers)) {
    json["plan"] = *request;
  }
  return json;
}

Result<JobStart> job_start_from(const Json& json) {
  return exceptions_as_status("it is not the beginning of a job", [&] {
    check_fractions(json);
    JobStart start;
    json.at("options").get_to(start.options);
    if (json.contains("members")) {
      start.workers = json.at("members").get<std::vector<WorldMember>>();
    } else if (json.contains("plan")) {
      start.workers = json.at("plan").get<PlanRequest>();
    }
    return start;
  });
}

}  // namespace hvd::driver
