#include "driver/agents/preparation.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/labels.h"
#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/agents/local_hosts.h"
#include "driver/core/end_watch.h"
#include "driver/core/timers.h"
#include "driver/job/job_io.h"
#include "driver/join/join_server.h"

namespace hvd::driver {

namespace {

namespace asio = boost::asio;

// The agents of the hosts of a job that have joined.
struct Gathered {
  // In the user's order, or in the order of joining. All slots are known, since each agent reports
  // its own.
  std::vector<HostSlots> hosts;
  std::map<std::string, AgentConnection> agents;  // by host; nothing was sent to them yet
  // While it exists the address still answers: health probes, and agents that are too late. Must
  // not outlive the arguments of gather_agents().
  std::shared_ptr<const void> listener;
};

// The first step of a job whose agents join by themselves (`hvdrun agent --join`): waits for the
// named hosts, or, if none are named, until there are as many slots as processes.
class Gathering {
 public:
  Gathering(asio::io_context& io, const Signals& signals, const JobSpec& spec, Observer& observer)
      : io_(io), signals_(signals), spec_(spec), observer_(observer), deadline_(io) {
    progress_timer_.emplace(io, [this] {
      observer_.on_waiting(
          {Waiting::For::start, [this] { return cat(missing(), " to join (", progress(), ")"); }});
    });
  }

  Result<Gathered> run() {
    if (spec_.hosts.empty() && spec_.processes < 1) {
      return Status(Code::invalid_argument,
                    "the number of agents to wait for is unknown: name the number of processes "
                    "(-np) or the hosts (-H)");
    }

    join::Callbacks callbacks;
    callbacks.admit = [this](const std::string& host, const std::vector<std::string>& labels) {
      return admit(host, labels);
    };
    callbacks.on_joined = [this](join::JoinedAgent agent) { on_joined(std::move(agent)); };
    callbacks.on_refused = [this](std::string_view text) { observer_.on_warning(text); };
    join::Limits limits;
    limits.silence = spec_.join->silence;
    server_.emplace(io_, spec_.join->token, spec_.join->bind, std::move(callbacks), limits,
                    spec_.join->ports);
    if (const Status started = server_->start(); !started.ok()) {
      return started.with_context("wait for agents to join");
    }
    const std::string where = server_->address().to_string();
    observer_.on_notice(cat("waiting at ", where, " for ", missing(), " to join"));

    deadline_.begin(spec_.start_timeout, [this] { late_ = true; });
    while (!complete() && !late_ && signals_.waiting() == 0) io_.run_one();

    if (signals_.waiting() != 0) {
      return Status(Code::aborted,
                    cat("hvdrun was interrupted by ", signal_text(signals_.waiting()),
                        " while it waited for agents to join"));
    }
    if (!complete()) {
      return Status(Code::deadline_exceeded,
                    cat(progress(), " within ", seconds_text(spec_.start_timeout),
                        " (--start-timeout): ", missing(), " did not come to ", where,
                        "; `hvdrun agent --join` starts an agent that joins"));
    }
    return result();
  }

 private:
  struct Member {
    int slots = 1;
    AgentConnection connection;
    std::unique_ptr<EndWatch> end_watch;
  };

  bool complete() const {
    return spec_.hosts.empty() ? slots_ >= spec_.processes : members_.size() == spec_.hosts.size();
  }
  std::string progress() const {
    return spec_.hosts.empty()
               ? cat(slots_, " of ", spec_.processes, " slots have joined")
               : cat(members_.size(), " of ", spec_.hosts.size(), " hosts have joined");
  }
  std::string missing() const {
    if (spec_.hosts.empty()) {
      const int left = spec_.processes - slots_;
      return cat("agents with ", left, members_.empty() ? "" : " more",
                 left == 1 ? " slot" : " slots");
    }
    std::vector<std::string> names;
    for (const auto& host : spec_.hosts) {
      if (members_.count(host.name) == 0) names.push_back(host.name);
    }
    return names_text(names);
  }

  Status admit(const std::string& host, const std::vector<std::string>& labels) {
    if (begun_) return {Code::failed_precondition, "the job has begun with other hosts"};
    if (complete()) return {Code::failed_precondition, "the job has all hosts that it needs"};
    const bool named = std::any_of(spec_.hosts.begin(), spec_.hosts.end(),
                                   [&](const HostSlots& known) { return known.name == host; });
    if (!named && !spec_.hosts.empty()) {
      return {Code::not_found, cat("this job has no host ", host)};
    }
    HVD_RETURN_IF_ERROR(require_labels(spec_.join->required_labels, labels));
    if (members_.count(host) != 0) {
      return {Code::already_exists, cat("a host ", host, " has joined already")};
    }
    return {};
  }

