#include "worker/process/agent_channel.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine/machine.h"
#include "base/machine/own_time.h"
#include "base/printable.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/versions.h"
#include "runtime/core/threads.h"
#include "worker/process/lost_launch.h"

namespace hvd::worker {
namespace {

constexpr int kExitWithoutAgent = 1;
constexpr std::chrono::seconds kSendTimeout{10};
constexpr std::chrono::seconds kWelcomeTimeout{10};
// Looked at in each kOwnTimePace.
constexpr std::chrono::milliseconds kReportWorkEvery{900};

Status refuse(const std::string& descriptor, const char* why) {
  return {Code::invalid_argument, cat(worker_link::kDescriptorVariable, "=", descriptor, ": ", why,
                                      ". hvdrun sets it; do not set or keep it by hand.")};
}

Status refuse_closed(const std::string& descriptor) {
  return {Code::failed_precondition,
          cat(worker_link::kDescriptorVariable, "=", descriptor,
              ": the link to hvdrun is closed in this process. ", closed_link_text())};
}

// hvdrun and this library do not understand each other: both builds, and the host.
Status other_version(const std::string& hvdrun) {
  return {Code::failed_precondition,
          cat("on host ", machine_name(), " the program is linked with hvd of build ", build_id(),
              " (version ", wire_versions().worker_link,
              " of the link to hvdrun), but it was "
              "started by hvdrun of ",
              hvdrun,
              ": build the program with the hvd of that hvdrun, or start it by the hvdrun of its "
              "own hvd")};
}

// hvdrun hears it, too, and does not try again in this slot.
Status refuse_version(int descriptor, const std::string& hvdrun) {
  Status why = other_version(hvdrun);
  const worker_link::Left left{why.message().substr(0, worker_link::Left::kMaxReason), true};
  if (const Status told = send_all(descriptor, left.encode(), Clock::now() + kSendTimeout);
      !told.ok()) {
    HVD_LOG(warning, "tell the agent: " << told.to_string());
  }
  return why;
}

// Without it the agent hears of this process's death only when its memory is freed.
std::optional<LifeLock> take_life_lock(const std::string& descriptor) {
  const auto number = parse_number<int>(descriptor);
  if (!number) return std::nullopt;
  auto lock = LifeLock::open(*number);
  if (!lock.ok()) {
    HVD_LOG(info, worker_link::kLifeLockVariable << ": " << lock.status().message());
    return std::nullopt;
  }
  ::close(*number);
  return *std::move(lock);
}

Result<worker_link::World> receive_world(int descriptor, FrameDecoder& decoder) {
  auto frame = receive_frame(descriptor, decoder, Clock::now() + kWelcomeTimeout);
  HVD_RETURN_IF_ERROR(frame.status());
  if (frame->kind != static_cast<std::uint16_t>(worker_link::Kind::world)) {
    return Status(Code::data_loss, cat("a frame of kind ", frame->kind));
  }
  return worker_link::World::decode(frame->payload);
}

}  // namespace

Result<AgentChannel*> AgentChannel::open(const std::string& descriptor,
                                         const std::string& life_lock) {
  const auto number = parse_number<int>(descriptor);
  if (!number || *number < 0) return refuse(descriptor, "that is not a descriptor");

  struct stat info {};
  if (::fstat(*number, &info) != 0 || !S_ISSOCK(info.st_mode)) return refuse_closed(descriptor);

  // The beginning of the Welcome was sent before this program started: if there is nothing to read,
  // another process has read it. The rest of a large one follows as it is read.
  if (!wait_for(*number, POLLIN, Clock::now()).ok()) {
    return Status(Code::failed_precondition,
                  "another process of this worker, or another copy of hvd's library in this one, "
                  "has called hvd::init() already; in each slot of hvdrun one process can be the "
                  "worker, with one copy of the library");
  }

  FrameDecoder decoder;
  auto frame = receive_frame(*number, decoder, Clock::now() + kWelcomeTimeout);
  HVD_RETURN_IF_ERROR(frame.status().with_context("the agent's welcome"));
  if (frame->kind == static_cast<std::uint16_t>(worker_link::Kind::unversioned_welcome)) {
    return other_version("an older build, from before its link had a version");
  }
  if (frame->kind != static_cast<std::uint16_t>(worker_link::Kind::welcome)) {
    return Status(Code::data_loss, cat("the agent's welcome: a frame of kind ", frame->kind));
  }
  const auto head = worker_link::WelcomeHead::decode(frame->payload);
  HVD_RETURN_IF_ERROR(head.status());
  if (head->version != wire_versions().worker_link) {
    return refuse_version(*number, cat("build ", printable(head->build_id), " (version ",
                                       head->version, " of that link)"));
  }
  auto welcome = worker_link::Welcome::decode(frame->payload);
  wipe(frame->payload);
  HVD_RETURN_IF_ERROR(welcome.status());

  std::optional<WorldDocument> first_world;
  std::string first_key;
  if (welcome->world_follows) {
    constexpr std::string_view kWhat = "the world that follows the agent's welcome";
    auto message = receive_world(*number, decoder);
    HVD_RETURN_IF_ERROR(message.status().with_context(kWhat));
    auto world = WorldDocument::decode(message->document);
    HVD_RETURN_IF_ERROR(world.status().with_context(kWhat));
    first_world = *std::move(world);
    first_key = std::move(message->key);
  }

  // Programs that this one starts must not hold the link open.
  ::fcntl(*number, F_SETFD, FD_CLOEXEC);
  // Never deleted: its thread runs as long as the process.
  return new AgentChannel(UniqueFd(*number), std::move(decoder), std::move(*welcome),
                          std::move(first_world), std::move(first_key), take_life_lock(life_lock));
}

AgentChannel::AgentChannel(UniqueFd fd, FrameDecoder decoder, worker_link::Welcome welcome,
                           std::optional<WorldDocument> first_world, std::string first_key,
                           std::optional<LifeLock> life_lock)
    : opener_(::getpid()),
      fd_(std::move(fd)),
      life_lock_(std::move(life_lock)),
      decoder_(std::move(decoder)),
      welcome_(std::move(welcome)),
      first_world_(std::move(first_world)),
      first_key_(std::move(first_key)),
      rendezvous_{welcome_.rendezvous_host, welcome_.rendezvous_port} {
  watcher_ = runtime::start_thread("hvd-agent-link", [this] { watch(); });
}

rendezvous::ClientOptions AgentChannel::rendezvous_options() const {
  rendezvous::ClientOptions options;
  options.server = [this] { return rendezvous(); };
  options.worker = welcome_.incarnation;
  return options;
}

SocketAddress AgentChannel::rendezvous() const {
  const std::lock_guard lock(mutex_);
  return rendezvous_;
}

bool AgentChannel::is_of_this_process() const { return opener_ == ::getpid(); }

void AgentChannel::end_process(const std::string& why) {
  const std::string line = cat("hvd: ", why, "; this worker ends\n");
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(kExitWithoutAgent);
}

void AgentChannel::watch() {
  if (life_lock_) life_lock_->hold();
  for (;;) {
    const TimePoint now = Clock::now();
    look_at_own_time(now);
    if (now >= report_at_) {
      report_at_ = now + kReportWorkEvery;
      send_work();
    }
    auto frame = receive_frame(fd_.get(), decoder_, std::min(now + kOwnTimePace, late_at()));
    if (frame.status().code() == Code::deadline_exceeded) {
      if (late_at() <= Clock::now()) end_if_late();
      continue;
    }
    if (!frame.ok()) {
      end_process(
          frame.status().code() == Code::unavailable
              ? "the agent of this host is gone, and with it the job"
              : cat("the link to the agent of this host broke: ", frame.status().to_string()));
    }
    handle(*frame);
  }
}

TimePoint AgentChannel::late_at() const {
  {
    const std::lock_guard lock(mutex_);
    if (!listener_.late_at) return kNever;
  }
  return listener_.late_at();  // which stays as it is once it is there
}

void AgentChannel::end_if_late() {
  if (const auto why = listener_.late()) end_process(*why);
}

void AgentChannel::send_work() {
  std::unique_lock lock(mutex_);
  const auto read = work_;
  lock.unlock();
  // If it cannot be told, the next read says why.
  if (read) (void)send(worker_link::WorkReport{read()}.encode());
}

void AgentChannel::handle(const Frame& frame) {
  switch (static_cast<worker_link::Kind>(frame.kind)) {
    case worker_link::Kind::world: {
      auto message = worker_link::World::decode(frame.payload);
      if (!message.ok()) break;
      std::unique_lock lock(mutex_);
      if (!listener_.world) {
        unheard_.push_back(std::move(*message));
        return;
      }
      lock.unlock();
      listener_.world(*message);
      return;
    }
    case worker_link::Kind::ping:
      // If it cannot be told, the next read says why.
      (void)send(worker_link::Alive{}.encode());
      return;
    case worker_link::Kind::ask_activity: {
      const auto question = worker_link::AskActivity::decode(frame.payload);
      if (!question.ok()) break;
      std::unique_lock lock(mutex_);
      const auto ask = activity_;
      lock.unlock();
      const bool wants_dump = question->id != worker_link::Activity::kAtTheEnd;
      // If it cannot be told, the next read says why.
      (void)send_activity(question->id,
                          ask ? ask(wants_dump) : Activity{0, "is in no world yet", "nothing", {}});
      return;
    }
    case worker_link::Kind::driver_gone: {
      const auto message = worker_link::DriverGone::decode(frame.payload);
      if (!message.ok()) break;
      handle(*message);
      return;
    }
    case worker_link::Kind::stop: {
      auto message = worker_link::Stop::decode(frame.payload);
      if (!message.ok()) break;
      std::unique_lock lock(mutex_);
      stop_reason_ = std::move(message->reason);
      stopped_.notify_all();
      if (!listener_.stop) return;
      lock.unlock();
      listener_.stop();
      return;
    }
    default:
      break;
  }

  HVD_LOG(warning, "the agent sent something that cannot be read, of kind " << frame.kind);
}

void AgentChannel::handle(const worker_link::DriverGone& message) {
  std::unique_lock lock(mutex_);
  if (message.rendezvous_port != 0) {
    rendezvous_ = {message.rendezvous_host, message.rendezvous_port};
  }
  driver_is_gone_ = message.gone;
  driver_came_.notify_all();
  const CommitId mark = mark_;
  const bool is_heard = static_cast<bool>(listener_.driver_gone);
  lock.unlock();
  // The service that this mark stood in may be gone for good. If it cannot be told, the next read
  // says why.
  if (message.gone && !mark.none()) (void)send(worker_link::Mark{to_text(mark)}.encode());
  if (is_heard) listener_.driver_gone(message.gone);
}

bool AgentChannel::wait_for_driver(TimePoint deadline) const {
  std::unique_lock lock(mutex_);
  return driver_came_.wait_until(lock, deadline, [this] { return !driver_is_gone_; });
}

Status AgentChannel::keep_mark(const CommitId& id) {
  if (id.none()) return {};
  {
    const std::lock_guard lock(mutex_);
    mark_ = std::max(mark_, id);
    if (!driver_is_gone_) return {};
  }
  return send(worker_link::Mark{to_text(id)}.encode());
}

void AgentChannel::listen(Listener listener) {
  std::unique_lock lock(mutex_);
  while (!unheard_.empty()) {
    const auto worlds = std::exchange(unheard_, {});
    lock.unlock();
    for (const auto& world : worlds) listener.world(world);
    lock.lock();
  }
  listener_ = std::move(listener);
  const bool is_gone = driver_is_gone_ && listener_.driver_gone;
  lock.unlock();
  if (is_gone) listener_.driver_gone(true);
}

void AgentChannel::answer_by(std::function<Activity(bool)> activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
}

void AgentChannel::report_work_by(std::function<WorkReading()> reading) {
  const std::lock_guard lock(mutex_);
  work_ = std::move(reading);
}

std::optional<std::string> AgentChannel::stop_reason() const {
  const std::lock_guard lock(mutex_);
  return stop_reason_;
}

bool AgentChannel::wait_for_stop(TimePoint deadline) const {
  std::unique_lock lock(mutex_);
  return stopped_.wait_until(lock, deadline, [this] { return stop_reason_.has_value(); });
}

Status AgentChannel::send(const std::string& frame) {
  const std::lock_guard lock(send_mutex_);
  return sender_.send(fd_.get(), frame, Clock::now() + kSendTimeout).with_context("tell the agent");
}

Status AgentChannel::send_initialised() {
  return send(worker_link::Initialised{static_cast<std::int32_t>(::getpid())}.encode());
}

Status AgentChannel::send_done() {
  send_work();
  return send(worker_link::Done{}.encode());
}
Status AgentChannel::send_ready() { return send(worker_link::Ready{}.encode()); }
Status AgentChannel::send_leave() { return send(worker_link::Leave{}.encode()); }
Status AgentChannel::send_activity_wanted() { return send(worker_link::ActivityWanted{}.encode()); }
Status AgentChannel::send_activity(const Activity& activity) {
  // The operations that are in flight fail after this: no agent may hold them up.
  HVD_RETURN_IF_ERROR(wait_for(fd_.get(), POLLOUT, Clock::now() + worker_link::kLastWordsTimeout));
  return send_activity(worker_link::Activity::kAtTheEnd, activity);
}
Status AgentChannel::send_activity(std::uint32_t id, const Activity& activity) {
  const auto cut = [](const std::string& text) {
    return text.substr(0, worker_link::Activity::kMaxText);
  };
  return send(worker_link::Activity{id, activity.generation, cut(activity.in_flight),
                                    cut(activity.last), cut(activity.missing)}
                  .encode());
}
Status AgentChannel::send_left(const std::string& reason, bool for_good) {
  send_work();
  return send(
      worker_link::Left{reason.substr(0, worker_link::Left::kMaxReason), for_good}.encode());
}
Status AgentChannel::send_unreachable(const std::string& host) {
  return send(worker_link::Unreachable{host}.encode());
}
Status AgentChannel::send_committed(std::uint64_t generation) {
  return send(worker_link::Committed{generation}.encode());
}

}  // namespace hvd::worker
