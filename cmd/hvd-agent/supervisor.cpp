#include "cmd/hvd-agent/supervisor.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine/machine.h"
#include "base/machine/proc.h"
#include "base/security/unix_peer.h"
#include "base/text.h"
#include "base/versions.h"
#include "cmd/hvd-agent/process_tree.h"

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr seconds kOneNotice{2};  // SIGTERM that comes again so soon is the same one
constexpr milliseconds kStrayPause{5};
// A host may get a thousand Launches at once, and each takes a fork. The link and the workers that
// run already wait at most this long for them.
constexpr milliseconds kWorkAtOnce{10};
// A driver that has started an agent sends Hello at once.
constexpr minutes kHelloTimeout{5};

bool is_heartbeat(const Frame& frame) {
  return frame.kind == static_cast<std::uint16_t>(agent_link::Kind::heartbeat);
}

}  // namespace

std::string host_name() {
  const std::string name = machine_name();
  return name.empty() ? "unknown" : name;
}

Supervisor::Supervisor(std::unique_ptr<EventLoop> loop, SharedLease board,
                       SupervisorOptions options)
    : loop_(std::move(loop)),
      shared_lease_(std::move(board)),
      link_(std::move(options.link_in), std::move(options.link_out)),
      signals_(std::move(options.signals)),
      pump_(link_),
      context_{*loop_, link_, pump_, options.open_files_of_workers, shared_lease_, out_of_memory_},
      orphan_timer_(kHelloTimeout, Clock::now()),
      notice_command_(
          context_, [this](std::optional<milliseconds> left) { on_notice(left); },
          [this](const std::string& what) {
            problem(cat("the notice command on ", host_name(), " ", what));
          }),
      checker_(*loop_,
               [this](const agent_link::Checked& checked) { link_.send(checked.encode()); }),
      prober_(*loop_, [this](const agent_link::Probed& probed) { link_.send(probed.encode()); }),
      claim_(*loop_, [this] { on_superseded(); }),
      handover_(
          *loop_, [this](HandedLink link) { take_link(std::move(link)); },
          [this] { on_messenger_gone(); }) {
  context_.on_commit_mark = [this](std::string commit) { on_commit_mark(std::move(commit)); };
  for (const auto& child : descendants_of(::getpid())) {
    if (child.parent == ::getpid()) inherited_children_.push_back(child.pid);
  }
}

Status Supervisor::watch_link() {
  auto in = loop_->watch(link_.in_fd(), EPOLLIN, [this](std::uint32_t) { on_link_readable(); });
  HVD_RETURN_IF_ERROR(in.status());
  link_in_watch_ = std::move(*in);
  // The event only wakes the loop, since turn() always flushes. A pipe reports at once when its
  // reader has gone.
  auto out = loop_->watch(link_.out_fd(), EPOLLOUT | EPOLLET, [this](std::uint32_t events) {
    link_reader_gone_ = link_reader_gone_ || (events & EPOLLERR) != 0;
  });
  HVD_RETURN_IF_ERROR(out.status());
  link_out_watch_ = std::move(*out);
  return {};
}

Status Supervisor::watch_all() {
  HVD_RETURN_IF_ERROR(watch_link());
  auto signals = loop_->watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { on_signals(); });
  HVD_RETURN_IF_ERROR(signals.status());
  signals_watch_ = std::move(*signals);
  return {};
}

int Supervisor::run() {
  last_turn_ = Clock::now();
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
      break;  // the reapers kill their workers when this process ends
    }
    turn();
  }
  handover_.release_messenger(exit_code_);
  return exit_code_;
}

