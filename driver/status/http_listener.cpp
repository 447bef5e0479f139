#include "driver/status/http_listener.h"

#include <array>
#include <chrono>
#include <iterator>
#include <poll.h>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/clock.h"
#include "base/security/pending_handshakes.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Stream = asio::generic::stream_protocol;

constexpr std::size_t kMaxHead = 8192;
constexpr std::size_t kMaxBody = 4096;
constexpr std::size_t kShareOfDescriptors = 4;  // one in so many may be a connection
constexpr std::chrono::milliseconds kAcceptPause{100};

int family_of(int socket) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family;
}

// As HttpRequest has it.
template <typename Name>
std::string only_field(const http::request<http::string_body>& message, Name name) {
  const auto [begin, end] = message.equal_range(name);
  if (begin == end) return {};
  const bool is_only = std::next(begin) == end;
  return cat(is_only ? "" : ",", std::string_view(begin->value()));
}

}  // namespace

std::string_view bearer_token(const HttpRequest& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view shown = request.authorization;
  if (!beast::iequals(shown.substr(0, kScheme.size()), kScheme)) return {};
  return trim(shown.substr(kScheme.size()));
}

class HttpListener::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, Handler handler, HttpLimits limits)
      : handler_(std::move(handler)),
        limits_(limits),
        acceptor_(io),
        pause_(io),
        connections_(pending_limit(limits.connections, kShareOfDescriptors), limits.time) {}

  Status start(UniqueFd listening) {
    error_code error;
    acceptor_.assign(Stream(family_of(listening.get()), 0), listening.get(), error);
    if (error) return {Code::internal, cat("watch a listening socket: ", error.message())};
    listening.release();
    accept();
    return {};
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    while (const auto connection = connections_.evict()) (*connection)->close();
    for (const auto& connection : std::exchange(streams_, {})) connection->close();
  }

  void wake_streams() {
    if (streams_.empty() || std::exchange(waking_, true)) return;
    asio::post(acceptor_.get_executor(), [self = shared_from_this()] {
      self->waking_ = false;
      const auto streams = self->streams_;  // some may end
      for (const auto& connection : streams) connection->go_on();
    });
  }

  void end_streams() {
    for (const auto& connection : std::exchange(streams_, {})) connection->end_stream();
  }

 private:
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(std::shared_ptr<Impl> listener, Stream::socket socket)
        : listener_(std::move(listener)),
          stream_(std::move(socket)),
          idle_(stream_.get_executor()) {
      parser_.header_limit(kMaxHead);
      parser_.body_limit(kMaxBody);
    }

    int socket() { return stream_.socket().native_handle(); }

    void start() {
      stream_.expires_after(listener_->limits_.time);
      http::async_read(stream_, buffer_, parser_,
                       [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                         if (error || self->listener_->closed_) return self->end();
                         self->answer();
                       });
    }

    // The operation under way, if there is one, ends with an error.
    void close() {
      error_code ignored;
      idle_.cancel();
      stream_.socket().close(ignored);
    }

    // Sends what the stream has, as far as the client's system takes it at once; the rest follows
    // when it takes more.
    void go_on() {
      if (sending_ || listener_->closed_) return;
      for (;;) {
        if (piece_.empty()) piece_ = body_->next();
        if (piece_.empty()) return wait_idle();
        if (!write_now()) return drop_stream();
        if (!piece_.empty()) return send_rest();
      }
    }

    void end_stream() {
      // A reader that is behind does not get the rest, since nobody waits for it.
      while (!sending_ && piece_.empty()) {
        piece_ = body_->next();
        if (piece_.empty() || !write_now()) break;
      }
      error_code ignored;
      stream_.socket().set_option(asio::socket_base::linger(false, 0), ignored);
      stream_.socket().shutdown(Stream::socket::shutdown_send, ignored);
      close();
    }

   private:
    void answer() {
      // A client that was not served in time may have closed its connection meanwhile.
      pollfd peer{socket(), 0, 0};
      if (::poll(&peer, 1, 0) > 0 && (peer.revents & POLLHUP) != 0) return end();

      const auto& message = parser_.get();
      HttpRequest request;
      request.socket = socket();
      request.method = message.method_string();
      request.target = message.target();
      request.body = message.body();
      // With two of them, a proxy might see another request than we do.
      if (message.count(http::field::authorization) == 1) {
        request.authorization = message[http::field::authorization];
      }
      request.host = only_field(message, http::field::host);
      request.origin = only_field(message, http::field::origin);
      request.fetch_site = only_field(message, "Sec-Fetch-Site");
      request.last_event_id = only_field(message, "Last-Event-ID");
      listener_->handler_(
          request, [self = shared_from_this()](HttpReply reply) { self->write(std::move(reply)); });
    }

    void write(HttpReply reply) {
      if (reply.stream && listener_->streams_.size() >= listener_->limits_.streams) {
        reply.status = 503;
        reply.text = "too many pages are open\n";
        reply.content_type = "text/plain";
        reply.stream.reset();
      }
      response_.version(parser_.get().version());
      response_.keep_alive(false);
      response_.result(reply.status);
      if (!reply.content_type.empty()) {
        response_.set(http::field::content_type, reply.content_type);
      }
      if (reply.asks_for_token) response_.set(http::field::www_authenticate, "Bearer");
      for (const auto& [name, value] : reply.fields) response_.set(name, value);
      if (reply.stream) return begin_stream(std::move(reply.stream));
      response_.content_length(reply.text.size());
      if (parser_.get().method() != http::verb::head) response_.body() = std::move(reply.text);

      http::async_write(stream_, response_,
                        [self = shared_from_this()](error_code /*error*/, std::size_t /*size*/) {
                          error_code ignored;
                          self->stream_.socket().shutdown(Stream::socket::shutdown_both, ignored);
                          self->end();
                        });
    }

    // The body ends when the connection does.
    void begin_stream(std::shared_ptr<HttpStream> body) {
      body_ = std::move(body);
      listener_->connections_.remove(shared_from_this());
      listener_->streams_.insert(shared_from_this());
      std::ostringstream head;
      head << response_.base();
      piece_ = head.str();
      // Data that a client has not read when it is given up is dropped by the system, too.
      error_code ignored;
      stream_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
      stream_.socket().non_blocking(true, ignored);
      // Nothing more is asked for on this connection: when something comes, it is the end.
      stream_.expires_never();
      stream_.async_read_some(asio::buffer(unread_),
                              [self = shared_from_this()](error_code /*error*/, std::size_t /*n*/) {
                                self->drop_stream();
                              });
      go_on();
    }

    // Takes from the piece what can be sent without waiting. False: the client is gone.
    bool write_now() {
      error_code error;
      piece_.erase(0, stream_.socket().write_some(asio::buffer(piece_), error));
      return !error || error == asio::error::would_block;
    }

    void send_rest() {
      sending_ = true;
      idle_.cancel();
      stream_.expires_after(listener_->limits_.time);
      asio::async_write(stream_, asio::buffer(piece_),
                        [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                          self->sending_ = false;
                          self->piece_.clear();
                          if (error) return self->drop_stream();
                          self->go_on();
                        });
    }

    void wait_idle() {
      idle_.expires_after(listener_->limits_.idle);
      idle_.async_wait([self = shared_from_this()](error_code error) {
        if (error || self->sending_ || self->listener_->closed_) return;
        self->piece_ = self->body_->idle();
        self->go_on();
      });
    }

    void drop_stream() {
      listener_->streams_.erase(shared_from_this());
      close();
    }

    void end() { listener_->connections_.remove(shared_from_this()); }

    std::shared_ptr<Impl> listener_;
    beast::basic_stream<Stream> stream_;
    beast::flat_buffer buffer_{kMaxHead + kMaxBody};
    http::request_parser<http::string_body> parser_;
    http::response<http::string_body> response_;
    // Members of a stream alone:
    asio::steady_timer idle_;
    std::shared_ptr<HttpStream> body_;
    std::string piece_;  // on its way, or about to be
    bool sending_ = false;
    std::array<char, 1> unread_{};
  };

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code error, Stream::socket socket) {
      if (self->closed_) return;
      if (!error) {
        self->serve(std::move(socket));
        return self->accept();
      }
      if (error == asio::error::connection_aborted) return self->accept();

      // The process is out of descriptors or memory. The oldest connection makes room.
      if (const auto oldest = self->connections_.evict()) (*oldest)->close();
      self->accept_later();
    });
  }

  void serve(Stream::socket socket) {
    const auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
    const auto oldest =
        connections_.add(connection, origin_of_peer(connection->socket()), Clock::now());
    if (oldest) (*oldest)->close();
    connection->start();
  }

  void accept_later() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->closed_) self->accept();
    });
  }

  const Handler handler_;
  const HttpLimits limits_;
  asio::basic_socket_acceptor<Stream> acceptor_;
  asio::steady_timer pause_;
  PendingHandshakes<std::shared_ptr<Connection>> connections_;
  std::set<std::shared_ptr<Connection>> streams_;
  bool waking_ = false;
  bool closed_ = false;
};

HttpListener::HttpListener(asio::io_context& io, Handler handler, HttpLimits limits)
    : impl_(std::make_shared<Impl>(io, std::move(handler), limits)) {}

HttpListener::~HttpListener() { impl_->close(); }

Status HttpListener::start(UniqueFd listening) { return impl_->start(std::move(listening)); }

void HttpListener::wake_streams() { impl_->wake_streams(); }

void HttpListener::end_streams() { impl_->end_streams(); }

}  // namespace hvd::driver
