#include "driver/status/control_server.h"

#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/text.h"
#include "driver/status/job_sockets.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Local = asio::local::stream_protocol;

constexpr std::chrono::seconds kTimeLimit{10};  // for each request and its answer
constexpr const char* kRequests =
    "GET /status, POST /dump, POST /stop, POST /drain, POST /undrain, POST /scale\n";
constexpr std::size_t kMaxHead = 8192;
constexpr std::size_t kMaxBody = 4096;
constexpr std::size_t kMaxConnections = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};

bool may_ask(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

// Whether nobody listens there any more.
bool is_abandoned(const std::string& path) {
  asio::io_context io;
  Local::socket socket(io);
  error_code error;
  socket.connect(Local::endpoint(path), error);
  return error == asio::error::connection_refused;
}

}  // namespace

class ControlServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, Callbacks callbacks)
      : callbacks_(std::move(callbacks)), acceptor_(io), pause_(io) {}

  Status start(const std::string& job_id) {
    auto directory = job_socket_directory();
    if (!directory.ok()) return directory.status();
    for (const auto& socket : job_sockets_in(*directory)) {
      if (is_abandoned(socket.path)) ::unlink(socket.path.c_str());
    }

    const std::string path = job_socket_path(*directory, job_id);
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return {Code::invalid_argument, cat(path, " is too long for a socket")};
    }
    error_code error;
    acceptor_.open(Local(), error);
    if (!error) acceptor_.bind(Local::endpoint(path), error);
    if (error) return {Code::internal, cat("bind ", path, ": ", error.message())};
    path_ = path;
    ::chmod(path.c_str(), 0600);
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return {Code::internal, cat("listen at ", path, ": ", error.message())};
    accept();
    return {};
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    if (!path_.empty()) ::unlink(path_.c_str());
  }

 private:
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(std::shared_ptr<Impl> server, Local::socket socket)
        : server_(std::move(server)), stream_(std::move(socket)) {
      ++server_->connections_;
      parser_.header_limit(kMaxHead);
      parser_.body_limit(kMaxBody);
    }
    ~Connection() { --server_->connections_; }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void start() {
      stream_.expires_after(kTimeLimit);
      http::async_read(stream_, buffer_, parser_,
                       [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                         if (!error && !self->server_->closed_) self->answer();
                       });
    }

   private:
    void answer() {
      const auto& request = parser_.get();
      response_.version(request.version());
      response_.keep_alive(false);
      const std::string_view target(request.target().data(), request.target().size());
      const bool is_post = request.method() == http::verb::post;
      const Callbacks::Change* const change = server_->change_at(target);
      if (!may_ask(stream_.socket().native_handle())) {
        fill(http::status::forbidden, "this job belongs to another user\n");
      } else if (target == "/status" && request.method() == http::verb::get) {
        response_.set(http::field::content_type, "application/json");
        fill(http::status::ok, server_->callbacks_.status());
      } else if (target == "/stop" && is_post) {
        fill(http::status::ok, "stopping\n");
        server_->callbacks_.stop();
      } else if (target == "/dump" && is_post) {
        return server_->callbacks_.dump([self = shared_from_this()](std::string_view text) {
          self->fill(http::status::ok, std::string(text) + "\n");
          self->write();
        });
      } else if (change != nullptr && is_post) {
        return (*change)(request.body(),
                         [self = shared_from_this()](bool accepted, std::string_view text) {
                           self->fill(accepted ? http::status::ok : http::status::conflict,
                                      std::string(text) + "\n");
                           self->write();
                         });
      } else if (target == "/status" || target == "/dump" || target == "/stop" ||
                 change != nullptr) {
        fill(http::status::method_not_allowed, kRequests);
      } else {
        fill(http::status::not_found, kRequests);
      }
      write();
    }

    void write() {
      http::async_write(stream_, response_,
                        [self = shared_from_this()](error_code /*error*/, std::size_t /*size*/) {
                          error_code ignored;
                          self->stream_.socket().shutdown(Local::socket::shutdown_both, ignored);
                        });
    }

    void fill(http::status status, std::string text) {
      response_.result(status);
      response_.body() = std::move(text);
      response_.prepare_payload();
    }

    std::shared_ptr<Impl> server_;
    beast::basic_stream<Local> stream_;
    beast::flat_buffer buffer_{kMaxHead + kMaxBody};
    http::request_parser<http::string_body> parser_;
    http::response<http::string_body> response_;
  };

  // Null: no change is asked for there.
  const Callbacks::Change* change_at(std::string_view target) const {
    if (target == "/drain") return &callbacks_.drain;
    if (target == "/undrain") return &callbacks_.undrain;
    return target == "/scale" ? &callbacks_.scale : nullptr;
  }

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](error_code error, Local::socket socket) {
      if (self->closed_) return;
      if (error || self->connections_ >= kMaxConnections) return self->accept_later();
      std::make_shared<Connection>(self, std::move(socket))->start();
      self->accept();
    });
  }

  void accept_later() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->closed_) self->accept();
    });
  }

  Callbacks callbacks_;
  Local::acceptor acceptor_;
  asio::steady_timer pause_;
  std::string path_;  // empty: there is no socket
  std::size_t connections_ = 0;
  bool closed_ = false;
};

ControlServer::ControlServer(asio::io_context& io, Callbacks callbacks)
    : impl_(std::make_shared<Impl>(io, std::move(callbacks))) {}

ControlServer::~ControlServer() { impl_->close(); }

Status ControlServer::start(const std::string& job_id) { return impl_->start(job_id); }

}  // namespace hvd::driver
