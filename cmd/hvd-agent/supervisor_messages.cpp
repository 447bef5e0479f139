// Supervisor's handlers, one for each message of the driver.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine/capacity.h"
#include "base/machine/machine.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "base/versions.h"
#include "cmd/hvd-agent/process_tree.h"
#include "cmd/hvd-agent/supervisor.h"

namespace hvd::agent {

using std::chrono::milliseconds;

template <typename Message>
Status Supervisor::decode_and_handle(const Frame& frame) {
  auto message = Message::decode(frame.payload);
  HVD_RETURN_IF_ERROR(message.status());
  return on(std::move(*message));
}

Status Supervisor::handle(const Frame& frame) {
  using agent_link::Kind;
  const auto kind = static_cast<Kind>(frame.kind);
  // A driver may turn out not to need the agent.
  const bool may_be_first = kind == Kind::hello || kind == Kind::shutdown;
  if ((phase_ == Phase::greeting || phase_ == Phase::holding) && !may_be_first) {
    return {Code::data_loss, cat("the first message has kind ", frame.kind, " instead of hello")};
  }

  switch (kind) {
    case Kind::hello:
      return decode_and_handle<agent_link::Hello>(frame);
    case Kind::program:
      return decode_and_handle<agent_link::Program>(frame);
    case Kind::launch:
      return decode_and_handle<agent_link::Launch>(frame);
    case Kind::signal:
      return decode_and_handle<agent_link::Signal>(frame);
    case Kind::stop:
      return decode_and_handle<agent_link::Stop>(frame);
    case Kind::kill:
      return decode_and_handle<agent_link::Kill>(frame);
    case Kind::credit:
      return decode_and_handle<agent_link::Credit>(frame);
    case Kind::world_keys:
      return decode_and_handle<agent_link::WorldKeys>(frame);
    case Kind::world:
      return decode_and_handle<agent_link::World>(frame);
    case Kind::pause:
      return decode_and_handle<agent_link::Pause>(frame);
    case Kind::ask_activity:
      return decode_and_handle<agent_link::AskActivity>(frame);
    case Kind::heartbeat:
      return decode_and_handle<agent_link::Heartbeat>(frame);
    case Kind::shutdown:
      return decode_and_handle<agent_link::Shutdown>(frame);
    case Kind::check:
      return decode_and_handle<agent_link::Check>(frame);
    case Kind::probe:
      return decode_and_handle<agent_link::Probe>(frame);
    case Kind::describe:
      return decode_and_handle<agent_link::Describe>(frame);
    case Kind::rendezvous:
      return decode_and_handle<agent_link::Rendezvous>(frame);
    default:
      return {Code::data_loss, cat("a message of kind ", frame.kind, ", which no driver sends")};
  }
}

Status Supervisor::on(const agent_link::Hello& hello) {
  if (phase_ != Phase::greeting && phase_ != Phase::holding) {
    return {Code::data_loss, "a second hello"};
  }
  if (hello.protocol != agent_link::kProtocolVersion || hello.build_id != build_id()) {
    return {Code::failed_precondition,
            cat("this agent is of build ", build_id(), " (protocol ", agent_link::kProtocolVersion,
                "), hvdrun of build ", hello.build_id, " (protocol ", hello.protocol,
                "): install the same hvd on both hosts")};
  }
  if (phase_ == Phase::holding) return resume(hello);
  phase_ = Phase::claiming;
  if (hello.takes_over && relieve(hello)) return {};
  elastic_ = hello.elastic;
  host_ = hello.host;
  grace_ = milliseconds(hello.grace_ms);

  context_.silence = milliseconds(hello.worker_silence_ms);
  if (hello.open_files > 0) {
    context_.open_files.rlim_cur = std::min<rlim_t>(hello.open_files, context_.open_files.rlim_max);
  }
  claim_.begin(
      hello.job_id, hello.host, [this, hello] { greet(hello); }, Clock::now());
  return {};
}

void Supervisor::greet(const agent_link::Hello& hello) {
  if (phase_ != Phase::claiming) return;
  phase_ = Phase::serving;
  ListenRules rules;
  if (hello.last_port != 0) rules.range = PortRange{hello.first_port, hello.last_port};
  rules.listen_on = hello.listen_on;
  context_.ports = rules.range;
  // No host has to try whether it reaches the agent beside hvdrun.
  const Status open = hello.local ? Status() : probe_listener_.open(*loop_, rules, Clock::now());
  const auto free_port = find_free_port(rules.range);
  if (!open.ok()) {
    HVD_LOG(warning, "other hosts cannot test whether they can reach this one: " << open.message());
  }

  agent_link::Ready& ready = ready_;
  ready.build_id = build_id();
  ready.pid = ::getpid();
  ready.host_name = host_name();
  ready.interfaces = machine_interfaces();
  ready.probe_port = probe_listener_.port();
  ready.probe_greeting = probe_listener_.greeting();
  ready.free_port = free_port.ok() ? *free_port : std::uint16_t{0};
  if (rules.range) {
    ready.port_error = open.ok() ? free_port.status().message() : open.message();
  }
  const Capacity capacity = capacity_of_this_machine();
  ready.gpus = count_gpus();
  ready.visible_gpus = capacity.gpus;
  ready.cores = capacity.cores;

  epoch_ = hello.epoch;
  hold_ = milliseconds(hello.hold_ms);
  if (hello.joined) joiner_ = ::getppid();
  begin_lease(hello, hello.local ? ::getppid() : 0);
  if (hold_.count() > 0) {
    const Status listening = handover_.listen(handover_name(claim_name(hello.job_id, hello.host)));
    if (listening.ok()) {
      link_.keep_reports();
      context_.outlives_driver = true;
    } else {
      hold_ = {};
      problem(cat("the workers on ", host_name(),
                  " will end with hvdrun (--hold): ", listening.message()));
    }
  }
  link_.send_first(ready.encode());
}

void Supervisor::begin_lease(const agent_link::Hello& hello, pid_t local_driver) {
  lease_ = Lease(milliseconds(hello.lease_ms), LeaseClock::now());
  // A driver may also be lost without the end of its link, and another one come in its place.
  const milliseconds orphan_timeout(hello.orphan_timeout_ms);
  orphan_timer_ = OrphanTimer(
      orphan_timeout.count() == 0 ? orphan_timeout : std::max(orphan_timeout, hold_), Clock::now());
  shared_lease_.begin(orphan_timer_.limit(), local_driver);
  shared_lease_.write(lease_);
}

Status Supervisor::on(agent_link::Program program) {
  program_ = std::move(program);
  // They are looked up once for all workers.
  add_host_variables(std::exchange(program_.host_variables, {}), program_.environment);
  context_.keeps_state = program_.keeps_state;
  if (phase_ == Phase::serving) {
    std::vector<std::string> environment = program_.environment;
    environment.push_back(cat("HVD_HOSTNAME=", host_));
    notice_command_.begin(program_.notice_command, std::move(environment),
                          program_.working_directory);
  }
  return {};
}

Status Supervisor::on(agent_link::Launch launch) {
  const auto incarnation = launch.incarnation;
  // A later driver cannot know whether its predecessor's request has come here.
  if (hold_.count() > 0 && !launched_.insert(incarnation).second && epoch_ > 1) return {};
  if (incarnation == agent_link::kAllWorkers || workers_.count(incarnation) != 0) {
    return {Code::data_loss,
            cat("a launch of incarnation ", incarnation, ", which is already in use or reserved")};
  }
  if (phase_ == Phase::ending) {
    link_.send(agent_link::LaunchFailed{incarnation, ECANCELED,
                                        cat("worker ", launch.worker, ": this agent is ending")}
                   .encode());
    return {};
  }

  probe_listener_.close();  // probes come before the first launch
  UniqueFd predecessor;
  for (const auto& [number, one] : workers_) {
    if (one->name() != launch.worker) continue;
    // The newest one is waited for: it had waited for those before it.
    if (auto left = one->clear_place()) predecessor = std::move(left);
  }
  auto& worker = workers_[incarnation];
  worker = std::make_unique<Worker>(context_, incarnation, launch.worker,
                                    [this, incarnation] { changed_.insert(incarnation); });
  worker->start(complete(program_, std::move(launch)), std::move(predecessor));
  return {};
}

std::vector<Worker*> Supervisor::select(agent_link::Incarnation incarnation) {
  std::vector<Worker*> selected;
  for (auto& [number, worker] : workers_) {
    if (incarnation == agent_link::kAllWorkers || incarnation == number) {
      selected.push_back(worker.get());
    }
  }
  return selected;
}

Status Supervisor::on(const agent_link::Signal& signal) {
  if (signal.signal_number < 1 || signal.signal_number >= NSIG) {
    problem(cat("asked to send signal ", signal.signal_number, ", which does not exist"));
    return {};
  }
  for (auto* const worker : select(signal.incarnation)) worker->signal(signal.signal_number);
  return {};
}

Status Supervisor::on(const agent_link::Stop& stop) {
  for (auto* const worker : select(stop.incarnation)) {
    worker->stop(stop.reason, milliseconds(stop.grace_ms), Clock::now());
  }
  return {};
}

Status Supervisor::on(const agent_link::Kill& kill) {
  for (auto* const worker : select(kill.incarnation)) worker->kill();
  return {};
}

Status Supervisor::on(const agent_link::Credit& credit) {
  for (auto* const worker : select(credit.incarnation)) worker->credit(credit.stream, credit.bytes);
  return {};
}

Status Supervisor::on(agent_link::WorldKeys keys) {
  world_keys_ = std::move(keys);
  return {};
}

Status Supervisor::on(agent_link::World world) {
  HostWorld known{std::move(world), {}};
  if (world_keys_.generation == known.world.generation) known.keys = std::move(world_keys_.keys);
  world_keys_ = {};
  for (auto& [incarnation, worker] : workers_) worker->world(known);
  if (known.world.effective) context_.world = std::move(known);
  return {};
}

Status Supervisor::on(const agent_link::Pause& pause) {
  paused_ = pause.on;
  was_paused_ = true;
  shared_lease_.pause(pause.on);
  notice_command_.check_lease();
  for (auto& [incarnation, worker] : workers_) {
    worker->check_lease();
    worker->wake_reaper();
    worker->excuse(Clock::now());
  }
  link_.send_first(agent_link::Paused{pause.on}.encode());
  return {};
}

Status Supervisor::on(const agent_link::AskActivity& question) {
  const TimePoint deadline = Clock::now() + milliseconds(question.timeout_ms);
  for (auto& [incarnation, worker] : workers_) worker->ask_activity(question.id, deadline);
  return {};
}

Status Supervisor::on(const agent_link::Heartbeat& heartbeat) {
  const LeaseTime now = LeaseClock::now();
  const LeaseTime ran_out = lease_.runs_until();
  HVD_RETURN_IF_ERROR(lease_.heartbeat(heartbeat.sequence, heartbeat.acknowledged, now));
  link_.send_first(agent_link::HeartbeatAck{heartbeat.sequence}.encode());
  report_work();
  shared_lease_.write(lease_);
  if (now >= lease_.runs_until()) return {};

  saw_lease_end_ = false;
  const bool by_wish = std::exchange(was_paused_, paused_);
  const bool by_driver = std::exchange(driver_was_stopped_, false);
  if (!shared_lease_.take_frozen()) return {};
  notice_command_.check_lease();
  for (auto& [incarnation, worker] : workers_) {
    worker->check_lease();
    worker->excuse(Clock::now());
  }

  if (ran_out < now && !by_wish) {
    problem(cat("the workers on ", host_name(), " were frozen for ", measured_text(now - ran_out),
                by_driver ? ": hvdrun was stopped" : ": the link was silent"));
  }
  return {};
}

void Supervisor::report_work() {
  agent_link::WorkReports reports;
  for (auto& [incarnation, worker] : workers_) {
    if (auto work = worker->take_new_work()) {
      reports.workers.push_back({incarnation, *std::move(work)});
    }
  }
  if (!reports.workers.empty()) link_.send(reports.encode());
}

Status Supervisor::on(const agent_link::Shutdown& shutdown) {
  for (auto& [incarnation, worker] : workers_) worker->kill();
  end(shutdown.exit_code, Clock::now() + kUnkillableTimeout);
  return {};
}

Status Supervisor::on(agent_link::Check check) {
  checker_.check(std::move(check));
  return {};
}

Status Supervisor::on(const agent_link::Describe& describe) {
  for (const auto* const worker : select(describe.incarnation)) {
    if (worker->pid() <= 0) continue;
    link_.send(
        agent_link::Described{describe.incarnation, describe_processes(worker->pid())}.encode());
  }
  return {};
}

Status Supervisor::on(agent_link::Probe probe) {
  return prober_.probe(std::move(probe), Clock::now());
}

}  // namespace hvd::agent
