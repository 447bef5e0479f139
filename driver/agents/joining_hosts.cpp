#include "driver/agents/joining_hosts.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/labels.h"
#include "base/protocol/agent_link.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

// An agent without workers ends at once; one that does not is frozen or cut off.
constexpr std::chrono::seconds kDismissalLimit{2};

}  // namespace

JoiningHosts::JoiningHosts(boost::asio::io_context& io, const JoinSpec& spec,
                           join::JoinTokens& tokens, Callbacks callbacks)
    : io_(io),
      callbacks_(std::move(callbacks)),
      required_labels_(spec.required_labels),
      dismissal_limit_(io) {
  join::Callbacks on;
  on.admit = [this](const std::string& host, const std::vector<std::string>& labels) {
    return admit(host, labels);
  };
  on.on_joined = [this](join::JoinedAgent agent) { on_joined(std::move(agent)); };
  on.on_refused = [this](std::string_view text) { callbacks_.on_warning(text); };
  join::Limits limits;
  limits.silence = spec.silence;
  limits.hold = spec.hold;
  server_ = std::make_unique<join::JoinServer>(io, spec.token, spec.bind, std::move(on), limits,
                                               spec.ports, &tokens);
}

JoiningHosts::~JoiningHosts() = default;

Status JoiningHosts::start() { return server_->start().with_context("wait for agents to join"); }

std::vector<HostSlots> JoiningHosts::hosts() const {
  std::map<std::size_t, HostSlots> by_place;
  for (const auto& [name, host] : hosts_) {
    if (host.state != State::absent) by_place[host.place] = {.name = name, .slots = host.slots};
  }
  std::vector<HostSlots> hosts;
  hosts.reserve(by_place.size());
  for (auto& [place, host] : by_place) hosts.push_back(std::move(host));
  return hosts;
}

void JoiningHosts::expect(const std::string& host, int slots) {
  JoinedHost& one = hosts_[host];
  if (one.times++ == 0) one.place = hosts_.size();
  one.state = State::expected;
  one.slots = slots;
}

bool JoiningHosts::is_expected(const std::string& host) const {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && found->second.state == State::expected;
}

std::optional<AgentConnection> JoiningHosts::take(const std::string& host) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end() || found->second.state != State::waiting) return std::nullopt;
  found->second.state = State::taken;
  found->second.end_watch.reset();
  return std::move(found->second.connection);
}

void JoiningHosts::ended(const std::string& host) {
  const auto found = hosts_.find(host);
  if (found == hosts_.end() ||
      (found->second.state != State::taken && found->second.state != State::expected)) {
    return;
  }
  found->second.state = State::absent;
  callbacks_.on_change();
}

void JoiningHosts::dismiss(std::uint8_t exit_code, std::function<void()> done) {
  server_.reset();
  dismissed_ = std::move(done);
  const std::string frame = agent_link::Shutdown{exit_code}.encode();
  for (auto& [name, host] : hosts_) {
    if (host.state != State::waiting) continue;
    // The first bytes on the link, which its buffer takes: they end the wait.
    static_cast<void>(send_all(host.connection.link.get(), frame, Clock::now()));
  }
  if (!any_waiting()) return dismissed_();

  dismissal_limit_.expires_after(kDismissalLimit);
  dismissal_limit_.async_wait([this](const boost::system::error_code& error) {
    if (!error) dismissed_();
  });
}

bool JoiningHosts::any_waiting() const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [](const auto& host) { return host.second.state == State::waiting; });
}

// An agent that comes again may be faster than the report that the one before has ended.
Status JoiningHosts::admit(const std::string& host, const std::vector<std::string>& labels) const {
  HVD_RETURN_IF_ERROR(require_labels(required_labels_, labels));
  if (callbacks_.is_taken(host)) {
    return {Code::permission_denied,
            cat("the job reaches a host ", host, " by itself; --host gives another name")};
  }
  const auto found = hosts_.find(host);
  if (found == hosts_.end() || found->second.state == State::absent ||
      found->second.state == State::expected) {
    return {};
  }
  return {Code::already_exists, cat("a host ", host, " has joined already")};
}

void JoiningHosts::on_joined(join::JoinedAgent agent) {
  // After this agent was admitted another host of the same name may have joined.
  if (!admit(agent.host, agent.connection.labels).ok()) return;

  const bool was_expected = is_expected(agent.host);
  JoinedHost& host = hosts_[agent.host];
  if (host.times++ == 0) host.place = hosts_.size();
  host.state = State::waiting;
  host.slots = agent.slots;
  host.connection = std::move(agent.connection);
  host.end_watch = std::make_unique<EndWatch>(
      io_, host.connection.handle->ended_fd(),
      [this, name = agent.host, times = host.times] { on_ended_while_waiting(name, times); });
  if (was_expected) {
    callbacks_.on_notice(cat("host ", agent.host, " has joined again"));
    return callbacks_.on_returned(agent.host);
  }
  callbacks_.on_notice(cat("host ", agent.host, " has joined with ", agent.slots,
                           agent.slots == 1 ? " slot" : " slots",
                           labels_text(host.connection.labels)));
  callbacks_.on_change();
}

void JoiningHosts::on_ended_while_waiting(const std::string& host, std::uint64_t times) {
  JoinedHost& one = hosts_.at(host);
  if (one.state != State::waiting || one.times != times) return;
  one.state = State::absent;
  one.end_watch.reset();
  const AgentConnection ended = std::move(one.connection);
  if (dismissed_) {
    if (!any_waiting()) dismissed_();
    return;
  }
  callbacks_.on_warning(
      cat("host ", host, " has gone before its turn: its agent ", ended.handle->reap()));
  callbacks_.on_change();
}

}  // namespace hvd::driver
