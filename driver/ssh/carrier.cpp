#include "driver/ssh/carrier.h"

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
#include "driver/ssh/patience.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kChunk = std::size_t{64} << 10;
// Turns of one link before the others have theirs.
constexpr int kTurns = 16;
// After the agent's last byte its exit status comes, normally at once.
constexpr std::chrono::milliseconds kWaitForStatus{1'000};

// What the hold and the carrier both know of a link.
struct End {
  Signal ended;
  std::mutex mutex;
  std::string text;  // why, once it has ended
};

std::string last_lines(const StderrTail& tail) {
  constexpr std::size_t kMost = 5;
  std::vector<std::string> lines = tail.lines();
  if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - kMost);
  return join(lines, "; ");
}

// One session, its channel, and the socket whose other end the driver has. For the carrier's
// thread.
class Link {
 public:
  Link(Cargo cargo, UniqueFd socket, std::shared_ptr<End> end)
      : cargo_(std::move(cargo)),
        socket_(std::move(socket)),
        end_(std::move(end)),
        to_driver_(std::move(cargo_.first_bytes)) {
    ssh_callbacks_init(&callbacks_);
    callbacks_.userdata = this;
    callbacks_.channel_exit_status_function = [](ssh_session, ssh_channel, int status, void* self) {
      static_cast<Link*>(self)->exit_ = exit_text(status, 0, false);
    };
    callbacks_.channel_exit_signal_function = [](ssh_session, ssh_channel, const char* signal,
                                                 int core, const char*, const char*, void* self) {
      static_cast<Link*>(self)->exit_ =
          cat("was killed by SIG", signal, core != 0 ? " (core dumped)" : "");
    };
    ssh_set_channel_callbacks(cargo_.channel, &callbacks_);
    session_fd_ = ssh_get_fd(session());
  }
  ~Link() {
    if (cargo_.session != nullptr) ssh_remove_channel_callbacks(cargo_.channel, &callbacks_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int session_fd() const { return cargo_.session == nullptr ? -1 : session_fd_; }
  int socket_fd() const { return socket_.get(); }
  const std::shared_ptr<End>& end() const { return end_; }
  // Nothing is left to do; to be deleted.
  bool finished() const { return !socket_; }
  TimePoint give_up_at() const { return give_up_at_; }

  // Moves what can be moved. True if it should be called again soon, without an event.
  bool pump(std::array<char, kChunk>& buffer) {
    for (int turn = 0; turn < kTurns; ++turn) {
      bool progress = false;
      if (cargo_.session != nullptr) {
        progress |= take_errors(buffer);
        progress |= take_output(buffer);
        progress |= give_input(buffer);
        watch_for_the_end();
      }
      progress |= flush_to_driver();
      if (!progress) return false;
    }
    return true;
  }

  void close(const std::string& why) {
    if (cargo_.session == nullptr) return;
    {
      const std::scoped_lock lock(end_->mutex);
      end_->text = why;
      if (const std::string said = last_lines(errors_); !said.empty()) {
        end_->text += ", saying: " + said;
      }
    }
    ssh_remove_channel_callbacks(cargo_.channel, &callbacks_);
    cargo_.session.reset();
    cargo_.proxy.reset();
    give_up_at_ = kNever;
    end_->ended.raise();
    if (to_driver_.empty() || driver_is_deaf_) socket_.reset();
  }
  // Nobody listens any more.
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
    if (!to_driver_.empty() && !driver_is_deaf_) events |= EPOLLOUT;
    if (cargo_.session != nullptr && may_take_input()) events |= EPOLLIN;
    return events;
  }

 private:
  ssh_session session() const { return cargo_.session.get(); }

  bool may_take_input() const {
    return !driver_is_done_ && to_agent_.empty() && ssh_channel_is_open(cargo_.channel) != 0 &&
           ssh_channel_window_size(cargo_.channel) > 0 &&
           (ssh_get_status(session()) & SSH_WRITE_PENDING) == 0;
  }

  bool take_errors(std::array<char, kChunk>& buffer) {
    const int count = ssh_channel_read_nonblocking(cargo_.channel, buffer.data(), buffer.size(), 1);
    if (count <= 0) return false;
    errors_.feed({buffer.data(), static_cast<std::size_t>(count)});
    return true;
  }

  bool take_output(std::array<char, kChunk>& buffer) {
    if (!to_driver_.empty() || output_ended_) return false;
    const int count = ssh_channel_read_nonblocking(cargo_.channel, buffer.data(), buffer.size(), 0);
    if (count == SSH_EOF) {
      output_ended_ = true;
      ::shutdown(socket_.get(), SHUT_WR);
      give_up_at_ = Clock::now() + kWaitForStatus;
      return true;
    }
    if (count <= 0) return false;
    to_driver_.assign(buffer.data(), static_cast<std::size_t>(count));
    return true;
  }

  bool flush_to_driver() {
    if (to_driver_.empty()) return false;
    if (driver_is_deaf_) {
      to_driver_.clear();
      return true;
    }
    const ssize_t sent =
        ::send(socket_.get(), to_driver_.data(), to_driver_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EINTR) return false;
      driver_is_deaf_ = true;
      if (cargo_.session == nullptr) socket_.reset();
      return true;
    }
    to_driver_.erase(0, static_cast<std::size_t>(sent));
    if (to_driver_.empty() && cargo_.session == nullptr) socket_.reset();
    return true;
  }

