#include "driver/run/takeover.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "driver/journal/journal_json.h"

namespace hvd::driver {
namespace {

template <typename Value>
constexpr bool kNamesHost = requires(const Value& value) {
  value.host == HostIndex{};
};

template <typename Variant>
std::optional<HostIndex> host_of(const Variant& variant) {
  return std::visit(
      [](const auto& value) -> std::optional<HostIndex> {
        if constexpr (kNamesHost<std::decay_t<decltype(value)>>) return value.host;
        return std::nullopt;
      },
      variant);
}

std::string text_of(const Event& event) { return json_of(event, {}).dump(); }

// Whether the event is the answer to the action, both of one host.
bool answers(const Event& event, const Action& action) {
  const auto* const launched = std::get_if<event::Launched>(&event);
  const auto* const failed = std::get_if<event::LaunchFailed>(&event);
  const auto* const exited = std::get_if<event::Exited>(&event);
  const auto* const described = std::get_if<event::Described>(&event);
  return std::visit(
      [&](const auto& asked) {
        using Asked = std::decay_t<decltype(asked)>;
        if constexpr (std::is_same_v<Asked, action::Launch>) {
          return (launched != nullptr && launched->incarnation == asked.member.incarnation) ||
                 (failed != nullptr && failed->incarnation == asked.member.incarnation);
        } else if constexpr (std::is_same_v<Asked, action::StopWorkers> ||
                             std::is_same_v<Asked, action::KillWorkers>) {
          return exited != nullptr && exited->incarnation == asked.incarnation;
        } else if constexpr (std::is_same_v<Asked, action::DescribeWorker>) {
          return described != nullptr && described->incarnation == asked.incarnation;
        } else if constexpr (std::is_same_v<Asked, action::FindAddress>) {
          return std::holds_alternative<event::AddressFound>(event);
        } else {
          return false;  // the end of the agent ends them
        }
      },
      action);
}

}  // namespace

bool is_report(const Event& event) {
  return std::visit(
      [](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        return std::is_same_v<Value, event::Launched> ||
               std::is_same_v<Value, event::LaunchFailed> ||
               std::is_same_v<Value, event::Initialised> || std::is_same_v<Value, event::Done> ||
               std::is_same_v<Value, event::Exited> || std::is_same_v<Value, event::HostLeaves> ||
               std::is_same_v<Value, event::WorkerReady> ||
               std::is_same_v<Value, event::LeaveRequested> ||
               std::is_same_v<Value, event::WorkerLeft> || std::is_same_v<Value, event::Committed>;
      },
      event);
}

bool has_effect(const std::vector<Action>& actions) {
  return std::any_of(actions.begin(), actions.end(), [](const Action& action) {
    return !std::holds_alternative<action::Say>(action) &&
           !std::holds_alternative<action::DescribeWorker>(action) &&
           !std::holds_alternative<action::FindAddress>(action);
  });
}

void Takeover::relive(const Event& event, const std::vector<Action>& actions) {
  answer(event);
  for (const auto& action : actions) ask(action);
}

void Takeover::answer(const Event& event) {
  if (const auto* const entered = std::get_if<event::WorldEntered>(&event)) {
    entered_ = std::max(entered_, entered->generation);
  }
  const auto host = host_of(event);
  if (!host) return;
  if (std::holds_alternative<event::AgentGone>(event) ||
      std::holds_alternative<event::HostFailed>(event)) {
    pasts_.erase(*host);
    looked_for_.erase(*host);
    return;
  }
  const auto found = pasts_.find(*host);
  if (found == pasts_.end()) return;
  Past& past = found->second;
  if (std::holds_alternative<event::AgentReady>(event)) past.ready = true;
  if (const auto* const address = std::get_if<event::AddressFound>(&event)) past.address = *address;
  std::erase_if(past.unanswered, [&](const Action& action) { return answers(event, action); });
  if (is_report(event)) past.reports.insert(text_of(event));
}

void Takeover::ask(const Action& action) {
  if (const auto* const published = std::get_if<action::PublishWorld>(&action)) {
    return publish(published->world);
  }
  if (const auto* const finish = std::get_if<action::Finish>(&action)) finish_ = *finish;
  const auto host = host_of(action);
  if (!host) return;
  if (std::holds_alternative<action::StartAgent>(action)) {
    pasts_[*host] = {};
    looked_for_.insert(*host);
  } else if (const auto past = pasts_.find(*host); past != pasts_.end()) {
    past->second.unanswered.push_back(action);
  }
}

void Takeover::publish(const WorldDocument& world) {
  if (world.state == WorldState::proposed) {
    proposed_ = world;
  } else if (proposed_ && proposed_->generation <= world.generation) {
    proposed_.reset();  // a commit may also take an older one into force than is proposed by then
  }
}

std::vector<HostIndex> Takeover::hosts() const { return {looked_for_.begin(), looked_for_.end()}; }

std::set<std::string> Takeover::rendezvous_addresses() const {
  std::set<std::string> addresses;
  for (const auto& [host, past] : pasts_) {
    if (past.address) addresses.insert(past.address->rendezvous);
  }
  return addresses;
}

bool Takeover::was_ready(HostIndex host) const {
  const auto past = pasts_.find(host);
  return past != pasts_.end() && past->second.ready;
}

std::optional<event::AddressFound> Takeover::address(HostIndex host) const {
  const auto past = pasts_.find(host);
  return past == pasts_.end() ? std::nullopt : past->second.address;
}

bool Takeover::defer(const Action& action) {
  const auto host = host_of(action);
  const bool gives_up = std::holds_alternative<action::DropAgent>(action);
  if (!host || gives_up || !looks_for(*host) || !was_ready(*host)) return false;
  ask(action);
  return true;
}

std::vector<Action> Takeover::unanswered(HostIndex host) const {
  const auto past = pasts_.find(host);
  return past == pasts_.end() ? std::vector<Action>() : past->second.unanswered;
}

bool Takeover::is_known(const Event& event) const {
  if (const auto* const entered = std::get_if<event::WorldEntered>(&event)) {
    return entered_ != 0 && entered->generation <= entered_;
  }
  const auto host = host_of(event);
  const auto past = host ? pasts_.find(*host) : pasts_.end();
  return past != pasts_.end() && is_report(event) && past->second.reports.contains(text_of(event));
}

std::optional<Event> Takeover::told(const Event& event) {
  if (const auto* const ready = std::get_if<event::AgentReady>(&event)) {
    ends_looking_for(ready->host);
    return event;
  }
  if (const auto* const failed = std::get_if<event::HostFailed>(&event)) {
    const HostIndex host = failed->host;
    const bool is_lost = looks_for(host) && was_ready(host);
    ends_looking_for(host);
    if (!is_lost) return event;
    return event::AgentGone{host, cat("was not found again: ", failed->error.message)};
  }
  if (const auto* const gone = std::get_if<event::AgentGone>(&event)) {
    ends_looking_for(gone->host);
    const auto ended = ended_.extract(gone->host);
    if (ended.empty()) return event;
    return event::AgentGone{gone->host, ended.mapped()};
  }
  const auto* const progress = std::get_if<event::HostProgress>(&event);
  const bool is_old = progress != nullptr && looks_for(progress->host) && was_ready(progress->host);
  return is_old || is_known(event) ? std::nullopt : std::optional(event);
}

}  // namespace hvd::driver
