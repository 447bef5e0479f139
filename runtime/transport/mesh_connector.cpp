#include "runtime/transport/mesh_connector.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "runtime/core/threads.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kDataPurpose = "data";
constexpr std::chrono::milliseconds kBetweenAttempts{20};

std::string name_of(int rank) { return cat("rank ", rank); }

// The name that the dialling rank gives itself, so that the other one knows which connection it is.
std::string name_of(int rank, int socket) {
  return socket == 0 ? name_of(rank) : cat(name_of(rank), ", socket ", socket);
}

}  // namespace

Result<SocketAddress> MeshConnector::open() {
  HVD_RETURN_IF_ERROR(poller_.open());
  acceptor_.emplace(poller_, options_.token,
                    HandshakeIdentity{name_of(options_.rank), options_.generation},
                    options_.handshake_timeout, kDataPurpose,
                    static_cast<std::size_t>(options_.size - options_.rank) *
                        static_cast<std::size_t>(options_.sockets),
                    kMaxPending);
  auto where = acceptor_->listen(options_.address, options_.ports);
  HVD_RETURN_IF_ERROR(where.status().with_context(cat("rank ", options_.rank, ", for data")));
  thread_ = start_thread("hvd-connect", [this] { loop(); });
  return where;
}

void MeshConnector::set_addresses(std::vector<SocketAddress> addresses) {
  const std::lock_guard lock(mutex_);
  addresses_ = std::move(addresses);
}

void MeshConnector::dial(const Route& route) {
  {
    const std::lock_guard lock(mutex_);
    to_dial_.push_back(route);
  }
  poller_.wake();
}

void MeshConnector::stop() {
  stopping_ = true;
  poller_.wake();
}

void MeshConnector::close() {
  if (!thread_.joinable()) return;
  stop();
  thread_.join();
}

void MeshConnector::loop() {
  while (!stopping_) {
    const auto deadline = serve_deadlines(Clock::now());
    for (const auto& event : poller_.wait(deadline)) {
      if (const auto called = route_of_fd_.find(event.fd); called != route_of_fd_.end()) {
        handle(Route(called->second));
      } else if (acceptor_->owns(event.fd)) {
        if (auto arrival = acceptor_->handle(event, Clock::now())) welcome(std::move(*arrival));
      }
    }
    begin_new_dials();
  }
  outbound_.clear();
  acceptor_.reset();
}

void MeshConnector::begin_new_dials() {
  std::vector<Route> routes;
  {
    const std::lock_guard lock(mutex_);
    routes.swap(to_dial_);
  }
  for (const Route& route : routes) {
    const auto now = Clock::now();
    outbound_[route] = {nullptr, now, now + options_.connect_timeout};
    attempt(route);
  }
}

SocketAddress MeshConnector::address_of(int rank) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(rank);
  return index < addresses_.size() ? addresses_[index] : SocketAddress();
}

void MeshConnector::attempt(const Route& route) {
  auto& caller = outbound_.at(route);
  const int rank = route.rank;
  const SocketAddress where = address_of(rank);
  const auto generation = options_.generation;
  auto dial = std::make_unique<OutboundHandshake>(
      where, options_.token, kDataPurpose,
      HandshakeIdentity{name_of(options_.rank, route.socket), generation},
      HandshakeIdentity{name_of(rank), generation});
  if (const Status started = dial->start(); !started.ok()) {
    give_up(route, started.with_context(name_of(rank)));
    return;
  }
  caller.dial = std::move(dial);
  route_of_fd_.emplace(caller.dial->fd(), route);
  poller_.watch(caller.dial->fd(), true);
}

void MeshConnector::handle(const Route& route) {
  auto& caller = outbound_.at(route);
  OutboundHandshake& dial = *caller.dial;
  const bool was_connecting = dial.wants_to_write();
  const auto progress = dial.handle();
  if (progress.ok() && *progress == OutboundHandshake::Progress::under_way) {
    if (was_connecting && !dial.wants_to_write()) poller_.watch(dial.fd());
    return;
  }
  poller_.forget(dial.fd());
  route_of_fd_.erase(dial.fd());
  if (!progress.ok()) {
    give_up(route, progress.status());
  } else if (*progress == OutboundHandshake::Progress::again) {
    caller.dial.reset();
    caller.next_attempt = Clock::now() + kBetweenAttempts;
  } else {
    ProvedSocket socket = dial.take();
    outbound_.erase(route);
    // Refused only when all is over.
    (void)hooks_.connected(route, std::move(socket));
  }
}

void MeshConnector::welcome(MemberAcceptor::Arrival arrival) {
  poller_.forget(arrival.connection->fd());
  const auto route = route_named(arrival.name);
  const Status taken =
      route ? hooks_.connected(*route, {arrival.connection->release(), std::move(arrival.keys)})
            : Status(Code::permission_denied, "no such rank connects to this one");
  // After a failure every connection is refused, which is nothing to warn of.
  const bool odd = taken.code() == Code::permission_denied || taken.code() == Code::already_exists;
  if (odd) {
    HVD_LOG(warning, "rank " << options_.rank << " refused a data connection of \"" << arrival.name
                             << "\": " << taken.message());
  }
}

std::optional<Route> MeshConnector::route_named(const std::string& name) const {
  for (int higher = options_.rank + 1; higher < options_.size; ++higher) {
    if (!name.starts_with(name_of(higher))) continue;
    for (int socket = 0; socket < options_.sockets; ++socket) {
      if (name == name_of(higher, socket)) return Route{higher, socket};
    }
  }
  return std::nullopt;
}

// A copy of the route, which may be the caller's that goes.
void MeshConnector::give_up(const Route& route, const Status& why) {
  const Route gone = route;
  outbound_.erase(gone);
  hooks_.unreachable(gone, why);
}

// The error of a rank that was called for too long.
Status MeshConnector::not_answered(const Route& route) {
  const auto& dial = outbound_.at(route).dial;
  const bool connecting = dial && dial->wants_to_write();
  return {Code::deadline_exceeded,
          cat(name_of(route.rank), " did not answer on its data port, ",
              address_of(route.rank).to_string(), ", within ", options_.connect_timeout.count(),
              " ms, when ", name_of(options_.rank), " at ", options_.address, " connected to it",
              connecting ? kAskFirewall : "")};
}

// Returns when the next one is due.
TimePoint MeshConnector::serve_deadlines(TimePoint now) {
  TimePoint next = acceptor_->expire(now);
  std::vector<Route> due;
  for (const auto& [route, caller] : outbound_) {
    const auto when = caller.dial ? caller.until : std::min(caller.next_attempt, caller.until);
    if (when <= now) {
      due.push_back(route);
    } else {
      next = std::min(next, when);
    }
  }
  for (const Route& route : due) {
    auto& caller = outbound_.at(route);
    if (caller.until > now) {
      attempt(route);
      if (outbound_.contains(route)) next = std::min(next, outbound_.at(route).until);
      continue;
    }
    const Status late = not_answered(route);
    if (caller.dial) {
      poller_.forget(caller.dial->fd());
      route_of_fd_.erase(caller.dial->fd());
    }
    give_up(route, late);
  }
  return next;
}

}  // namespace hvd::runtime
