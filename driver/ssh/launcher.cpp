#include "driver/ssh/launcher.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/threads.h"
#include "driver/ssh/steps.h"
#include "driver/ssh/tunnel_multiplexer.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::chrono::seconds kThreadTimeout{2};  // for the threads to end with the launcher

// The start of one agent. Shared by its Attempt and the thread that works on it.
struct Work {
  Target target;
  EventFlag stop;
  std::mutex mutex;  // held during callbacks, so that none outlives the Attempt
  Callbacks callbacks;
  bool detached = false;  // there are no more callbacks

  void step(Step step) {
    const std::scoped_lock lock(mutex);
    if (!detached && callbacks.on_step) callbacks.on_step(step);
  }
  void warn(const std::string& text) {
    const std::scoped_lock lock(mutex);
    if (!detached && callbacks.on_warning) callbacks.on_warning(text);
  }
  void end(std::variant<AgentConnection, HostError> result) {
    const std::scoped_lock lock(mutex);
    if (!detached && callbacks.on_end) callbacks.on_end(std::move(result));
    detached = true;
  }
};

class RealAttempt final : public Launcher::Attempt {
 public:
  explicit RealAttempt(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  ~RealAttempt() override {
    work_->stop.set();
    const std::scoped_lock lock(work_->mutex);
    work_->detached = true;
  }

 private:
  std::shared_ptr<Work> work_;
};

}  // namespace

// Shared by the Launcher and each of its threads, one of which may be left behind.
class Launcher::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  void end() {
    {
      const std::scoped_lock lock(mutex_);
      waiting_.clear();
      for (const auto& work : in_progress_) work->stop.set();
    }
    // Everything that the threads wait for ends with the stop flag, except the reads of keys and
    // configuration files, which may lie on a file system that does not answer. A thread that hangs
    // there cannot be interrupted: it is left behind, holds this object, and ends after that read.
    // There are at most Options::parallel of them.
    threads_.join_until(Clock::now() + kThreadTimeout);

    const std::scoped_lock lock(multiplexer_mutex_);
    ended_ = true;
    multiplexer_.reset();
  }

  std::unique_ptr<Attempt> start(Target target, Callbacks callbacks) {
    auto work = std::make_shared<Work>();
    work->target = std::move(target);
    work->callbacks = std::move(callbacks);
    auto attempt = std::make_unique<RealAttempt>(work);

    std::unique_lock lock(mutex_);
    waiting_.push_back(work);
    if (workers_ >= std::max(1, options_.parallel)) return attempt;
    const Status status = threads_.start([self = shared_from_this()] { self->process_queue(); });
    if (status.ok()) ++workers_;
    if (workers_ > 0) return attempt;

    waiting_.pop_back();
    lock.unlock();
    work->end(HostError{.step = Step::resolve, .message = status.message()});
    return attempt;
  }

 private:
  // A thread of the pool: takes one host after the other, and ends when none waits.
  void process_queue() {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      const std::shared_ptr<Work> work = std::move(waiting_.front());
      waiting_.pop_front();
      in_progress_.push_back(work);
      lock.unlock();
      if (!work->stop.is_set()) run_attempt(*work);
      lock.lock();
      std::erase(in_progress_, work);
    }
    --workers_;
  }

  void run_attempt(Work& work) {
    Step step = Step::resolve;
    const auto begin = [&](Step next) {
      step = next;
      work.step(next);
    };
    begin(Step::resolve);
    auto connection = connect_and_start(work, begin);
    if (connection.ok()) return work.end(std::move(*connection));
    work.end(HostError{.step = step, .message = connection.status().message()});
  }

  bool is_new_warning(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    return warnings_.insert(text).second;
  }

  Result<AgentConnection> connect_and_start(Work& work, const std::function<void(Step)>& begin) {
    const auto within = [&](std::chrono::milliseconds limit) {
      return Deadline{.stop = &work.stop, .at = Clock::now() + limit};
    };
    const auto warn = [&](const std::string& text) {
      if (is_new_warning(text)) work.warn(text);
    };
    auto route = plan_route(options_, work.target, within(options_.connect_timeout), warn);
    if (!route.ok()) return route.status();
    auto connected = connect(*route, within(options_.connect_timeout), begin);
    if (!connected.ok()) return connected.status();
    ssh_session const session = connected->session.get();

    begin(Step::host_key);
    HVD_RETURN_IF_ERROR(check_host_key(session, *route, warn));
    begin(Step::authenticate);
    HVD_RETURN_IF_ERROR(authenticate(session, *route, within(options_.step_timeout)));

    begin(Step::start_agent);
    bool is_copied = false;
    const auto image = agent();
    if (!image.ok()) return image.status();
    auto started = start_agent(session, **image, options_.cache_directory, work.stop,
                               options_.step_timeout, [&] {
                                 is_copied = true;
                                 work.step(Step::copy_agent);
                               });
    if (started.ok() && is_copied) begin(Step::start_agent);
    if (!started.ok()) return started.status();

    const auto multiplexer = this->multiplexer();
    if (!multiplexer.ok()) return multiplexer.status();
    auto opened = (*multiplexer)
                      ->add({.proxy = std::move(connected->proxy),
                             .session = std::move(connected->session),
                             .channel = started->channel,
                             .first_bytes = std::move(started->first_bytes)});
    if (!opened.ok()) return opened.status();
    return AgentConnection{.link = std::move(opened->link),
                           .handle = std::move(opened->handle),
                           .local_address = std::move(connected->local_address),
                           .peer_address = std::move(connected->peer_address)};
  }

  Result<std::shared_ptr<const AgentImage>> agent() {
    const std::scoped_lock lock(image_mutex_);
    if (image_ == nullptr) {
      auto image = read_agent(options_.agent_path);
      if (!image.ok()) return image.status();
      image_ = std::move(*image);
    }
    return image_;
  }

  Result<std::shared_ptr<TunnelMultiplexer>> multiplexer() {
    const std::scoped_lock lock(multiplexer_mutex_);
    if (ended_) return Status(Code::aborted, "given up");
    if (multiplexer_ == nullptr) {
      auto multiplexer = TunnelMultiplexer::create();
      if (!multiplexer.ok()) return multiplexer.status();
      multiplexer_ = std::move(*multiplexer);
    }
    return multiplexer_;
  }

  const Options options_;

  std::mutex image_mutex_;
  std::shared_ptr<const AgentImage> image_;  // read when it is first needed
  std::mutex multiplexer_mutex_;
  std::shared_ptr<TunnelMultiplexer> multiplexer_;  // created when it is first needed
  bool ended_ = false;

  std::mutex mutex_;
  std::deque<std::shared_ptr<Work>> waiting_;
  std::vector<std::shared_ptr<Work>> in_progress_;
  std::set<std::string> warnings_;  // given so far
  int workers_ = 0;                 // threads that will look at `waiting_` again
  ThreadGroup threads_;
};

Launcher::Launcher(Options options) : impl_(std::make_shared<Impl>(std::move(options))) {}
Launcher::~Launcher() { impl_->end(); }

std::unique_ptr<Launcher::Attempt> Launcher::start(Target target, Callbacks callbacks) {
  return impl_->start(std::move(target), std::move(callbacks));
}

}  // namespace hvd::driver::ssh