  bool give_input(std::array<char, kChunk>& buffer) {
    if (!to_agent_.empty()) return write_to_agent();
    if (!may_take_input()) return false;
    const std::size_t room =
        std::min<std::size_t>(ssh_channel_window_size(cargo_.channel), buffer.size());
    const ssize_t count = ::recv(socket_.get(), buffer.data(), room, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      driver_is_done_ = true;
      ssh_channel_send_eof(cargo_.channel);
      return true;
    }
    to_agent_.assign(buffer.data(), static_cast<std::size_t>(count));
    return write_to_agent();
  }

  // libssh takes nothing while the keys are renewed.
  bool write_to_agent() {
    const int written = ssh_channel_write(cargo_.channel, to_agent_.data(),
                                          static_cast<std::uint32_t>(to_agent_.size()));
    if (written < 0) {
      to_agent_.clear();
      return false;
    }
    to_agent_.erase(0, static_cast<std::size_t>(written));
    return written > 0;
  }

  void watch_for_the_end() {
    if (ssh_is_connected(session()) == 0 || (ssh_get_status(session()) & SSH_CLOSED_ERROR) != 0) {
      return close(cat("was lost with its SSH connection: ", error_text(session())));
    }
    if (!output_ended_) {
      if (ssh_channel_is_closed(cargo_.channel) != 0) close(exit_or("closed its link"));
      return;
    }
    // Its output is at an end, so that nothing else lets libssh look at what arrives.
    if (exit_.empty()) ssh_channel_get_exit_status(cargo_.channel);
    if (!exit_.empty() || ssh_channel_is_closed(cargo_.channel) != 0 ||
        Clock::now() >= give_up_at_) {
      close(exit_or("closed its link"));
    }
  }
  std::string exit_or(const std::string& other) const { return exit_.empty() ? other : exit_; }

  Cargo cargo_;
  UniqueFd socket_;
  std::shared_ptr<End> end_;
  ssh_channel_callbacks_struct callbacks_{};
  int session_fd_ = -1;
  std::string to_driver_;
  std::string to_agent_;
  bool driver_is_done_ = false;  // it closed its end, or shut it down
  bool driver_is_deaf_ = false;
  bool output_ended_ = false;
  TimePoint give_up_at_ = kNever;
  std::string exit_;
  StderrTail errors_;
};

// What other threads ask of the carrier's.
struct Mailbox {
  Signal wake;
  std::mutex mutex;
  std::vector<std::unique_ptr<Link>> arrivals;
  std::vector<std::shared_ptr<End>> to_drop;
  bool stop = false;
};

class Hold final : public AgentHold {
 public:
  Hold(std::shared_ptr<End> end, std::shared_ptr<Mailbox> mailbox)
      : end_(std::move(end)), mailbox_(std::move(mailbox)) {}
  ~Hold() override { ask(); }

  int ended_fd() const override { return end_->ended.fd(); }
  void kill() override { ask(); }
  std::string reap() override {
    const std::scoped_lock lock(end_->mutex);
    return end_->text;
  }

