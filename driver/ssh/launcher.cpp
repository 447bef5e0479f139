#include "driver/ssh/launcher.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "driver/ssh/carrier.h"
#include "driver/ssh/small_thread.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::chrono::seconds kPatienceWithThreads{2};

// One host on its way. Belongs to the Attempt and to the thread that works on it.
struct Work {
  Target target;
  Signal given_up;
  std::mutex mutex;  // held during callbacks, so that none outlives the Attempt
  Callbacks callbacks;
  bool forsaken = false;

  void step(Step step) {
    const std::scoped_lock lock(mutex);
    if (!forsaken && callbacks.on_step) callbacks.on_step(step);
  }
  void end(std::variant<AgentConnection, HostTrouble> result) {
    const std::scoped_lock lock(mutex);
    if (!forsaken && callbacks.on_end) callbacks.on_end(std::move(result));
    forsaken = true;
  }
};

class RealAttempt final : public Launcher::Attempt {
 public:
  explicit RealAttempt(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  ~RealAttempt() override {
    work_->given_up.raise();
    const std::scoped_lock lock(work_->mutex);
    work_->forsaken = true;
  }

 private:
  std::shared_ptr<Work> work_;
};

}  // namespace

// Belongs to the Launcher and to each of its threads.
class Launcher::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  void end() {
    {
      std::unique_lock lock(mutex_);
      waiting_.clear();
      for (const auto& work : under_way_) work->given_up.raise();
      // They wait for nothing but what their Signal ends; only what they read here, keys and
      // configuration, may lie on a file system that does not answer. Such a thread is left to
      // itself, and gives up as soon as it can.
      idle_.wait_for(lock, kPatienceWithThreads, [this] { return threads_ == 0; });
    }
    const std::scoped_lock lock(carrier_mutex_);
    ended_ = true;
    carrier_.reset();
  }

  std::unique_ptr<Attempt> start(Target target, Callbacks callbacks) {
    auto work = std::make_shared<Work>();
    work->target = std::move(target);
    work->callbacks = std::move(callbacks);
    auto attempt = std::make_unique<RealAttempt>(work);
    std::unique_lock lock(mutex_);
    waiting_.push_back(work);
    if (threads_ >= std::max(1, options_.parallel)) return attempt;
    const Status status = start_small_thread([self = shared_from_this()] { self->work_off(); });
    if (status.ok()) ++threads_;
    if (threads_ > 0) return attempt;
    waiting_.pop_back();
    lock.unlock();
    work->end(HostTrouble{.step = Step::resolve, .message = status.message()});
    return attempt;
  }

 private:
  // A thread of the pool: takes host after host, and ends when none waits.
  void work_off() {
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      const std::shared_ptr<Work> work = std::move(waiting_.front());
      waiting_.pop_front();
      under_way_.push_back(work);
      lock.unlock();
      if (!work->given_up.raised()) bring_up(*work);
      lock.lock();
      std::erase(under_way_, work);
    }
    --threads_;
    idle_.notify_all();
  }

  void bring_up(Work& work) {
    Step step = Step::resolve;
    const auto begin = [&](Step next) {
      step = next;
      work.step(next);
    };
    begin(Step::resolve);
    auto connection = connect_and_start(work, begin);
    if (connection.ok()) return work.end(std::move(*connection));
    work.end(HostTrouble{.step = step, .message = connection.status().message()});
  }

  Result<AgentConnection> connect_and_start(Work& work, const std::function<void(Step)>& begin) {
    auto route = plan_route(options_, work.target);
    if (!route.ok()) return route.status();
    const auto patience = [&](std::chrono::milliseconds limit) {
      return Patience{.given_up = &work.given_up, .deadline = Clock::now() + limit};
    };
    auto connected = connect(*route, patience(options_.connect_timeout), begin);
    if (!connected.ok()) return connected.status();
    ssh_session const session = connected->session.get();

    begin(Step::host_key);
    HVD_RETURN_IF_ERROR(check_host_key(session, *route));
    begin(Step::authenticate);
    HVD_RETURN_IF_ERROR(authenticate(session, *route, patience(options_.step_timeout)));

    begin(Step::start_agent);
    const auto image = agent();
    if (!image.ok()) return image.status();
    auto started = start_agent(session, **image, options_.cache_directory, work.given_up,
                               options_.step_timeout, [&] { begin(Step::start_agent); });
    if (!started.ok()) return started.status();
    const auto carrier = this->carrier();
    if (!carrier.ok()) return carrier.status();
    auto carried = (*carrier)->take({.proxy = std::move(connected->proxy),
                                     .session = std::move(connected->session),
                                     .channel = started->channel,
                                     .first_bytes = std::move(started->first_bytes)});
    if (!carried.ok()) return carried.status();
    return AgentConnection{.link = std::move(carried->link),
                           .hold = std::move(carried->hold),
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

  Result<std::shared_ptr<Carrier>> carrier() {
    const std::scoped_lock lock(carrier_mutex_);
    if (ended_) return Status(Code::aborted, "given up");
    if (carrier_ == nullptr) {
      auto carrier = Carrier::create();
      if (!carrier.ok()) return carrier.status();
      carrier_ = std::move(*carrier);
    }
    return carrier_;
  }

  const Options options_;

  std::mutex image_mutex_;
  std::shared_ptr<const AgentImage> image_;  // made when first needed, as is the carrier
  std::mutex carrier_mutex_;
  std::shared_ptr<Carrier> carrier_;
  bool ended_ = false;

  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::shared_ptr<Work>> waiting_;
  std::vector<std::shared_ptr<Work>> under_way_;
  int threads_ = 0;
};

Launcher::Launcher(Options options) : impl_(std::make_shared<Impl>(std::move(options))) {}
Launcher::~Launcher() { impl_->end(); }

std::unique_ptr<Launcher::Attempt> Launcher::start(Target target, Callbacks callbacks) {
  return impl_->start(std::move(target), std::move(callbacks));
}

}  // namespace hvd::driver::ssh
