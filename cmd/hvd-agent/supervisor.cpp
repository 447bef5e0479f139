#include "cmd/hvd-agent/supervisor.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/build_id.h"
#include "base/log.h"
#include "base/text.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kGraceAfterSigterm{5};
// How long processes that do not die of SIGKILL (waiting for a dead file system, or somebody
// else's) hold up the agent's end.
constexpr seconds kPatienceWithTheDying{10};
constexpr milliseconds kStrayPause{5};

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace

Supervisor::Supervisor(std::unique_ptr<EventLoop> loop, SupervisorOptions options)
    : loop_(std::move(loop)),
      link_(std::move(options.link_in), std::move(options.link_out)),
      signals_(std::move(options.signals)),
      pump_(link_),
      context_{*loop_, link_, pump_, options.open_files_of_workers} {
  for (const auto& child : descendants_of(::getpid())) {
    if (child.parent == ::getpid()) children_of_others_.push_back(child.pid);
  }
}

Status Supervisor::watch_all() {
  auto in = loop_->watch(link_.in_fd(), EPOLLIN, [this](std::uint32_t) { on_link_readable(); });
  HVD_RETURN_IF_ERROR(in.status());
  link_in_watch_ = std::move(*in);
  // Only wakes the loop; turn() flushes whatever happened.
  auto out = loop_->watch(link_.out_fd(), EPOLLOUT | EPOLLET, [](std::uint32_t) {});
  HVD_RETURN_IF_ERROR(out.status());
  link_out_watch_ = std::move(*out);
  auto signals = loop_->watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
  HVD_RETURN_IF_ERROR(signals.status());
  signals_watch_ = std::move(*signals);
  return {};
}

int Supervisor::run() {
  if (const Status watched = watch_all(); !watched.ok()) {
    HVD_LOG(error, "standard input and output must be hvdrun's link, sockets or pipes: "
                       << watched.message());
    return 1;
  }
  while (phase_ != Phase::over) {
    if (const Status waited = loop_->wait(deadline()); !waited.ok()) {
      HVD_LOG(error, waited.to_string());
      fail_link(waited);
      exit_code_ = 1;
      break;  // the keepers kill what is theirs when this process ends
    }
    turn();
  }
  return exit_code_;
}

// What follows from what the loop has just served.
void Supervisor::turn() {
  const TimePoint now = Clock::now();
  for (auto& [incarnation, worker] : workers_) worker->on_time(now);
  if (now >= look_for_strays_at_) kill_strays();
  if (phase_ != Phase::lost) pump_.run();
  settle_workers();
  if (phase_ != Phase::lost) {
    if (const Status flushed = link_.flush(); !flushed.ok()) fail_link(flushed);
  }
  finish_if_done();
}

TimePoint Supervisor::deadline() const {
  if (phase_ != Phase::lost && pump_.ready()) return Clock::now();
  TimePoint first = std::min(give_up_at_, look_for_strays_at_);
  for (const auto& [incarnation, worker] : workers_) first = std::min(first, worker->deadline());
  return first;
}

void Supervisor::on_link_readable() {
  Status status = link_.receive();
  while (status.ok() && phase_ != Phase::lost) {
    auto frame = link_.next();
    if (!frame.ok()) {
      status = frame.status();
    } else if (!frame->has_value()) {
      return;
    } else {
      status = handle(**frame);
    }
  }
  if (!status.ok()) fail_link(status);
}

template <typename Message>
Status Supervisor::decode_and_handle(const Frame& frame) {
  auto message = Message::decode(frame.payload);
  HVD_RETURN_IF_ERROR(message.status());
  return on(std::move(*message));
}

Status Supervisor::handle(const Frame& frame) {
  using agent_link::Kind;
  const auto kind = static_cast<Kind>(frame.kind);
  if (phase_ == Phase::greeting && kind != Kind::hello) {
    return {Code::data_loss, cat("the first message is of kind ", frame.kind, ", not a hello")};
  }
  switch (kind) {
    case Kind::hello:
      return decode_and_handle<agent_link::Hello>(frame);
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
    case Kind::world:
      return decode_and_handle<agent_link::World>(frame);
    case Kind::heartbeat:
      return decode_and_handle<agent_link::Heartbeat>(frame);
    case Kind::shutdown:
      return decode_and_handle<agent_link::Shutdown>(frame);
    default:
      return {Code::data_loss, cat("a message of kind ", frame.kind, ", which no driver sends")};
  }
}

Status Supervisor::on(const agent_link::Hello& hello) {
  if (phase_ != Phase::greeting) return {Code::data_loss, "a second hello"};
  if (hello.protocol != agent_link::kProtocolVersion || hello.build_id != build_id()) {
    return {Code::failed_precondition,
            cat("this agent is of build ", build_id(), " (protocol ", agent_link::kProtocolVersion,
                "), hvdrun of build ", hello.build_id, " (protocol ", hello.protocol,
                "): install the same hvd on both hosts")};
  }
  phase_ = Phase::serving;
  link_.send(agent_link::Ready{agent_link::kProtocolVersion, std::string(build_id()), ::getpid(),
                               host_name()}
                 .encode());
  return {};
}