// The consequences of the events that the loop has just served.
void Supervisor::turn() {
  if (const Status worked = handle_queued_frames(); !worked.ok()) fail_link(worked);
  const TimePoint now = Clock::now();
  extend_deadlines(now);
  obey_lease();
  const bool all_stand_still = paused_ || LeaseClock::now() >= lease_.runs_until();
  for (auto& [incarnation, worker] : workers_) {
    if (all_stand_still) worker->excuse(now);
    worker->on_time(now);
  }
  probe_listener_.on_time(now);
  prober_.on_time(now);
  claim_.on_time(now);
  notice_command_.on_time(now);
  if (now >= look_for_strays_at_) kill_strays();
  if (phase_ != Phase::lost) pump_.run();
  settle_workers();
  if (phase_ != Phase::lost) {
    Status flushed = link_.flush();
    if (flushed.ok() && link_reader_gone_) {
      flushed = Status(Code::unavailable, "the driver does not read its end of the link any more");
    }
    if (!flushed.ok()) fail_link(flushed);
  }
  finish_if_done();
}

void Supervisor::extend_deadlines(TimePoint now) {
  const Duration stopped = orphan_timer_.stopped_between(std::exchange(last_turn_, now), now);
  if (stopped == Duration::zero()) return;
  if (give_up_at_ != kNever) give_up_at_ += stopped;
  for (auto& [incarnation, worker] : workers_) worker->extend_deadline(stopped);
}

// The reapers do the freezing. (They do the killing, too, should this process be stopped.)
void Supervisor::obey_lease() {
  if (phase_ == Phase::lost || phase_ == Phase::over || phase_ == Phase::relieved) return;
  if (const TimePoint now = Clock::now(); now >= orphan_timer_.next_look()) {
    // The reapers do not count the time in which nobody is there to be heard.
    if (phase_ == Phase::holding) shared_lease_.note_heard();
    if (phase_ == Phase::holding && is_abandoned()) {
      HVD_LOG(info, "what had joined the job with this agent has ended");
      return lose_link();
    }
    const bool driver_is_stopped = is_stopped(shared_lease_.local_driver());
    driver_was_stopped_ = driver_was_stopped_ || driver_is_stopped;
    if (orphan_timer_.look(now, driver_is_stopped)) {
      HVD_LOG(error, "on " << host_name() << ": "
                           << (phase_ == Phase::holding ? "no hvdrun has come for "
                                                        : "nothing was heard from hvdrun for ")
                           << seconds_text(orphan_timer_.limit())
                           << (phase_ == Phase::holding ? " (--hold)" : "") << "; killing "
                           << workers_.size() << " workers and ending");
      return lose_link();
    }
  }
  if (LeaseClock::now() >= lease_.runs_until() && !std::exchange(saw_lease_end_, true)) {
    HVD_LOG(info, "nothing was heard from hvdrun; the workers are frozen");
    for (auto& [incarnation, worker] : workers_) worker->wake_reaper();
  }
}

TimePoint Supervisor::deadline() const {
  if (phase_ != Phase::lost && (pump_.ready() || has_requests())) return Clock::now();
  TimePoint first = std::min({give_up_at_, look_for_strays_at_, probe_listener_.deadline(),
                              prober_.deadline(), claim_.deadline(), notice_command_.deadline()});
  if (phase_ != Phase::lost && phase_ != Phase::relieved) {
    first = std::min(first, orphan_timer_.next_look());
  }
  if (phase_ != Phase::lost && !saw_lease_end_ && lease_.runs_until() != kNoLeaseEnd) {
    first = std::min(first, Clock::now() + (lease_.runs_until() - LeaseClock::now()));
  }
  for (const auto& [incarnation, worker] : workers_) first = std::min(first, worker->deadline());
  return first;
}

void Supervisor::on_link_readable() {
  Status status = link_.receive();
  if (status.ok()) {
    orphan_timer_.heard(Clock::now());
    shared_lease_.note_heard();
  }
  while (status.ok() && phase_ != Phase::lost) {
    auto frame = link_.next();
    if (!frame.ok()) {
      status = frame.status();
    } else if (!frame->has_value()) {
      return;
    } else if (phase_ != Phase::greeting && phase_ != Phase::holding && is_heartbeat(**frame)) {
      status = handle(**frame);  // the lease does not wait for what was asked before
    } else {
      queued_frames_.push_back(std::move(**frame));
    }
  }
  if (!status.ok()) fail_link(status);
}