 private:
  void ask() {
    {
      const std::scoped_lock lock(mailbox_->mutex);
      mailbox_->to_drop.push_back(end_);
    }
    mailbox_->wake.raise();
  }
  std::shared_ptr<End> end_;
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace

class Carrier::Impl {
 public:
  explicit Impl(UniqueFd epoll) : epoll_(std::move(epoll)) {
    watch(mailbox_->wake.fd(), EPOLLIN);
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() {
    {
      const std::scoped_lock lock(mailbox_->mutex);
      mailbox_->stop = true;
    }
    mailbox_->wake.raise();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::shared_ptr<Mailbox> mailbox() const { return mailbox_; }

 private:
  void run() {
    std::array<epoll_event, 64> events{};
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), patience());
      std::set<Link*> ready;
      std::swap(ready, again_);
      bool stop = false;
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == mailbox_->wake.fd()) {
          stop = read_mail(ready);
        } else if (const auto link = by_fd_.find(fd); link != by_fd_.end()) {
          ready.insert(link->second);
        }
      }
      if (stop) break;
      const TimePoint now = Clock::now();
      for (const auto& [key, link] : links_) {
        if (link->give_up_at() <= now) ready.insert(link.get());
      }
      for (Link* const link : ready) {
        unless_dropped(link);
      }
    }
    for (const auto& [key, link] : links_) link->drop();
    links_.clear();
  }

  // How long nothing but an event is of interest.
  int patience() const {
    if (!again_.empty()) return 0;
    TimePoint first = kNever;
    for (const auto& [key, link] : links_) first = std::min(first, link->give_up_at());
    return milliseconds_until(first, Clock::now());
  }

  void unless_dropped(Link* link) {
    const int session_fd = link->session_fd();
    const int socket_fd = link->socket_fd();
    if (link->pump(buffer_)) again_.insert(link);
    settle(*link, session_fd, socket_fd);
  }

  // Watches the link's descriptors for what it waits for now, or forgets it.
  void settle(Link& link, int old_session_fd, int old_socket_fd) {
    // Closed descriptors have left epoll by themselves; their numbers may be used again.
    if (link.session_fd() < 0) forget(old_session_fd);
    if (link.finished()) {
      forget(old_socket_fd);
      again_.erase(&link);
      links_.erase(link.end().get());
      return;
    }
    if (link.session_fd() >= 0) want(link, link.session_fd(), link.session_events());
    want(link, link.socket_fd(), link.socket_events());
  }

  void forget(int fd) {
    if (fd < 0) return;
    by_fd_.erase(fd);
    wanted_.erase(fd);
  }

  // With nothing to wait for, a descriptor is not watched: a closed one would never be silent.
  void want(Link& link, int fd, std::uint32_t events) {
    by_fd_[fd] = &link;
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

  bool read_mail(std::set<Link*>& ready) {
    std::uint64_t raised = 0;
    if (::read(mailbox_->wake.fd(), &raised, sizeof raised) < 0) raised = 0;
    std::vector<std::unique_ptr<Link>> arrivals;
    std::vector<std::shared_ptr<End>> to_drop;
    bool stop = false;
    {
      const std::scoped_lock lock(mailbox_->mutex);
      std::swap(arrivals, mailbox_->arrivals);
      std::swap(to_drop, mailbox_->to_drop);
      stop = mailbox_->stop;
    }
    for (auto& arrival : arrivals) {
      Link* const link = arrival.get();
      links_[link->end().get()] = std::move(arrival);
      ready.insert(link);
    }
    for (const auto& end : to_drop) {
      const auto found = links_.find(end.get());
      if (found == links_.end()) continue;
      Link& link = *found->second;
      const int session_fd = link.session_fd();
      const int socket_fd = link.socket_fd();
      link.drop();
      ready.erase(&link);
      settle(link, session_fd, socket_fd);
    }
    return stop;
  }

  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  UniqueFd epoll_;
  std::map<const End*, std::unique_ptr<Link>> links_;
  std::map<int, Link*> by_fd_;
  std::map<int, std::uint32_t> wanted_;
  std::set<Link*> again_;
  std::array<char, kChunk> buffer_{};
  std::thread thread_;
};

Carrier::Carrier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Carrier::~Carrier() = default;

Result<std::unique_ptr<Carrier>> Carrier::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Status::from_errno("make an epoll", errno);
  return std::unique_ptr<Carrier>(new Carrier(std::make_unique<Impl>(std::move(epoll))));
}

Result<Carrier::Carried> Carrier::take(Cargo cargo) {
  auto pair = socket_pair();
  if (!pair.ok()) return pair.status();
  auto end = std::make_shared<End>();
  const auto mailbox = impl_->mailbox();
  {
    const std::scoped_lock lock(mailbox->mutex);
    mailbox->arrivals.push_back(
        std::make_unique<Link>(std::move(cargo), std::move(pair->second), end));
  }
  mailbox->wake.raise();
  return Carried{.link = std::move(pair->first),
                 .hold = std::make_unique<Hold>(std::move(end), mailbox)};
}

}  // namespace hvd::driver::ssh
