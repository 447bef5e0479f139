#include "driver/join/tls_tunnel.h"

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/frame.h"
#include "base/machine/own_time.h"
#include "base/protocol/join_link.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver::join {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// More than any frame of an agent that waits.
constexpr std::size_t kMaxWaitingFrame = 64;

// Bytes are handed on before the next read, so one buffer serves all tunnels.
std::array<char, std::size_t{64} << 10>& read_buffer() {
  static thread_local std::array<char, std::size_t{64} << 10> buffer;
  return buffer;
}

class TlsTunnel : public std::enable_shared_from_this<TlsTunnel> {
 public:
  TlsTunnel(tcp::socket socket, TlsSession tls, UniqueFd local, UniqueFd ended, Duration silence)
      : socket_(std::move(socket)),
        local_(socket_.get_executor(), asio::local::stream_protocol(), local.release()),
        tls_(std::move(tls)),
        ended_(std::move(ended)),
        silence_(silence, Clock::now()),
        beat_(socket_.get_executor()) {}

  void start() {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    local_.non_blocking(true, ignored);
    deliver();
    read_local_next_ = true;
    flush();
    beat_soon();
  }

  // The driver has no use for the agent any more.
  void give_up() {
    if (!finished_ && agent_waits_) dismiss_at_once();
    close("was given up");
  }

  bool behind(TimePoint now, Duration pace) {
    std::array<pollfd, 2> polled{pollfd{socket_.native_handle(), POLLIN | POLLOUT, 0},
                                 pollfd{local_.native_handle(), POLLIN, 0}};
    if (finished_ || ::poll(polled.data(), polled.size(), 0) <= 0) return false;
    const bool arrived = (polled[0].revents & POLLIN) != 0;
    const bool wire_takes_more = (polled[0].revents & POLLOUT) != 0;
    const bool unread = (polled[1].revents & POLLIN) != 0;
    if (!unread) unread_since_.reset();
    if (unread && !unread_since_) unread_since_ = now;

    const bool to_send =
        (writing_ && now - write_began_ > pace) || (unread_since_ && now - *unread_since_ > pace);
    return arrived || (wire_takes_more && to_send);
  }

  int ended_fd() const { return ended_.get(); }
  const std::string& end_reason() const { return end_reason_; }

  void close(std::string reason) {
    if (finished_) return;
    finished_ = true;
    end_reason_ = std::move(reason);
    beat_.cancel();
    error_code ignored;
    socket_.close(ignored);
    local_.close(ignored);
    const std::uint64_t one = 1;
    // The counter is far from its limit, so this cannot fail.
    [[maybe_unused]] const ssize_t written = ::write(ended_.get(), &one, sizeof(one));
  }

 private:
  // ---- while the agent waits for its turn ----

