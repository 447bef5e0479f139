#include "driver/join/join_server.h"

#include <array>
#include <optional>
#include <set>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/clock.h"
#include "base/labels.h"
#include "base/machine/capacity.h"
#include "base/printable.h"
#include "base/protocol/join_link.h"
#include "base/security/pending_handshakes.h"
#include "base/security/tls_psk.h"
#include "base/text.h"
#include "base/versions.h"
#include "base/wire.h"
#include "discovery/host_words.h"
#include "driver/join/tls_tunnel.h"

namespace hvd::driver::join {
namespace {

// Health probes on the port where agents join: a plain `GET /healthz`, as Kubernetes and load
// balancers send it, without a token. The answer comes from the thread that runs the job, so it
// says that this thread works, and nothing else.
enum class Probe {
  no,        // the connection speaks something else
  begins,    // it may be a probe; its head is not complete
  complete,  // a probe, to be answered with kHealthy
};

constexpr std::string_view kHealthy =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
    "Connection: close\r\n\r\nok\n";

// The kind of a connection whose first bytes these are.
Probe probe_in(std::string_view received) {
  constexpr std::string_view kRequest = "GET /healthz HTTP/1.";
  constexpr std::size_t kMaxHead = 4096;

  if (received.size() < kRequest.size()) {
    return kRequest.starts_with(received) ? Probe::begins : Probe::no;
  }
  if (!received.starts_with(kRequest) || received.size() > kMaxHead) return Probe::no;
  return received.find("\r\n\r\n") == std::string_view::npos ? Probe::begins : Probe::complete;
}

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kMaxJoinFrame = 4096;
// More than a TLS handshake and a Join ever take.
constexpr std::size_t kMaxHandshakeBytes = std::size_t{32} << 10;
constexpr std::size_t kMaxReported = 1000;  // refusals that are not reported again
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::size_t kShareOfDescriptors = 4;  // one in so many is for pending handshakes

bool is_final(Code code) {
  return code == Code::invalid_argument || code == Code::not_found ||
         code == Code::permission_denied;
}

}  // namespace

class JoinServer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, const Token& token, SocketAddress bind, Callbacks callbacks,
       Limits limits, ListenPorts ports, JoinTokens* join_tokens)
      : io_(io),
        token_(token),
        join_tokens_(join_tokens),
        bind_(std::move(bind)),
        callbacks_(std::move(callbacks)),
        limits_(limits),
        ports_(ports),
        acceptor_(io),
        accept_pause_(io),
        pending_(pending_limit(limits.max_pending, kShareOfDescriptors), limits.handshake),
        rejections_(limits.report_every) {}

  Status start() {
    auto tls = TlsPsk::server(token_, [this](std::string_view id) {
      return join_tokens_ == nullptr ? std::nullopt : join_tokens_->secret_of(id);
    });
    if (!tls.ok()) return tls.status();
    tls_ = std::move(*tls);

    auto listener = listen_tcp(bind_, ports_);
    if (!listener.ok()) return listener.status();
    auto address = local_address(listener->get());
    if (!address.ok()) return address.status();
    address_ = std::move(*address);

    const bool v6 = address_.host.find(':') != std::string::npos;
    error_code error;
    acceptor_.assign(v6 ? tcp::v6() : tcp::v4(), listener->get(), error);
    if (error) return {Code::internal, cat("watch ", bind_.to_string(), ": ", error.message())};
    listener->release();
    accept();
    return {};
  }

  void close() {
    closed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    accept_pause_.cancel();
    while (const auto handshake = pending_.evict()) (*handshake)->close();
  }

  SocketAddress address() const { return address_; }

 private:
  // A connection until its agent is accepted or it is refused.
  class Handshake : public std::enable_shared_from_this<Handshake> {
   public:
    Handshake(std::shared_ptr<Impl> server, tcp::socket socket, TlsSession tls)
        : server_(std::move(server)),
          socket_(std::move(socket)),
          tls_(std::move(tls)),
          deadline_(socket_.get_executor()) {
      error_code ignored;
      const auto peer = socket_.remote_endpoint(ignored);
      peer_ = ignored ? "a host that has disconnected" : peer.address().to_string();
      origin_ = origin_of_peer(socket_.native_handle());
    }
    const std::string& origin() const { return origin_; }

    void start() {
      deadline_.expires_after(server_->limits_.handshake);
      deadline_.async_wait([self = shared_from_this()](error_code error) {
        if (error) return;
        if (self->closing_) return self->close();
        self->reject("it did not authenticate in time");
      });
      read();
    }

    // Without a message to the other side.
    void close() {
      if (std::exchange(finished_, true)) return;
      deadline_.cancel();
      error_code ignored;
      socket_.close(ignored);
    }

    void reject(std::string_view why) {
      if (finished_) return;
      server_->report_rejection(peer_, why);
      leave();
      close();
    }

   private:
    void read() {
      socket_.async_read_some(
          asio::buffer(buffer_), [self = shared_from_this()](error_code error, std::size_t size) {
            if (self->finished_) return;
            if (error) return self->reject("it disconnected before it was authenticated");
            self->take({self->buffer_.data(), size});
          });
    }

    void take(std::string_view bytes) {
      received_bytes_ += bytes.size();
      if (received_bytes_ > kMaxHandshakeBytes) {
        return reject("it sent too many bytes before it was authenticated");
      }

      if (may_be_probe_) {
        first_bytes_ += bytes;
        const Probe probe = probe_in(first_bytes_);
        if (probe == Probe::begins) return read();
        if (probe == Probe::complete) return answer_probe();
        may_be_probe_ = false;
        return take_tls(std::exchange(first_bytes_, {}));
      }
      take_tls(bytes);
    }

    void answer_probe() {
      leave();
      closing_ = true;
      asio::async_write(socket_, asio::buffer(kHealthy),
                        [self = shared_from_this()](error_code /*error*/, std::size_t /*size*/) {
                          self->close();
                        });
    }

    void take_tls(std::string_view bytes) {
      const Status received = tls_.receive(bytes);
      if (!received.ok()) {
        // The TLS alert is sent before the connection is closed.
        const std::string peer = peer_;
        server_->report_rejection(peer, received.message());
        return send_and_close({});
      }

      frames_.feed(tls_.take_received());
      auto frame = frames_.next();
      if (!frame.ok()) return refuse({frame.status().message(), true});
      if (frame->has_value()) return handle_frame(**frame);
      flush();
      read();
    }

    void flush() {
      if (writing_) return;
      writing_text_ = tls_.take_outgoing();
      if (writing_text_.empty()) return;
      // There is an answer only for a greeting that was made with the key of the job, or of a token
      // that may not hold any more.
      const std::string& id = tls_.key_id();
      const bool may_join = id.empty() || server_->join_tokens_->holds(id, Clock::now());
      if (!closing_ && may_join) server_->pending_.note_begun(shared_from_this());
      writing_ = true;
      asio::async_write(socket_, asio::buffer(writing_text_),
                        [self = shared_from_this()](error_code error, std::size_t /*size*/) {
                          self->writing_ = false;
                          if (error || self->finished_) return;
                          self->flush();
                          if (self->closing_ && !self->writing_) self->close();
                          if (self->join_) self->accept_agent();
                        });
    }

    void handle_frame(const Frame& frame) {
      if (frame.kind != static_cast<std::uint16_t>(join_link::Kind::join) || frames_.mid_frame()) {
        return refuse({"its first message is not Join", true});
      }
      // The Join of another build may have other fields, but begins with that build.
      WireReader head(frame.payload);
      if (const std::string build = head.str(); build != build_id()) {
        return refuse({cat("its build is ", quoted(build), ", the job's is ", build_id(),
                           "; both need the same hvd"),
                       true});
      }
      const auto join = join_link::Join::decode(frame.payload);
      if (!join.ok()) return refuse({join.status().message(), true});
      // Host names appear in messages and in the environment of workers.
      if (const Status name = discovery::check_host_name(join->host); !name.ok()) {
        return refuse({name.message(), true});
      }
      if (join->slots < 1 || join->slots > kMaxSlots) {
        return refuse(
            {cat("it has ", join->slots, " slots; there may be 1 to ", with_thousands(kMaxSlots)),
             true});
      }

      if (const Status labels = check_labels(join->labels); !labels.ok()) {
        return refuse({labels.message(), true});
      }
      const Status admitted = admit(*join);
      if (!admitted.ok()) {
        return refuse({admitted.message(), is_final(admitted.code())}, join->host);
      }
      join_ = *join;
      accept_agent();
    }

    // A use of a join token counts from here on: of two agents that come at the same time, a token
    // for one lets in one.
    Status admit(const join_link::Join& join) {
      const std::string& id = tls_.key_id();
      if (id.empty()) return server_->callbacks_.admit(join.host, join.labels);
      JoinTokens& tokens = *server_->join_tokens_;
      HVD_RETURN_IF_ERROR(tokens.check(id, join.host, join.pass, Clock::now()));
      HVD_RETURN_IF_ERROR(server_->callbacks_.admit(join.host, join.labels));
      return tokens.use(id, join.host, join.pass);
    }

    // With which the agent comes to the next driver.
    std::string pass() const {
      const std::string& id = tls_.key_id();
      const bool comes_again = server_->limits_.hold.count() > 0 && !id.empty();
      return comes_again ? server_->join_tokens_->pass_for(id, join_->host) : "";
    }

    void accept_agent() {
      if (writing_) return;  // the rest of the handshake is sent first
      finished_ = true;
      deadline_.cancel();
      const auto server = server_;
      leave();
      const join_link::Accepted accepted{
          .silence_ms = static_cast<std::uint64_t>(server->limits_.silence.count()),
          .hold_ms = static_cast<std::uint64_t>(server->limits_.hold.count()),
          .pass = pass()};
      auto connection = open_tls_tunnel(std::move(socket_), std::move(tls_), accepted);
      if (!connection.ok()) return server->report_rejection(peer_, connection.status().message());
      connection->labels = std::move(join_->labels);
      server->callbacks_.on_joined({join_->host, join_->slots, std::move(*connection)});
    }

    // The other side has proved the token, so it gets the reason.
    void refuse(const join_link::Refused& refused, const std::string& host = {}) {
      server_->report_refusal(host.empty() ? peer_ : cat(host, " (", peer_, ")"), refused.reason);
      send_and_close(refused.encode());
    }

    void send_and_close(const std::string& text) {
      leave();
      if (!text.empty() && tls_.send(text).ok()) tls_.close();
      closing_ = true;
      flush();
      if (!writing_) close();
    }

    void leave() { server_->pending_.remove(shared_from_this()); }

    std::shared_ptr<Impl> server_;
    tcp::socket socket_;
    TlsSession tls_;
    asio::steady_timer deadline_;
    std::string peer_;
    std::string origin_;  // base/security/pending_handshakes.h
    std::array<char, 4096> buffer_{};
    std::size_t received_bytes_ = 0;
    bool may_be_probe_ = true;
    std::string first_bytes_;  // as long as that is open
    FrameDecoder frames_{kMaxJoinFrame};
    std::string writing_text_;
    bool writing_ = false;
    bool closing_ = false;
    bool finished_ = false;
    std::optional<join_link::Join> join_;
  };

  void accept() {
    acceptor_.async_accept(io_, [self = shared_from_this()](error_code error, tcp::socket socket) {
      if (self->closed_) return;
      if (!error) {
        self->begin_handshake(std::move(socket));
        return self->accept();
      }
      if (error == asio::error::connection_aborted) return self->accept();

      // The process is out of descriptors or memory. The oldest pending handshake is closed to make
      // room; if there is none, accepting begins again after a pause.
      if (const auto oldest = self->pending_.evict()) {
        (*oldest)->reject("the process is out of descriptors");
        return self->accept();
      }
      self->accept_pause_.expires_after(kAcceptPause);
      self->accept_pause_.async_wait([self](error_code cancelled) {
        if (!cancelled && !self->closed_) self->accept();
      });
    });
  }

  void begin_handshake(tcp::socket socket) {
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto tls = tls_->session();
    if (!tls.ok()) return;
    const auto handshake =
        std::make_shared<Handshake>(shared_from_this(), std::move(socket), std::move(*tls));
    // A real agent authenticates within milliseconds, so the oldest one is hardly ever such.
    if (const auto oldest = pending_.add(handshake, handshake->origin(), Clock::now())) {
      (*oldest)->reject("too many connections wait for authentication");
    }
    handshake->start();
  }

  void report_refusal(const std::string& peer, std::string_view reason) {
    if (reported_.size() >= kMaxReported) reported_.clear();
    std::string text = cat("refused to let ", peer, " join: ", reason);
    if (!reported_.insert(text).second) return;
    callbacks_.on_refused(text);
  }

  void report_rejection(const std::string& peer, std::string_view reason) {
    const auto count = rejections_.count(Clock::now());
    if (!count) return;
    const std::size_t others = *count - 1;
    callbacks_.on_refused(cat("refused a connection from ", peer, ": ", reason,
                              others > 0 ? cat(" (and ", others, " others before)") : ""));
  }

  asio::io_context& io_;
  Token token_;
  JoinTokens* join_tokens_;
  SocketAddress bind_;
  SocketAddress address_;
  Callbacks callbacks_;
  Limits limits_;
  ListenPorts ports_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  std::optional<TlsPsk> tls_;
  PendingHandshakes<std::shared_ptr<Handshake>> pending_;
  std::set<std::string> reported_;
  CountedWarning rejections_;
  bool closed_ = false;
};

JoinServer::JoinServer(asio::io_context& io, const Token& token, SocketAddress bind,
                       Callbacks callbacks, Limits limits, ListenPorts ports,
                       JoinTokens* join_tokens)
    : impl_(std::make_shared<Impl>(io, token, std::move(bind), std::move(callbacks), limits, ports,
                                   join_tokens)) {}

JoinServer::~JoinServer() { impl_->close(); }

Status JoinServer::start() { return impl_->start(); }

SocketAddress JoinServer::address() const { return impl_->address(); }

}  // namespace hvd::driver::join
