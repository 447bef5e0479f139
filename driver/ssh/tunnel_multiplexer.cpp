#include "driver/ssh/tunnel_multiplexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <sys/epoll.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "base/threads.h"
#include "driver/ssh/deadline.h"

namespace hvd::driver::ssh {
namespace {

// The requests of other threads to the multiplexer's thread.
struct Requests {
  EventFlag wake;
  std::mutex mutex;
  std::vector<std::unique_ptr<Tunnel>> arrivals;
  std::vector<std::shared_ptr<TunnelEnd>> to_drop;
  bool stop = false;
};

class TunnelHandle final : public AgentHandle {
 public:
  TunnelHandle(std::shared_ptr<TunnelEnd> end, std::shared_ptr<Requests> requests)
      : end_(std::move(end)), requests_(std::move(requests)) {}
  ~TunnelHandle() override { request_drop(); }

  int ended_fd() const override { return end_->ended.fd(); }
  void kill() override { request_drop(); }
  std::string reap() override {
    const std::scoped_lock lock(end_->mutex);
    return end_->reason;
  }

 private:
  void request_drop() {
    {
      const std::scoped_lock lock(requests_->mutex);
      requests_->to_drop.push_back(end_);
    }
    requests_->wake.set();
  }
  std::shared_ptr<TunnelEnd> end_;
  std::shared_ptr<Requests> requests_;
};

}  // namespace

class TunnelMultiplexer::Impl {
 public:
  explicit Impl(UniqueFd epoll) : epoll_(std::move(epoll)) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = requests_->wake.fd();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event.data.fd, &event);
  }
  ~Impl() {
    {
      const std::scoped_lock lock(requests_->mutex);
      requests_->stop = true;
    }
    requests_->wake.set();
    threads_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status begin() {
    return threads_.start([this] { run(); }).with_context("carry the SSH sessions");
  }
  std::shared_ptr<Requests> requests() const { return requests_; }

 private:
  void run() {
    std::array<epoll_event, 64> events{};
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms());
      std::set<Tunnel*> ready;
      std::swap(ready, again_);
      bool stop = false;
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == requests_->wake.fd()) {
          stop = take_requests(ready);
        } else if (const auto tunnel = by_fd_.find(fd); tunnel != by_fd_.end()) {
          ready.insert(tunnel->second);
        }
      }
      if (stop) break;

      const TimePoint now = Clock::now();
      for (const auto& [key, tunnel] : tunnels_) {
        if (tunnel->close_at() <= now) ready.insert(tunnel.get());
      }
      for (Tunnel* const tunnel : ready) pump(*tunnel);
    }

    for (const auto& [key, tunnel] : tunnels_) tunnel->drop();
    tunnels_.clear();
  }

  // For epoll_wait().
  int timeout_ms() const {
    if (!again_.empty()) return 0;
    TimePoint first = kNever;
    for (const auto& [key, tunnel] : tunnels_) first = std::min(first, tunnel->close_at());
    return milliseconds_until(first, Clock::now());
  }

  void pump(Tunnel& tunnel) {
    const int session_fd = tunnel.session_fd();
    const int socket_fd = tunnel.socket_fd();
    if (tunnel.pump(buffer_)) again_.insert(&tunnel);
    update(tunnel, session_fd, socket_fd);
  }

  // Watches the tunnel's descriptors for the events that it waits for now, or deletes the tunnel if
  // it is finished.
  void update(Tunnel& tunnel, int old_session_fd, int old_socket_fd) {
    // The kernel has removed closed descriptors from epoll; their numbers may be in use again.
    if (tunnel.session_fd() < 0) forget(old_session_fd);
    if (tunnel.finished()) {
      forget(old_socket_fd);
      again_.erase(&tunnel);
      tunnels_.erase(tunnel.end().get());
      return;
    }
    if (tunnel.session_fd() >= 0) want(tunnel, tunnel.session_fd(), tunnel.session_events());
    want(tunnel, tunnel.socket_fd(), tunnel.socket_events());
  }

  void forget(int fd) {
    if (fd < 0) return;
    by_fd_.erase(fd);
    wanted_.erase(fd);
  }

  // A descriptor without events to wait for is not watched: epoll would report a closed one over
  // and over.
  void want(Tunnel& tunnel, int fd, std::uint32_t events) {
    by_fd_[fd] = &tunnel;
    auto& now = wanted_[fd];
    if (now == events) return;
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    int operation = EPOLL_CTL_MOD;
    if (now == 0) operation = EPOLL_CTL_ADD;
    if (events == 0) operation = EPOLL_CTL_DEL;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
    now = events;
  }

  bool take_requests(std::set<Tunnel*>& ready) {
    std::uint64_t raised = 0;
    if (::read(requests_->wake.fd(), &raised, sizeof raised) < 0) raised = 0;
    std::vector<std::unique_ptr<Tunnel>> arrivals;
    std::vector<std::shared_ptr<TunnelEnd>> to_drop;
    bool stop = false;
    {
      const std::scoped_lock lock(requests_->mutex);
      std::swap(arrivals, requests_->arrivals);
      std::swap(to_drop, requests_->to_drop);
      stop = requests_->stop;
    }

    for (auto& arrival : arrivals) {
      Tunnel* const tunnel = arrival.get();
      tunnels_[tunnel->end().get()] = std::move(arrival);
      ready.insert(tunnel);
    }
    for (const auto& end : to_drop) {
      const auto found = tunnels_.find(end.get());
      if (found == tunnels_.end()) continue;
      Tunnel& tunnel = *found->second;
      const int session_fd = tunnel.session_fd();
      const int socket_fd = tunnel.socket_fd();
      tunnel.drop();
      ready.erase(&tunnel);
      update(tunnel, session_fd, socket_fd);
    }
    return stop;
  }

  std::shared_ptr<Requests> requests_ = std::make_shared<Requests>();
  UniqueFd epoll_;
  std::map<const TunnelEnd*, std::unique_ptr<Tunnel>> tunnels_;
  std::map<int, Tunnel*> by_fd_;
  std::map<int, std::uint32_t> wanted_;
  std::set<Tunnel*> again_;
  Tunnel::Buffer buffer_{};
  ThreadGroup threads_;  // one
};

TunnelMultiplexer::TunnelMultiplexer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TunnelMultiplexer::~TunnelMultiplexer() = default;

Result<std::unique_ptr<TunnelMultiplexer>> TunnelMultiplexer::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Status::from_errno("make an epoll", errno);
  auto impl = std::make_unique<Impl>(std::move(epoll));
  HVD_RETURN_IF_ERROR(impl->begin());
  return std::unique_ptr<TunnelMultiplexer>(new TunnelMultiplexer(std::move(impl)));
}

Result<TunnelMultiplexer::OpenTunnel> TunnelMultiplexer::add(TunnelPayload payload) {
  auto pair = socket_pair();
  if (!pair.ok()) return pair.status();
  auto end = std::make_shared<TunnelEnd>();
  const auto requests = impl_->requests();
  {
    const std::scoped_lock lock(requests->mutex);
    requests->arrivals.push_back(
        std::make_unique<Tunnel>(std::move(payload), std::move(pair->second), end));
  }
  requests->wake.set();
  return OpenTunnel{.link = std::move(pair->first),
                    .handle = std::make_unique<TunnelHandle>(std::move(end), requests)};
}

}  // namespace hvd::driver::ssh
