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
#include <boost/asio/write.hpp>

#include "base/clock.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver::join {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Bytes are handed on before the next read, so one buffer serves all tunnels.
std::array<char, std::size_t{64} << 10>& read_buffer() {
  static thread_local std::array<char, std::size_t{64} << 10> buffer;
  return buffer;
}

class TlsTunnel : public std::enable_shared_from_this<TlsTunnel> {
 public:
  TlsTunnel(tcp::socket socket, TlsSession tls, UniqueFd local, UniqueFd ended)
      : socket_(std::move(socket)),
        local_(socket_.get_executor(), asio::local::stream_protocol(), local.release()),
        tls_(std::move(tls)),
        ended_(std::move(ended)) {}

  void start() {
    error_code ignored;
    socket_.non_blocking(true, ignored);
    local_.non_blocking(true, ignored);
    deliver();
    read_local_next_ = true;
    flush();
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
    error_code ignored;
    socket_.close(ignored);
    local_.close(ignored);
    const std::uint64_t one = 1;
    // The counter is far from its limit, so this cannot fail.
    static_cast<void>(::write(ended_.get(), &one, sizeof(one)));
  }

 private:
  // From the agent to the driver.
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
    const std::string received = tls_.take_received();
    if (local_closed_ || received.empty()) return delivered();
    to_local_ = received;
    asio::async_write(local_, asio::buffer(to_local_),
                      [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                        if (self->finished_) return;
                        if (error) self->local_closed_ = true;
                        self->delivered();
                      });
  }

  void delivered() {
    if (broken_) return close("sent what is not TLS");
    if (tls_.is_closed()) return close("closed its connection");
    read_wire();
  }

  // From the driver to the agent.
  void read_local() {
    local_.async_wait(asio::local::stream_protocol::socket::wait_read,
                      [self = shared_from_this()](error_code error) {
                        if (self->finished_) return;
                        self->unread_since_.reset();
                        auto& buffer = read_buffer();
                        std::size_t size = 0;
                        if (!error) size = self->local_.read_some(asio::buffer(buffer), error);
                        if (error == asio::error::would_block) return self->read_local();
                        if (error) {
                          self->local_closed_ = true;
                          self->tls_.close();
                          self->closing_ = true;
                        } else if (!self->tls_.send({buffer.data(), size}).ok()) {
                          return self->close("could not be written to");
                        } else if (std::exchange(self->agent_waits_, false)) {
                          stop_watching_peer(self->socket_.native_handle());
                        }
                        self->read_local_next_ = true;
                        self->flush();
                      });
  }

  void flush() {
    if (writing_) return;
    to_wire_ = tls_.take_outgoing();
    if (to_wire_.empty()) {
      error_code ignored;
      if (closing_) {
        socket_.shutdown(tcp::socket::shutdown_send, ignored);
      } else if (std::exchange(read_local_next_, false)) {
        read_local();
      }
      return;
    }

    writing_ = true;
    write_began_ = Clock::now();
    asio::async_write(socket_, asio::buffer(to_wire_),
                      [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                        if (self->finished_) return;
                        self->writing_ = false;
                        if (error) {
                          return self->close(cat("lost its connection: ", error.message()));
                        }
                        self->flush();
                      });
  }

  tcp::socket socket_;
  asio::local::stream_protocol::socket local_;
  TlsSession tls_;
  UniqueFd ended_;
  std::string to_wire_;
  std::string to_local_;
  bool read_local_next_ = false;  // once everything is sent the link is read again
  bool writing_ = false;
  TimePoint write_began_{};
  // When behind() saw that the driver's bytes wait here; they were not read since.
  std::optional<TimePoint> unread_since_;
  bool agent_waits_ = true;    // the driver has sent nothing yet
  bool closing_ = false;       // the connection is shut down once everything is sent
  bool local_closed_ = false;  // the driver reads no more
  bool broken_ = false;        // the other side does not speak TLS
  bool finished_ = false;
  std::string end_reason_;
};

class TlsTunnelHandle : public AgentHandle {
 public:
  explicit TlsTunnelHandle(std::shared_ptr<TlsTunnel> tunnel) : tunnel_(std::move(tunnel)) {}
  ~TlsTunnelHandle() override { tunnel_->close("was given up"); }
  int ended_fd() const override { return tunnel_->ended_fd(); }
  void kill() override { tunnel_->close("was given up"); }
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
                                        std::string_view first) {
  AgentConnection connection;
  error_code error;
  const auto local = socket.local_endpoint(error);
  const auto peer = error ? tcp::endpoint() : socket.remote_endpoint(error);
  if (error) return Status(Code::unavailable, cat("it disconnected: ", error.message()));
  connection.local_address = address_text(local);
  connection.peer_address = address_text(peer);
  HVD_RETURN_IF_ERROR(tls.send(first));

  auto pair = socket_pair();
  if (!pair.ok()) return pair.status();
  UniqueFd ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended) return Status::from_errno("eventfd", errno);

  connection.link = std::move(pair->first);
  auto tunnel = std::make_shared<TlsTunnel>(std::move(socket), std::move(tls),
                                            std::move(pair->second), std::move(ended));
  tunnel->start();
  connection.handle = std::make_unique<TlsTunnelHandle>(std::move(tunnel));
  return connection;
}

}  // namespace hvd::driver::join