Status Supervisor::handle_queued_frames() {
  const TimePoint enough = Clock::now() + kWorkAtOnce;
  while (has_requests() && phase_ != Phase::lost && phase_ != Phase::over) {
    const Frame frame = std::move(queued_frames_.front());
    queued_frames_.pop_front();
    HVD_RETURN_IF_ERROR(handle(frame));
    if (Clock::now() >= enough) break;
  }
  return {};
}

void Supervisor::problem(std::string message) {
  HVD_LOG(info, message);  // hvdrun shows it to people
  link_.send(agent_link::Problem{std::move(message)}.encode());
}

void Supervisor::end(int exit_code, TimePoint give_up_at) {
  if (phase_ != Phase::ending) exit_code_ = exit_code;
  phase_ = Phase::ending;
  notice_command_.stop();
  give_up_at_ = std::min(give_up_at_, give_up_at);
  for (const auto& [incarnation, worker] : workers_) changed_.insert(incarnation);
}

// The driver is gone, or sends invalid data: there is no job to work for any more.
void Supervisor::fail_link(const Status& why) {
  if (phase_ == Phase::lost || phase_ == Phase::over) return;
  if (may_hold(why)) return hold(why);
  if (sent_bye_ && why.code() == Code::unavailable) {
    phase_ = Phase::over;  // the driver closed the link after Shutdown
    return;
  }
  if (why.code() == Code::unavailable) {
    HVD_LOG(info, why.message() << "; killing " << workers_.size() << " workers");
  } else {
    const std::string message = cat("the link from hvdrun is broken: ", why.message());
    problem(message);
    // The driver learns the reason if it still reads; otherwise the log has it.
    if (!link_.flush().ok() || !link_.all_sent()) HVD_LOG(warning, message);
  }
  lose_link();
}

void Supervisor::lose_link() {
  drop_link();
  notice_command_.stop();
  for (auto& [incarnation, worker] : workers_) {
    worker->kill();
    changed_.insert(incarnation);
  }
  phase_ = Phase::lost;
  exit_code_ = 1;
  give_up_at_ = Clock::now() + kUnkillableTimeout;
}

void Supervisor::drop_link() {
  link_in_watch_.end();
  link_out_watch_.end();
  link_reader_gone_ = false;
}

// hvdrun has given this agent up, but its message was lost.
void Supervisor::on_superseded() {
  if (phase_ == Phase::lost || phase_ == Phase::over) return;
  HVD_LOG(warning, "a newer agent of this job is on " << host_name() << "; killing "
                                                      << workers_.size() << " workers");
  lose_link();
}

// A batch system signals every process of a step, and what started this agent passes the signal on:
// both are one notice.
bool Supervisor::is_same_notice(int number, TimePoint now) {
  if (number != SIGTERM) return false;
  const bool is_same = last_sigterm_ && now - *last_sigterm_ < kOneNotice;
  if (!is_same) last_sigterm_ = now;
  return is_same;
}

void Supervisor::on_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      on_child_ended();
    } else if (number == SIGUSR1) {
      if (phase_ == Phase::serving) link_.send(agent_link::ActivityWanted{}.encode());
      if (phase_ == Phase::relieved) pass_on(number);
    } else if (is_same_notice(number, Clock::now())) {
      continue;
    } else if (phase_ == Phase::relieved) {
      pass_on(number);
    } else if (phase_ == Phase::greeting || phase_ == Phase::claiming) {
      exit_code_ = 128 + number;
      phase_ = Phase::over;
    } else if (phase_ == Phase::serving && elastic_ && number == SIGTERM &&
               !std::exchange(announced_leaving_, true)) {
      // The job goes on elsewhere; workers here go on until they can leave at a commit.
      link_.send(agent_link::HostLeaves{}.encode());
    } else if (phase_ == Phase::serving || phase_ == Phase::holding) {
      problem(cat("the agent on ", host_name(), " was told to end by signal ", number,
                  "; it stops its workers"));
      const TimePoint now = Clock::now();
      for (auto& [incarnation, worker] : workers_) {
        worker->stop("the agent was told to end", grace_, now);
      }
      end(128 + number, now + grace_ + kUnkillableTimeout);
    } else if (phase_ == Phase::ending) {
      for (auto& [incarnation, worker] : workers_) worker->kill();  // asked twice
    }
  }
}

