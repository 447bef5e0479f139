#include "rendezvous/server.h"

#include <exception>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/log.h"
#include "base/security/pending_handshakes.h"
#include "base/text.h"
#include "rendezvous/session.h"

namespace hvd::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::redirect_error;
using asio::use_awaitable;
using boost::system::error_code;

constexpr int kBacklog = 16'384;  // thousands of workers may come at the same moment
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{50};

// An error here ends one connection only.
void log_escaped(const char* what, const std::exception_ptr& escaped) {
  if (!escaped) return;
  try {
    std::rethrow_exception(escaped);
  } catch (const std::exception& error) {
    HVD_LOG(error, "rendezvous: " << what << " ended: " << error.what());
  }
}

}  // namespace

class Server::Impl : public std::enable_shared_from_this<Server::Impl> {
 public:
  Impl(asio::io_context& io, const Token& job_key, ServerOptions options)
      : io_(io),
        options_(std::move(options)),
        hub_(std::make_shared<Hub>(job_key, options_.limits, options_.legacy_clients,
                                   options_.find_worker)),
        wait_timer_(io),
        sweep_timer_(io) {}

  Result<SocketAddress> listen(SocketAddress where) {
    if (hub_->stopping) return Status(Code::failed_precondition, "the rendezvous was stopped");
    const bool any_port = where.port == 0;
    if (any_port && !listeners_.empty()) where.port = address().port;
    auto socket = listen_tcp(where, options_.ports, kBacklog);
    if (!socket.ok() && any_port && where.port != 0) {
      socket = listen_tcp({where.host, 0}, options_.ports, kBacklog);
    }
    HVD_RETURN_IF_ERROR(socket.status().with_context("rendezvous"));
    auto bound = local_address(socket->get());
    HVD_RETURN_IF_ERROR(bound.status().with_context("rendezvous"));
    auto listener = std::make_shared<Listener>(io_, *bound);
    const bool v6 = bound->host.find(':') != std::string::npos;
    error_code error;
    listener->acceptor.assign(v6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), socket->get(), error);
    if (error) {
      return Status(Code::internal, cat("rendezvous: listen: ", error.message()));
    }
    socket->release();
    listeners_.push_back(listener);
    const auto self = shared_from_this();
    asio::co_spawn(io_, accept(self, std::move(listener)), [](const std::exception_ptr& escaped) {
      log_escaped("accepting connections", escaped);
    });
    if (!std::exchange(watching_, true)) watch(self);
    return *bound;
  }

  void close(const SocketAddress& where) {
    std::erase_if(listeners_, [&](const std::shared_ptr<Listener>& listener) {
      if (listener->address.host != where.host || listener->address.port != where.port)
        return false;
      listener->close();
      return true;
    });
  }

  void stop() {
    hub_->stopping = true;
    for (const auto& listener : listeners_) listener->close();
    wait_timer_.cancel();
    sweep_timer_.cancel();
    for (Session* const session : hub_->sessions) session->close();
  }

  SocketAddress address() const {
    return listeners_.empty() ? SocketAddress() : listeners_.front()->address;
  }
  const ServerOptions& options() const { return options_; }

  void set_members(std::uint64_t generation, std::vector<Incarnation> members, bool is_in_force) {
    hub_->service.rights().set_members(generation, std::move(members), is_in_force);
  }

  std::string get(std::string_view scope, std::string_view key) const {
    const Entry* const entry = hub_->service.store().find(scope, key);
    return entry == nullptr ? std::string() : std::string(entry->value->bytes);
  }

  void put(std::string_view scope, std::string_view key, std::string value) {
    const auto version = hub_->service.store().put(scope, key, make_value(std::move(value)));
    if (!version.ok()) {
      HVD_LOG(error, "rendezvous: could not write " << percent_encode(scope) << "/"
                                                    << percent_encode(key) << ": "
                                                    << version.status().message());
    }
  }

  void expect(const std::map<std::string, std::size_t>& scope_sizes) {
    for (const auto& [scope, size] : scope_sizes) hub_->service.store().expect(scope, size);
  }
  void erase_scope(std::string_view scope) { hub_->service.store().erase_scope(scope); }
  void erase_scopes_if(const std::function<bool(std::string_view)>& condition) {
    hub_->service.store().erase_scopes_if(condition);
  }

 private:
  // One address where clients are let in. Kept alive by its coroutine.
  struct Listener {
    Listener(asio::io_context& io, SocketAddress where)
        : address(std::move(where)), acceptor(io), pause_timer(io) {}
    void close() {
      error_code ignored;
      acceptor.close(ignored);
      pause_timer.cancel();
    }
    const SocketAddress address;
    asio::ip::tcp::acceptor acceptor;
    asio::steady_timer pause_timer;
  };

  static void watch(const std::shared_ptr<Impl>& self) {
    self->hub_->on_new_wait = [weak = self->weak_from_this()] {
      if (const auto impl = weak.lock()) impl->arm_wait_timer();
    };
    self->hub_->on_refused_legacy_client = [weak = self->weak_from_this()](
                                               std::string_view method, std::string_view target,
                                               std::string_view origin) {
      const auto impl = weak.lock();
      if (!impl || !impl->options_.on_legacy_client || std::exchange(impl->legacy_told_, true)) {
        return;
      }
      impl->options_.on_legacy_client(cat(method, " ", target), origin);
    };
    asio::co_spawn(self->io_, sweep(self), [](const std::exception_ptr& escaped) {
      log_escaped("watching over deadlines", escaped);
    });
  }

  static asio::awaitable<void> accept(std::shared_ptr<Impl> self,
                                      std::shared_ptr<Listener> listener) {
    while (!self->hub_->stopping) {
      error_code error;
      auto socket = co_await listener->acceptor.async_accept(redirect_error(use_awaitable, error));
      if (self->hub_->stopping || !listener->acceptor.is_open()) break;
      if (error == asio::error::no_descriptors || error == asio::error::no_memory ||
          error == asio::error::no_buffer_space ||
          error == boost::system::errc::too_many_files_open_in_system) {
        // A stranger makes room for a waiting connection, which may be a member of the job.
        if (self->close_stranger(error.message())) continue;
        self->tell_not_accepted(error);
        listener->pause_timer.expires_after(kPauseWithoutDescriptors);
        co_await listener->pause_timer.async_wait(redirect_error(use_awaitable, error));
        continue;
      }
      if (error) continue;  // that client is gone already
      if (self->hub_->sessions.size() >= self->options_.limits.max_connections &&
          !self->close_stranger("too many connections")) {
        self->refuse(std::move(socket));
        continue;
      }
      auto session = std::make_unique<Session>(std::move(socket), self->hub_);
      self->take_for_stranger(*session);
      asio::co_spawn(
          self->io_, Session::serve(std::move(session)),
          [](const std::exception_ptr& escaped) { log_escaped("a connection", escaped); });
    }
  }

  // Until it has proved a key: the job's, or a worker's own.
  void take_for_stranger(Session& session) {
    auto& strangers = hub_->strangers;
    const auto closed = strangers.add(&session, session.origin(), Clock::now());
    if (closed)
      close_stranger(**closed, cat("more than ", strangers.most(), " had not authenticated"));
  }

  // False if there is none.
  bool close_stranger(std::string_view why) {
    const auto closed = hub_->strangers.evict();
    if (closed) close_stranger(**closed, why);
    return closed.has_value();
  }

  void close_stranger(Session& session, std::string_view why) {
    session.close();
    if (const auto told = hub_->closed_strangers.count(Clock::now())) {
      HVD_LOG(warning, "rendezvous: closed "
                           << *told << (*told == 1 ? " connection" : " connections")
                           << " that had not proved a key of this job, the last one from "
                           << session.origin() << ": " << why);
    }
  }

  void tell_not_accepted(const error_code& error) {
    if (const auto told = not_accepted_.count(Clock::now())) {
      HVD_LOG(warning,
              "rendezvous: " << *told << (*told == 1 ? " time" : " times")
                             << " a connection could not be accepted: " << error.message());
    }
  }

  // One write into the empty buffer of a new socket always succeeds, or the client does without.
  void refuse(asio::ip::tcp::socket socket) const {
    Reply reply = make_error(503, "too many connections; try again");
    reply.close = true;
    std::string out;
    hub_->service.write_head(reply, RequestHead(), Ticket(), out);
    out += reply.body->bytes;
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(out), ignored);
    socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }

  // One timer for all blocking reads: the earliest of their deadlines.
  void arm_wait_timer() {
    if (hub_->waits.empty() || hub_->stopping) return;
    wait_timer_.expires_at(hub_->waits.begin()->first);
    wait_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
      const auto self = weak.lock();
      if (error || !self) return;
      auto& waits = self->hub_->waits;
      const TimePoint now = Clock::now();
      while (!waits.empty() && waits.begin()->first <= now) {
        Session* const session = waits.begin()->second;
        waits.erase(waits.begin());
        session->end_wait();
      }
      self->arm_wait_timer();
    });
  }

  // One coarse timer for all other deadlines, which need no precision.
  static asio::awaitable<void> sweep(std::shared_ptr<Impl> self) {
    const auto& limits = self->options_.limits;
    const auto interval = std::clamp<std::chrono::milliseconds>(
        std::min(limits.idle_timeout, limits.receive_timeout) / 4, std::chrono::milliseconds(10),
        std::chrono::milliseconds(500));
    while (!self->hub_->stopping) {
      self->sweep_timer_.expires_after(interval);
      error_code error;
      co_await self->sweep_timer_.async_wait(redirect_error(use_awaitable, error));
      if (error) break;
      const TimePoint now = Clock::now();
      for (Session* const session : self->hub_->sessions) session->check_deadline(now);
      while (const auto late = self->hub_->strangers.take_expired(now)) {
        self->close_stranger(**late, "they did not authenticate in time");
      }
      self->hub_->service.verifier().forget_old(self->hub_->unix_now(now));
    }
  }

  asio::io_context& io_;
  ServerOptions options_;
  std::shared_ptr<Hub> hub_;
  std::vector<std::shared_ptr<Listener>> listeners_;
  asio::steady_timer wait_timer_;
  asio::steady_timer sweep_timer_;
  CountedWarning not_accepted_;
  bool watching_ = false;
  bool legacy_told_ = false;
};