  void on_joined(join::JoinedAgent agent) {
    // After this agent was admitted another host of the same name may have joined.
    if (!admit(agent.host, agent.connection.labels).ok()) return;

    Member member;
    member.slots = agent.slots;
    member.end_watch = std::make_unique<EndWatch>(io_, agent.connection.handle->ended_fd(),
                                                  [this, host = agent.host] { on_gone(host); });
    member.connection = std::move(agent.connection);
    slots_ += member.slots;
    order_.push_back(agent.host);
    const auto& joined = members_.emplace(agent.host, std::move(member)).first->second;
    observer_.on_progress(cat("host ", agent.host, " has joined with ", agent.slots,
                              agent.slots == 1 ? " slot" : " slots",
                              labels_text(joined.connection.labels), ": ", progress()));
  }

  void on_gone(const std::string& host) {
    const auto member = members_.find(host);
    if (member == members_.end()) return;
    observer_.on_warning(cat("the agent of host ", host, ", which had joined, is lost: it ",
                             member->second.connection.handle->reap()));
    slots_ -= member->second.slots;
    std::erase(order_, host);
    members_.erase(member);
  }

  // From here on the server only answers: nobody joins any more.
  Gathered result() {
    begun_ = true;
    progress_timer_.reset();
    observer_.on_waiting_over();
    deadline_.cancel();

    Gathered gathered;
    gathered.hosts = spec_.hosts;
    for (auto& host : gathered.hosts) {
      if (host.slots == 0) host.slots = members_.at(host.name).slots;
    }
    for (const auto& host : order_) {
      Member& member = members_.at(host);
      member.end_watch.reset();
      if (spec_.hosts.empty()) gathered.hosts.push_back({host, member.slots});
      gathered.agents.emplace(host, std::move(member.connection));
    }
    return gathered;
  }

  asio::io_context& io_;
  const Signals& signals_;
  const JobSpec& spec_;
  Observer& observer_;
  OwnTimer deadline_;
  std::optional<ProgressTimer> progress_timer_;
  bool begun_ = false;
  bool late_ = false;  // the deadline has passed
  int slots_ = 0;
  std::map<std::string, Member> members_;
  std::vector<std::string> order_;  // of joining
  std::optional<join::JoinServer> server_;
};

}  // namespace

// Runs `io` meanwhile. No agent can join after it has returned. An error names the missing hosts;
// its code is aborted if a signal is waiting.
static Result<Gathered> gather_agents(asio::io_context& io, const Signals& signals,
                                      const JobSpec& spec, Observer& observer) {
  const auto gathering = std::make_shared<Gathering>(io, signals, spec, observer);
  auto gathered = gathering->run();
  if (gathered) gathered->listener = gathering;
  return gathered;
}

// Adds slots where the plan oversubscribes a host.
static void add_planned_slots(Preparation& preparation) {
  std::map<std::string, int> workers;
  for (const auto& member : preparation.plan.members) ++workers[member.host];
  for (auto& host : preparation.hosts) host.slots = std::max(host.slots, workers[host.name]);
}

Result<Preparation> prepare(boost::asio::io_context& io, const Signals& signals,
                            const JobSpec& spec, Observer& observer) {
  Preparation preparation;
  preparation.hosts = spec.hosts;
  if (spec.join && !spec.elastic) {
    auto gathered = gather_agents(io, signals, spec, observer);
    if (!gathered) return gathered.status();
    preparation.hosts = std::move(gathered->hosts);
    preparation.joined = std::move(gathered->agents);
    preparation.join_listener = std::move(gathered->listener);
  }
  // A script names them, or they join.
  if (spec.elastic && preparation.hosts.empty()) return preparation;

  if (!spec.elastic) preparation.hosts = hosts_to_ask(preparation.hosts, spec.processes);
  if (slots_are_known(preparation.hosts)) {
    auto plan = plan_static(preparation.hosts, spec.processes, spec.oversubscribe);
    if (!plan) return plan.status();
    preparation.plan = *std::move(plan);
    if (spec.elastic) add_planned_slots(preparation);
  }

  const bool reached = (!spec.join || spec.elastic) && !spec.slurm;
  if (reached) preparation.local = find_local_hosts(io, signals, preparation.hosts, observer);
  return preparation;
}

}  // namespace hvd::driver
