#include "driver/ssh/tunnel_multiplexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <libssh/callbacks.h>
#include <map>
#include <mutex>
#include <set>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "base/text.h"
#include "driver/core/stderr_tail.h"
#include "driver/job/job_io.h"
#include "driver/ssh/deadline.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;
// Rounds of copying for one tunnel before the others have their turn.
constexpr int kMaxRounds = 16;
// The agent's exit status follows its last byte, normally at once.
constexpr std::chrono::milliseconds kExitStatusTimeout{1'000};

// The end of a tunnel, shared by its handle and the multiplexer.
struct TunnelEnd {
  EventFlag ended;
  std::mutex mutex;
  std::string reason;  // once it has ended
};

std::string last_lines(const StderrTail& tail) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> lines = tail.lines();
  if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - kMost);
  return join(lines, "; ");
}

// One session, its channel, and the socket whose other end belongs to the driver. For the
// multiplexer's thread.
class Tunnel {
 public:
  Tunnel(TunnelPayload payload, UniqueFd socket, std::shared_ptr<TunnelEnd> end)
      : payload_(std::move(payload)),
        socket_(std::move(socket)),
        end_(std::move(end)),
        to_driver_(std::move(payload_.first_bytes)) {
    ssh_callbacks_init(&callbacks_);
    callbacks_.userdata = this;
    callbacks_.channel_exit_status_function = [](ssh_session, ssh_channel, int status, void* self) {
      static_cast<Tunnel*>(self)->exit_ = exit_text(status, 0, false);
    };
    callbacks_.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* signal,
                                                 int core, const char*, const char*, void* self) {
      static_cast<Tunnel*>(self)->exit_ =
          cat("was killed by SIG", signal, core != 0 ? " (core dumped)" : "");
    };
    ssh_set_channel_callbacks(payload_.channel, &callbacks_);
    session_fd_ = ssh_get_fd(session());
  }
  ~Tunnel() {
    if (payload_.session != nullptr) ssh_remove_channel_callbacks(payload_.channel, &callbacks_);
  }
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  int session_fd() const { return payload_.session == nullptr ? -1 : session_fd_; }
  int socket_fd() const { return socket_.get(); }
  const std::shared_ptr<TunnelEnd>& end() const { return end_; }
  // Nothing is left to copy: the tunnel is to be deleted.
  bool finished() const { return !socket_; }
  // The time at which the tunnel must be pumped even without an event.
  TimePoint close_at() const { return close_at_; }

  // Copies as much as possible without blocking. True if it should be called again soon, without an
  // event.
  bool pump(std::array<char, kChunk>& buffer) {
    for (int round = 0; round < kMaxRounds; ++round) {
      bool progress = false;
      if (payload_.session != nullptr) {
        progress |= read_errors(buffer);
        progress |= read_output(buffer);
        progress |= write_input(buffer);
        close_if_ended();
      }
      progress |= flush_to_driver();
      if (!progress) return false;
    }
    return true;
  }

  void close(const std::string& reason) {
    if (payload_.session == nullptr) return;
    {
      const std::scoped_lock lock(end_->mutex);
      end_->reason = reason;
      if (const std::string errors = last_lines(errors_); !errors.empty()) {
        end_->reason += ", saying: " + errors;
      }
    }

    ssh_remove_channel_callbacks(payload_.channel, &callbacks_);
    payload_.session.reset();
    payload_.proxy.reset();
    close_at_ = kNever;
    end_->ended.set();
    if (to_driver_.empty() || driver_closed_) socket_.reset();
  }
  // The driver has given the agent up.
  void drop() {
    close("was given up");
    socket_.reset();
  }

  std::uint32_t session_events() const {
    const bool out = (ssh_get_poll_flags(session()) & SSH_WRITE_PENDING) != 0;
    return EPOLLIN | (out ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  }
  std::uint32_t socket_events() const {
    std::uint32_t events = 0;
    if (!to_driver_.empty() && !driver_closed_) events |= EPOLLOUT;
    if (payload_.session != nullptr && may_take_input()) events |= EPOLLIN;
    return events;
  }

 private:
  ssh_session session() const { return payload_.session.get(); }

  bool may_take_input() const {
    return !input_ended_ && to_agent_.empty() && ssh_channel_is_open(payload_.channel) != 0 &&
           ssh_channel_window_size(payload_.channel) > 0 &&
           (ssh_get_status(session()) & SSH_WRITE_PENDING) == 0;
  }

  bool read_errors(std::array<char, kChunk>& buffer) {
    const int count =
        ssh_channel_read_nonblocking(payload_.channel, buffer.data(), buffer.size(), 1);
    if (count <= 0) return false;
    errors_.feed({buffer.data(), static_cast<std::size_t>(count)});
    return true;
  }

  bool read_output(std::array<char, kChunk>& buffer) {
    if (!to_driver_.empty() || output_ended_) return false;
    const int count =
        ssh_channel_read_nonblocking(payload_.channel, buffer.data(), buffer.size(), 0);
    if (count == SSH_EOF) {
      output_ended_ = true;
      ::shutdown(socket_.get(), SHUT_WR);
      close_at_ = Clock::now() + kExitStatusTimeout;
      return true;
    }
    if (count <= 0) return false;
    to_driver_.assign(buffer.data(), static_cast<std::size_t>(count));
    return true;
  }

  bool flush_to_driver() {
    if (to_driver_.empty()) return false;
    if (driver_closed_) {
      to_driver_.clear();
      return true;
    }

    const ssize_t sent =
        ::send(socket_.get(), to_driver_.data(), to_driver_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      driver_closed_ = true;
      if (payload_.session == nullptr) socket_.reset();
      return true;
    }
    to_driver_.erase(0, static_cast<std::size_t>(sent));
    if (to_driver_.empty() && payload_.session == nullptr) socket_.reset();
    return true;
  }

  bool write_input(std::array<char, kChunk>& buffer) {
    if (!to_agent_.empty()) return write_to_agent();
    if (!may_take_input()) return false;

    const std::size_t room =
        std::min<std::size_t>(ssh_channel_window_size(payload_.channel), buffer.size());
    const ssize_t count = ::recv(socket_.get(), buffer.data(), room, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      input_ended_ = true;
      ssh_channel_send_eof(payload_.channel);
      return true;
    }
    to_agent_.assign(buffer.data(), static_cast<std::size_t>(count));
    return write_to_agent();
  }

  // libssh takes no bytes during a key re-exchange.
  bool write_to_agent() {
    const int written = ssh_channel_write(payload_.channel, to_agent_.data(),
                                          static_cast<std::uint32_t>(to_agent_.size()));
    if (written < 0) {
      to_agent_.clear();
      return false;
    }
    to_agent_.erase(0, static_cast<std::size_t>(written));
    return written > 0;
  }

  void close_if_ended() {
    if (ssh_is_connected(session()) == 0 || (ssh_get_status(session()) & SSH_CLOSED_ERROR) != 0) {
      return close(cat("was lost with its SSH connection: ", error_text(session())));
    }
    if (!output_ended_) {
      if (ssh_channel_is_closed(payload_.channel) != 0) close(exit_or("closed its link"));
      return;
    }
    // The output has ended, so this call is the only one that makes libssh process what arrives.
    if (exit_.empty()) ssh_channel_get_exit_status(payload_.channel);
    if (!exit_.empty() || ssh_channel_is_closed(payload_.channel) != 0 ||
        Clock::now() >= close_at_) {
      close(exit_or("closed its link"));
    }
  }
  std::string exit_or(const std::string& other) const { return exit_.empty() ? other : exit_; }

  TunnelPayload payload_;
  UniqueFd socket_;
  std::shared_ptr<TunnelEnd> end_;
  ssh_channel_callbacks_struct callbacks_{};
  int session_fd_ = -1;
  std::string to_driver_;
  std::string to_agent_;
  bool input_ended_ = false;    // the driver closed its end, or shut it down for writing
  bool driver_closed_ = false;  // nobody reads the other end of the socket
  bool output_ended_ = false;
  TimePoint close_at_ = kNever;
  std::string exit_;
  StderrTail errors_;
};

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
    watch(requests_->wake.fd(), EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() {
    {
      const std::scoped_lock lock(requests_->mutex);
      requests_->stop = true;
    }
    requests_->wake.set();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

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

  void watch(int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
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
  std::array<char, kChunk> buffer_{};
  std::thread thread_;
};

TunnelMultiplexer::TunnelMultiplexer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TunnelMultiplexer::~TunnelMultiplexer() = default;

Result<std::unique_ptr<TunnelMultiplexer>> TunnelMultiplexer::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Status::from_errno("make an epoll", errno);
  return std::unique_ptr<TunnelMultiplexer>(
      new TunnelMultiplexer(std::make_unique<Impl>(std::move(epoll))));
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