Server::Server(asio::io_context& io, const Token& job_key, ServerOptions options)
    : impl_(std::make_shared<Impl>(io, job_key, std::move(options))) {}

Server::~Server() { stop(); }

Status Server::start() {
  if (impl_->address().port != 0) {
    return {Code::failed_precondition, "the rendezvous was started before"};
  }
  return impl_->listen(impl_->options().bind).status();
}
Result<SocketAddress> Server::listen(const SocketAddress& where) { return impl_->listen(where); }
void Server::close(const SocketAddress& where) { impl_->close(where); }
void Server::stop() { impl_->stop(); }
SocketAddress Server::address() const { return impl_->address(); }

void Server::set_members(std::uint64_t generation, std::vector<Incarnation> members,
                         bool is_in_force) {
  impl_->set_members(generation, std::move(members), is_in_force);
}

void Server::put(std::string_view scope, std::string_view key, std::string value) {
  impl_->put(scope, key, std::move(value));
}

std::string Server::get(std::string_view scope, std::string_view key) const {
  return impl_->get(scope, key);
}

void Server::expect(const std::map<std::string, std::size_t>& scope_sizes) {
  impl_->expect(scope_sizes);
}
void Server::erase_scope(std::string_view scope) { impl_->erase_scope(scope); }
void Server::erase_scopes_if(const std::function<bool(std::string_view)>& condition) {
  impl_->erase_scopes_if(condition);
}

}  // namespace hvd::rendezvous