  void beat_soon() {
    beat_.expires_after(silence_.pace());
    beat_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->finished_ && self->agent_waits_) self->beat();
    });
  }

  void beat() {
    const TimePoint now = Clock::now();
    silence_.look(now);
    // Bytes that have arrived are read before the agent is judged.
    if (silence_.is_too_long(now) && !has_arrived()) {
      return close(cat("gave no sign of life for ", seconds_text(silence_.limit())));
    }
    if (!writing_ && tls_.send(join_link::Heartbeat{}.encode()).ok()) flush();
    beat_soon();
  }

  bool has_arrived() { return is_ready(socket_.native_handle(), POLLIN); }

  // The buffer of the connection takes the few bytes, unless the network has stood still.
  void dismiss_at_once() {
    if (!tls_.send(join_link::Dismissed{}.encode()).ok()) return;
    tls_.close();
    const std::string bytes = to_wire_ + tls_.take_outgoing();
    const int wire = socket_.native_handle();
    static_cast<void>(::send(wire, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    // Bytes that nobody has read would make the kernel reset the connection.
    auto& buffer = read_buffer();
    while (::recv(wire, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) {
    }
  }

  // The agent's bytes up to Begun are the join link's; gives those behind it.
  std::string take_join_frames(std::string_view bytes) {
    silence_.hear(Clock::now());
    frames_.feed(bytes);
    while (!agent_begun_) {
      const auto frame = frames_.next();
      broken_ = broken_ || !frame.ok();
      if (broken_ || !frame->has_value()) return {};
      const auto kind = static_cast<join_link::Kind>((*frame)->kind);
      agent_begun_ = kind == join_link::Kind::begun && !agent_waits_;
      broken_ = !agent_begun_ && kind != join_link::Kind::heartbeat_ack;
    }
    return frames_.take_rest();
  }

  // ---- from the agent to the driver ----

  void read_wire() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (self->finished_) return;
      auto& buffer = read_buffer();
      std::size_t size = 0;
      if (!error) size = self->socket_.read_some(asio::buffer(buffer), error);
      if (error == asio::error::would_block) return self->read_wire();
      if (error) {
        return self->close(error == asio::error::eof
                               ? "closed its connection"
                               : cat("lost its connection: ", error.message()));
      }

      const Status received = self->tls_.receive({buffer.data(), size});
      self->broken_ = !received.ok();
      self->flush();  // TLS itself may have to answer
      self->deliver();
    });
  }

  void deliver() {
    std::string received = tls_.take_received();
    if (!agent_begun_ && !received.empty()) received = take_join_frames(received);
    if (local_closed_ || received.empty()) return delivered();
    to_local_ = std::move(received);
    asio::async_write(local_, asio::buffer(to_local_),
                      [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                        if (self->finished_) return;
                        if (error) self->local_closed_ = true;
                        self->delivered();
                      });
  }

  void delivered() {
    if (broken_) return close("sent a malformed message");
    if (tls_.is_closed()) return close("closed its connection");
    read_wire();
  }

  // ---- from the driver to the agent ----

  void read_local() {
    local_.async_wait(asio::local::stream_protocol::socket::wait_read,
                      [self = shared_from_this()](error_code error) {
                        if (self->finished_) return;
                        self->unread_since_.reset();
                        auto& buffer = read_buffer();
                        std::size_t size = 0;
                        if (!error) size = self->local_.read_some(asio::buffer(buffer), error);
                        if (error == asio::error::would_block) return self->read_local();
                        const bool waited = std::exchange(self->agent_waits_, false);
                        if (waited && !self->end_wait(!error)) {
                          return self->close("could not be written to");
                        }
                        if (error) {
                          self->local_closed_ = true;
                          self->tls_.close();
                          self->closing_ = true;
                        } else if (!self->tls_.send({buffer.data(), size}).ok()) {
                          return self->close("could not be written to");
                        }
                        self->read_local_next_ = true;
                        self->flush();
                      });
  }

  bool end_wait(bool begins) {
    beat_.cancel();
    const Status sent =
        tls_.send(begins ? join_link::Begin{}.encode() : join_link::Dismissed{}.encode());
    return sent.ok();
  }

  void flush() {
    if (writing_ || finished_) return;
    error_code error;
    for (;;) {
      if (to_wire_.empty()) to_wire_ = tls_.take_outgoing();
      if (to_wire_.empty()) return sent_all();
      to_wire_.erase(0, socket_.write_some(asio::buffer(to_wire_), error));
      if (error == asio::error::would_block) break;
      if (error) return close(cat("lost its connection: ", error.message()));
    }

    writing_ = true;
    write_began_ = Clock::now();
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](error_code /*why*/) {
      self->writing_ = false;
      self->flush();
    });
  }

  void sent_all() {
    error_code ignored;
    if (closing_) {
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
    } else if (std::exchange(read_local_next_, false)) {
      read_local();
    }
  }

  tcp::socket socket_;
  asio::local::stream_protocol::socket local_;
  TlsSession tls_;
  UniqueFd ended_;
  std::string to_wire_;  // what the connection has not taken yet
  std::string to_local_;
  bool read_local_next_ = false;  // once everything is sent the link is read again
  bool writing_ = false;
  TimePoint write_began_{};
  // When behind() saw that the driver's bytes wait here; they were not read since.
  std::optional<TimePoint> unread_since_;
  bool agent_waits_ = true;    // the driver has sent nothing yet
  bool agent_begun_ = false;   // its bytes are the link's
  bool closing_ = false;       // the connection is shut down once everything is sent
  bool local_closed_ = false;  // the driver reads no more
  bool broken_ = false;        // the other side says what no agent says
  bool finished_ = false;
  std::string end_reason_;
  PeerSilence silence_;
  asio::steady_timer beat_;
  FrameDecoder frames_{kMaxWaitingFrame};  // until the agent has begun
};

class TlsTunnelHandle : public AgentHandle {
 public:
  explicit TlsTunnelHandle(std::shared_ptr<TlsTunnel> tunnel) : tunnel_(std::move(tunnel)) {}
  ~TlsTunnelHandle() override { tunnel_->give_up(); }
  int ended_fd() const override { return tunnel_->ended_fd(); }
  void kill() override { tunnel_->give_up(); }
  std::string reap() override { return tunnel_->end_reason(); }
  bool behind(TimePoint now, Duration pace) const override { return tunnel_->behind(now, pace); }

 private:
  std::shared_ptr<TlsTunnel> tunnel_;
};

std::string address_text(const tcp::endpoint& endpoint) {
  const auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

}  // namespace

Result<AgentConnection> open_tls_tunnel(tcp::socket socket, TlsSession tls,
                                        const join_link::Accepted& accepted) {
  AgentConnection connection;
  error_code error;
  const auto local = socket.local_endpoint(error);
  const auto peer = error ? tcp::endpoint() : socket.remote_endpoint(error);
  if (error) return Status(Code::unavailable, cat("it disconnected: ", error.message()));
  connection.local_address = address_text(local);
  connection.peer_address = address_text(peer);
  HVD_RETURN_IF_ERROR(tls.send(accepted.encode()));

  auto pair = socket_pair();
  if (!pair.ok()) return pair.status();
  UniqueFd ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended) return Status::from_errno("eventfd", errno);

  connection.link = std::move(pair->first);
  auto tunnel =
      std::make_shared<TlsTunnel>(std::move(socket), std::move(tls), std::move(pair->second),
                                  std::move(ended), std::chrono::milliseconds(accepted.silence_ms));
  tunnel->start();
  connection.handle = std::make_unique<TlsTunnelHandle>(std::move(tunnel));
  return connection;
}

}  // namespace hvd::driver::join