Status Supervisor::on(agent_link::Launch launch) {
  const auto incarnation = launch.incarnation;
  if (incarnation == agent_link::kAllWorkers || workers_.count(incarnation) != 0) {
    return {Code::data_loss,
            cat("a launch of incarnation ", incarnation, ", which is no number for a new worker")};
  }
  if (phase_ == Phase::ending) {
    link_.send(agent_link::LaunchFailed{incarnation, ECANCELED,
                                        cat("worker ", launch.worker, ": this agent is ending")}
                   .encode());
    return {};
  }
  auto& worker = workers_[incarnation];
  worker = std::make_unique<Worker>(context_, incarnation, launch.worker,
                                    [this, incarnation] { changed_.insert(incarnation); });
  worker->start(std::move(launch));
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

Status Supervisor::on(const agent_link::World& world) {
  for (auto& [incarnation, worker] : workers_) worker->world(world.generation, world.document);
  return {};
}

Status Supervisor::on(const agent_link::Heartbeat& heartbeat) {
  link_.send(agent_link::HeartbeatAck{heartbeat.sequence}.encode());
  return {};
}

Status Supervisor::on(const agent_link::Shutdown&) {
  for (auto& [incarnation, worker] : workers_) worker->kill();
  end(0, Clock::now() + kPatienceWithTheDying);
  return {};
}

void Supervisor::problem(std::string message) {
  HVD_LOG(info, message);  // hvdrun is who tells it
  link_.send(agent_link::Problem{std::move(message)}.encode());
}

void Supervisor::end(int exit_code, TimePoint give_up_at) {
  if (phase_ != Phase::ending) exit_code_ = exit_code;
  phase_ = Phase::ending;
  give_up_at_ = std::min(give_up_at_, give_up_at);
  for (const auto& [incarnation, worker] : workers_) changed_.insert(incarnation);
}

// The driver is gone, or what it says cannot be its own: nobody is left to work for.
void Supervisor::fail_link(const Status& why) {
  if (phase_ == Phase::lost || phase_ == Phase::over) return;
  if (said_bye_ && why.code() == Code::unavailable) {
    phase_ = Phase::over;  // it had heard enough
    return;
  }
  if (why.code() == Code::unavailable) {
    HVD_LOG(info, why.message() << "; killing " << workers_.size() << " workers");
  } else {
    const std::string message = cat("the link from hvdrun is broken: ", why.message());
    problem(message);
    // If it still takes something, it shall know why; else the log does.
    if (!link_.flush().ok() || !link_.all_sent()) HVD_LOG(warning, message);
  }
  link_in_watch_.end();
  link_out_watch_.end();
  for (auto& [incarnation, worker] : workers_) {
    worker->kill();
    changed_.insert(incarnation);
  }
  phase_ = Phase::lost;
  exit_code_ = 1;
  give_up_at_ = Clock::now() + kPatienceWithTheDying;
}

void Supervisor::on_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      on_child_ended();
    } else if (phase_ == Phase::greeting) {
      exit_code_ = 128 + number;
      phase_ = Phase::over;
    } else if (phase_ == Phase::serving) {
      problem(cat("the agent on ", host_name(), " was told to end by signal ", number,
                  "; it stops its workers"));
      const TimePoint now = Clock::now();
      for (auto& [incarnation, worker] : workers_) {
        worker->stop("the agent was told to end", kGraceAfterSigterm, now);
      }
      end(128 + number, now + kGraceAfterSigterm + kPatienceWithTheDying);
    } else if (phase_ == Phase::ending) {
      for (auto& [incarnation, worker] : workers_) worker->kill();  // asked twice
    }
  }
}

void Supervisor::on_child_ended() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
    if (pid <= 0) return;
    for (auto& [incarnation, worker] : workers_) {
      // A worker becomes our child only when its keeper was killed.
      if (worker->pid() == pid) worker->reaped_by_agent(status);
      if (worker->keeper_pid() != pid) continue;
      worker->keeper_reaped();
      if (WIFSIGNALED(status)) look_for_strays_at_ = Clock::now();
    }
    std::erase(children_of_others_, pid);
  }
}

// Everything that a killed keeper kept has become our own child, and is nobody's.
void Supervisor::kill_strays() {
  std::vector<pid_t> spared = children_of_others_;
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker->keeper_gone()) spared.push_back(worker->keeper_pid());
  }
  const auto pass = kill_descendants(::getpid(), spared);
  on_child_ended();
  look_for_strays_at_ = pass.found.empty() ? kNever : Clock::now() + kStrayPause;
}

void Supervisor::settle_workers() {
  for (const auto incarnation : std::exchange(changed_, {})) {
    const auto found = workers_.find(incarnation);
    if (found == workers_.end()) continue;
    Worker& worker = *found->second;
    if (worker.keeper_lost()) look_for_strays_at_ = std::min(look_for_strays_at_, Clock::now());
    if (phase_ == Phase::ending && worker.keeper_gone()) worker.end_output();
    const bool over = worker.settle();
    if (over || (phase_ == Phase::lost && worker.keeper_gone())) workers_.erase(found);
  }
}

void Supervisor::finish_if_done() {
  if (phase_ != Phase::ending && phase_ != Phase::lost) return;
  if (!workers_.empty() && Clock::now() >= give_up_at_) {
    for (auto found = workers_.begin(); found != workers_.end();) {
      // Output that the driver has not taken yet holds up nothing but itself.
      if (found->second->keeper_gone() && phase_ == Phase::ending) {
        ++found;
        continue;
      }
      problem(cat("worker ", found->second->name(), " has processes that do not die of SIGKILL"));
      found = workers_.erase(found);
    }
    give_up_at_ = kNever;
  }
  if (!workers_.empty() || look_for_strays_at_ != kNever) return;
  if (phase_ == Phase::lost) {
    phase_ = Phase::over;
    return;
  }
  if (!std::exchange(said_bye_, true)) {
    link_.send(agent_link::Bye{}.encode());
    if (const Status flushed = link_.flush(); !flushed.ok()) return fail_link(flushed);
  }
  if (link_.all_sent()) phase_ = Phase::over;
}

}  // namespace hvd::agent
