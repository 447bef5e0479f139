// Supervisor's part of a change of drivers: one hvdrun has died, and a later one goes on.
#include <csignal>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/frame.h"
#include "base/log.h"
#include "base/machine/proc.h"
#include "base/protocol/commit_id.h"
#include "base/security/unix_peer.h"
#include "base/text.h"
#include "cmd/hvd-agent/supervisor.h"

namespace hvd::agent {
namespace {

// For an older agent to take a link that lies in its socket's buffer.
constexpr std::chrono::seconds kPassTimeout{5};

}  // namespace

// An agent that the driver has damaged, or that it does not read any more, is no agent for the next
// one.
bool Supervisor::may_hold(const Status& why) const {
  const bool has_ended = why.code() != Code::data_loss && why.code() != Code::resource_exhausted;
  return hold_.count() > 0 && has_ended && (phase_ == Phase::serving || phase_ == Phase::holding);
}

void Supervisor::hold(const Status& why) {
  handover_.release_messenger(0);
  give_link_up(why);
}

void Supervisor::give_link_up(const Status& why) {
  drop_link();
  queued_frames_.clear();
  world_keys_ = {};
  link_.cut();
  if (phase_ == Phase::holding) return;  // the next driver has died, too, before its Hello

  phase_ = Phase::holding;
  HVD_LOG(info, why.message() << "; " << workers_.size() << " workers run on for "
                              << seconds_text(hold_) << " (--hold)");
  forget_standard_error();
  orphan_timer_ = OrphanTimer(hold_, Clock::now());
  // Nobody renews the lease. Workers that were frozen before stay so: their driver had gone silent,
  // and may have given them up.
  if (LeaseClock::now() < lease_.runs_until()) {
    lease_ = Lease();
    shared_lease_.write(lease_);
  }
  for (auto& [incarnation, worker] : workers_) {
    output_in_flight_ += worker->renew_output();
    worker->tell_driver_gone(true);
  }
}

void Supervisor::take_link(HandedLink link) {
  if (phase_ != Phase::serving && phase_ != Phase::holding) return;
  // The link of a machine that has died does not end. The messenger is that of the new link.
  if (phase_ == Phase::serving) give_link_up({Code::unavailable, "another hvdrun has come"});
  link_.renew(std::move(link.in), std::move(link.out), link.received);
  ::dup2(link.log.get(), STDERR_FILENO);
  next_driver_ = link.parent;
  if (const Status watched = watch_link(); !watched.ok()) return hold(watched);
  on_link_readable();
}

Status Supervisor::resume(const agent_link::Hello& hello) {
  if (hello.epoch <= epoch_) {
    return {Code::failed_precondition, cat("it is driver ", hello.epoch, " of the job, and driver ",
                                           epoch_, " has been here")};
  }
  epoch_ = hello.epoch;
  hold_ = milliseconds(hello.hold_ms);
  phase_ = Phase::serving;
  begin_lease(hello, hello.local ? next_driver_ : 0);
  saw_lease_end_ = false;

  ready_.was_held = true;
  link_.send_first(ready_.encode());
  if (!commit_mark_.empty()) {
    link_.send(agent_link::CommitMark{commit_mark_}.encode());
  }
  for (auto& [incarnation, worker] : workers_) worker->renew_output();
  link_.repeat_reports([this](const agent_link::Output& output) {
    const auto worker = workers_.find(output.incarnation);
    if (worker != workers_.end()) worker->second->use_window(output.stream, output.bytes.size());
  });

  const std::uint64_t lost_output =
      link_.take_dropped_output() + std::exchange(output_in_flight_, 0);
  notice_command_.check_lease();
  for (auto& [incarnation, worker] : workers_) {
    if (!hello.rendezvous_follows) worker->tell_driver_gone(false);
    worker->check_lease();  // it has an end again, or they were frozen
    worker->excuse(Clock::now());
  }
  if (lost_output > 0) {
    problem(cat("up to ", lost_output,
                " bytes of the workers' output are lost: there was no hvdrun to take them"));
  }
  return {};
}

Status Supervisor::on(agent_link::Rendezvous rendezvous) {
  context_.rendezvous = {std::move(rendezvous.host), rendezvous.port};
  for (auto& [incarnation, worker] : workers_) worker->tell_driver_gone(false);
  return {};
}

bool Supervisor::is_abandoned() const { return joiner_ != 0 && ::getppid() != joiner_; }

void Supervisor::on_messenger_gone() {
  if (phase_ == Phase::serving || phase_ == Phase::holding) lose_link();
}

bool Supervisor::relieve(const agent_link::Hello& hello) {
  HandedLink link;
  const std::string name = handover_name(claim_name(hello.job_id, hello.host));
  auto parts = link_.release();
  link.in = std::move(parts.in);
  link.out = std::move(parts.out);
  link.received = hello.encode();
  for (const auto& frame : queued_frames_) link.received += encode_frame(frame.kind, frame.payload);
  link.received += parts.received;
  link.log = UniqueFd(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  link.parent = ::getppid();

  auto reliever = hand_over(name, link, Clock::now() + kPassTimeout);
  if (reliever.ok()) {
    drop_link();
    queued_frames_.clear();
    auto watch = loop_->watch(reliever->get(), EPOLLIN, [this](std::uint32_t) { on_reliever(); });
    if (watch.ok()) {
      HVD_LOG(info, "an older agent of this job holds workers on this host, and serves the link");
      reliever_ = std::move(*reliever);
      reliever_watch_ = std::move(*watch);
      phase_ = Phase::relieved;
      return true;
    }
  }
  link_.renew(std::move(link.in), std::move(link.out), parts.received);
  return false;
}

void Supervisor::on_reliever() {
  const auto code = exit_code_from(reliever_.get());
  if (!code) return;
  exit_code_ = *code;
  phase_ = Phase::over;
}

// A mark that comes while there is a driver was made before the worker has heard of that. That
// driver may die before it has kept it, and the worker may be gone then: so each driver hears it.
void Supervisor::on_commit_mark(std::string commit) {
  const auto told = commit_id_from_text(commit);
  if (!told.ok()) return problem(cat("a worker's commit has no number: ", told.status().message()));
  if (phase_ == Phase::serving) link_.send(agent_link::CommitMark{commit}.encode());
  const auto newest = commit_id_from_text(commit_mark_);
  if (!newest.ok() || *newest < *told) commit_mark_ = std::move(commit);
}

}  // namespace hvd::agent