// SIGTERM that comes later is the first one all the same: a machine that is shut down sends it.
void Supervisor::on_notice(std::optional<milliseconds> left) {
  agent_link::HostLeaves leaves{.is_notice = true};
  if (left) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    leaves.left_ms = static_cast<std::int32_t>(std::min<std::int64_t>(left->count(), kMost));
  }
  link_.send(leaves.encode());
}

void Supervisor::pass_on(int signal) const {
  const auto reliever = unix_peer(reliever_.get());
  if (reliever) ::kill(reliever->pid, signal);
}

void Supervisor::on_child_ended() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | __WALL);
    if (pid <= 0) return;
    for (auto& [incarnation, worker] : workers_) {
      // A worker becomes our child only when its reaper was killed.
      if (worker->pid() == pid) worker->reaped_by_agent(status);
      if (worker->reaper_pid() != pid) continue;
      worker->reaper_waited_for();
      if (WIFSIGNALED(status)) look_for_strays_at_ = Clock::now();
    }
    if (notice_command_.reaper_pid() == pid) {
      notice_command_.reaper_waited_for();
      if (WIFSIGNALED(status)) look_for_strays_at_ = Clock::now();
    }
    std::erase(inherited_children_, pid);
  }
}

// The descendants of a killed reaper have become children of the agent, its subreaper.
void Supervisor::kill_strays() {
  std::vector<pid_t> spared = inherited_children_;
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker->reaper_gone()) spared.push_back(worker->reaper_pid());
  }
  if (!notice_command_.is_over()) spared.push_back(notice_command_.reaper_pid());
  const auto pass = kill_descendants(
      ::getpid(), [this] { on_child_ended(); }, spared);
  on_child_ended();
  look_for_strays_at_ = pass.found.empty() ? kNever : Clock::now() + kStrayPause;
}

void Supervisor::settle_workers() {
  for (const auto incarnation : std::exchange(changed_, {})) {
    const auto found = workers_.find(incarnation);
    if (found == workers_.end()) continue;
    Worker& worker = *found->second;
    if (worker.reaper_lost()) look_for_strays_at_ = std::min(look_for_strays_at_, Clock::now());
    if (phase_ == Phase::ending && worker.reaper_gone()) worker.end_output();
    const bool over = worker.settle();
    if (over || (phase_ == Phase::lost && worker.reaper_gone())) workers_.erase(found);
  }
}

void Supervisor::finish_if_done() {
  if (phase_ != Phase::ending && phase_ != Phase::lost) return;
  const bool is_too_late = Clock::now() >= give_up_at_;
  if (!workers_.empty() && is_too_late) {
    for (auto found = workers_.begin(); found != workers_.end();) {
      // Only output that the driver has not taken yet is missing: its sender may wait.
      if (found->second->reaper_gone() && phase_ == Phase::ending) {
        ++found;
        continue;
      }
      problem(cat("worker ", found->second->name(), " has processes that SIGKILL does not end"));
      found = workers_.erase(found);
    }
    give_up_at_ = kNever;
  }
  if (!workers_.empty() || look_for_strays_at_ != kNever) return;
  if (!notice_command_.is_over() && !is_too_late && give_up_at_ != kNever) return;
  if (phase_ == Phase::lost) {
    phase_ = Phase::over;
    return;
  }
  if (!std::exchange(sent_bye_, true)) {
    link_.send(agent_link::Bye{}.encode());
    if (const Status flushed = link_.flush(); !flushed.ok()) return fail_link(flushed);
  }
  if (link_.all_sent()) phase_ = Phase::over;
}

}  // namespace hvd::agent
