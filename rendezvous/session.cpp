#include "rendezvous/session.h"

#include <algorithm>
#include <array>
#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/descriptors.h"

// Coroutines here take references and views, and nothing is constructed inside a co_await
// expression: g++ 12 destroys such temporaries twice.

namespace hvd::rendezvous {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::redirect_error;
using asio::use_awaitable;
using boost::system::error_code;

constexpr std::size_t kStrangersShare = 4;  // one in so many descriptors is for them
constexpr std::size_t kFirstBuffer = 1024;  // enough for most requests; small, as many clients wait
constexpr std::size_t kBodyChunk = std::size_t{64} << 10;
constexpr std::size_t kSlowest = std::size_t{64} << 10;  // bytes per second that we put up with
constexpr std::size_t kMostLingering = std::size_t{1} << 20;
constexpr std::chrono::seconds kLingering{2};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kNothing;
constexpr int kRequestsInOneGo = 32;  // of one client, before others have their turn

std::int64_t unix_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Runs `undo` when it goes, also when a coroutine is ended from outside.
template <typename Undo>
class Finally {
 public:
  explicit Finally(Undo undo) : undo_(std::move(undo)) {}
  ~Finally() { undo_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  Undo undo_;
};

}  // namespace

Hub::Hub(const Token& job_key, const ServerLimits& server_limits, bool legacy_clients,
         FindWorker find_worker)
    : limits(server_limits),
      started(Clock::now()),
      started_unix(unix_milliseconds()),
      service(job_key, server_limits, legacy_clients, started_unix, std::move(find_worker)),
      // Horovod's clients never prove anything, and all come at the same moment.
      strangers(pending_limit(legacy_clients ? server_limits.max_connections / 2
                                             : server_limits.max_strangers,
                              kStrangersShare),
                server_limits.stranger_timeout) {}

std::int64_t Hub::unix_now(TimePoint now) const {
  return started_unix +
         std::chrono::duration_cast<std::chrono::milliseconds>(now - started).count();
}

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<Hub> hub)
    : socket_(std::move(socket)),
      hub_(std::move(hub)),
      place_(hub_->sessions.insert(hub_->sessions.end(), this)) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  origin_ = origin_of_peer(socket_.native_handle());
}

Session::~Session() {
  hub_->strangers.remove(this);
  hub_->sessions.erase(place_);
}

void Session::check_deadline(TimePoint now) {
  if (now < deadline_) return;
  expired_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

void Session::end_wait() {
  wait_over_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

void Session::close() {
  error_code ignored;
  socket_.close(ignored);
}

Duration Session::time_for(std::size_t bytes) const {
  return hub_->limits.receive_timeout + std::chrono::milliseconds(bytes * 1000 / kSlowest);
}

void Session::take(std::size_t count) {
  begin_ += count;
  if (begin_ == end_) begin_ = end_ = 0;
}

// Space behind end_, if need be by moving or growing; none if a whole head's worth waits there
// already.
void Session::make_room() {
  if (end_ < in_.size()) return;
  if (begin_ > 0) {
    std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin_),
              in_.begin() + static_cast<std::ptrdiff_t>(end_), in_.begin());
    end_ -= begin_;
    begin_ = 0;
    return;
  }
  const std::size_t most = std::max(hub_->limits.max_header + 1, kFirstBuffer);
  in_.resize(std::min(std::max(2 * in_.size(), kFirstBuffer), most));
}

// Reads some more. False if nothing more will come: the client has closed, the time is up
// (expired_), or the server stops.
awaitable<bool> Session::fill() {
  make_room();
  error_code error;
  const std::size_t got = co_await socket_.async_read_some(
      asio::buffer(in_.data() + end_, in_.size() - end_), redirect_error(use_awaitable, error));
  end_ += got;
  co_return !error && got > 0;
}

awaitable<Session::Got> Session::read_head() {
  RequestParser parser(head_, hub_->limits.max_header);
  bool begun = false;
  allow(hub_->limits.idle_timeout);

  for (;;) {
    std::size_t used = 0;
    std::string reason;
    using Progress = RequestParser::Progress;
    const auto progress = parser.feed(unread(), used, reason);
    take(used);
    if (progress == Progress::done) co_return Got::whole;
    ticket_.is_signed = false;

    if (progress == Progress::too_large) {
      Reply reply = make_error(431, cat("the header is larger than the limit, ",
                                        with_thousands(hub_->limits.max_header), " bytes"));
      reply.close = true;
      co_await answer(reply);
      co_return Got::refused;
    }
    if (progress == Progress::malformed) {
      Reply reply = make_error(400, cat("this is not HTTP/1.1: ", reason));
      reply.close = true;
      co_await answer(reply);
      co_return Got::refused;
    }

    if (!begun && !unread().empty()) {
      begun = true;
      allow(hub_->limits.receive_timeout);
    }
    const bool more = co_await fill();
    if (more) continue;
    if (!expired_ || !begun) co_return Got::closed;
    Reply reply = make_error(408, "the request's header did not come in time");
    reply.close = true;
    co_await answer(reply);
    co_return Got::refused;
  }
}

// Memory is taken as bytes come, not as they are announced.
awaitable<bool> Session::read_body(std::size_t size, std::string& body) {
  const auto here = unread().substr(0, size);
  body.assign(here);
  take(here.size());
  allow(time_for(size));
  while (body.size() < size) {
    const std::size_t had = body.size();
    body.resize(std::min(size, std::max(had + kBodyChunk, 2 * had)));
    std::size_t filled = had;
    while (filled < body.size()) {
      error_code error;
      const std::size_t got =
          co_await socket_.async_read_some(asio::buffer(body.data() + filled, body.size() - filled),
                                           redirect_error(use_awaitable, error));
      if (error || got == 0) co_return false;
      filled += got;
    }
  }
  co_return true;
}

// Suspends until what is read is there, or the time is up. Nothing if the client has left.
awaitable<std::optional<Reply>> Session::wait_for(const PendingRead& read) {
  deadline_ = kNever;
  wait_over_ = false;
  const auto until = Clock::now() + read.wait;
  const auto place = hub_->waits.emplace(until, this).first;
  if (place == hub_->waits.begin()) hub_->on_new_wait();
  const Finally no_deadline([&] { hub_->waits.erase({until, this}); });

  std::optional<Reply> reply;
  bool client_there = true;
  while (client_there && !reply) {
    const std::string* key = read.bulk ? hub_->service.last_missing(read) : &read.keys.front();
    if (key == nullptr) {
      reply = hub_->service.answer_bulk(read);
      break;
    }
    woken_ = false;
    const auto id =
        hub_->service.store().wait(read.scope, *key, read.newer_than, [this](const Entry& entry) {
          woken_ = true;
          woken_with_ = entry;
          error_code ignored;
          socket_.cancel(ignored);
        });
    const Finally no_wait([&] { hub_->service.store().cancel_wait(read.scope, *key, id); });
    // Requests that come meanwhile stay in the buffer. When it is full, only an error is waited
    // for.
    while (client_there && !woken_ && !wait_over_) {
      make_room();
      if (end_ < in_.size()) {
        const bool more = co_await fill();
        client_there = more || woken_ || wait_over_;
      } else {
        error_code error;
        co_await socket_.async_wait(asio::ip::tcp::socket::wait_error,
                                    redirect_error(use_awaitable, error));
        // Asio may report the error of another socket, which was closed in the same turn of the
        // loop.
        const bool failed = error || is_ready(socket_.native_handle(), POLLPRI);
        client_there = woken_ || wait_over_ || !failed;
      }
    }
    if (woken_ && !read.bulk) {
      reply = Service::answer_single(woken_with_);
      woken_with_ = Entry();
    } else if (wait_over_) {
      reply = hub_->service.answer_late(read);
    }
  }
  if (hub_->stopping || !client_there) co_return std::nullopt;
  co_return reply;
}

// Nearly always there is room for all of it: then nothing need be suspended.
std::size_t Session::write_some(std::string_view head, std::string_view body, bool& failed) {
  const std::array<asio::const_buffer, 2> buffers{asio::buffer(head), asio::buffer(body)};
  error_code error;
  const std::size_t sent = socket_.write_some(buffers, error);
  failed = error && error != asio::error::would_block;
  return sent;
}

// Both must stay until it is done.
awaitable<bool> Session::write(std::string_view head, std::string_view body) {
  allow(time_for(head.size() + body.size()));
  for (;;) {
    bool failed = false;
    const std::size_t sent = write_some(head, body, failed);
    if (failed) co_return false;
    const std::size_t of_head = std::min(sent, head.size());
    head.remove_prefix(of_head);
    body.remove_prefix(sent - of_head);
    if (head.empty() && body.empty()) co_return true;
    error_code error;
    co_await socket_.async_wait(asio::ip::tcp::socket::wait_write,
                                redirect_error(use_awaitable, error));
    if (error) co_return false;
  }
}

awaitable<bool> Session::answer(Reply& reply) {
  reply.close = reply.close || !head_.keep_alive;
  out_.clear();
  hub_->service.write_head(reply, head_, ticket_, out_);
  std::string_view body;
  if (reply.body != nullptr && head_.method != "HEAD") body = reply.body->bytes;
  const bool sent = co_await write(out_, body);
  co_return sent && !reply.close;
}

// Before the socket is closed on a client that may still be sending: otherwise the kernel would
// answer its bytes with a reset, and that may overtake our answer.
awaitable<void> Session::linger() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  allow(kLingering);
  std::size_t total = 0;
  Bytes waste(4096);
  while (!error && total < kMostLingering) {
    total +=
        co_await socket_.async_read_some(asio::buffer(waste), redirect_error(use_awaitable, error));
  }
}

awaitable<Session::Got> Session::receive_body(std::size_t size, std::string& body) {
  if (size == 0) co_return Got::whole;
  if (head_.expects_continue && unread().empty()) {
    const bool sent = co_await write(kContinue, kNothing);
    if (!sent) co_return Got::closed;
  }
  hub_->receiving += size;
  const Finally received([&] { hub_->receiving -= size; });
  const bool whole = co_await read_body(size, body);
  if (whole) co_return Got::whole;
  if (!expired_) co_return Got::closed;
  Reply late = make_error(408, "the request's body did not come in time");
  late.close = true;
  co_await answer(late);
  co_return Got::refused;
}

awaitable<void> Session::serve(std::unique_ptr<Session> session) {
  Session& self = *session;
  Hub& hub = *self.hub_;
  int in_one_go = 0;
  bool going_on = true;

  while (going_on && !hub.stopping) {
    const Got got = co_await self.read_head();
    if (got == Got::closed) co_return;
    if (got == Got::refused) break;

    auto refusal = hub.service.admit(self.head_, self.ticket_, hub.unix_now(Clock::now()));
    if (self.ticket_.proved) hub.strangers.remove(&self);
    if (self.ticket_.is_legacy && hub.on_refused_legacy_client) {
      hub.on_refused_legacy_client(self.head_.method, self.head_.target, self.origin_);
    }

    const std::size_t size = self.head_.content_length.value_or(0);
    if (!refusal && (size > hub.limits.max_total || hub.receiving > hub.limits.max_total - size)) {
      refusal = make_error(503, "too many bodies are on their way to this server; try again");
    }
    if (refusal) {
      // The rest of the request cannot be told from the next one; and strangers do not stay.
      refusal->close = refusal->close || size > 0 || self.head_.chunked || !self.ticket_.is_signed;
      going_on = co_await self.answer(*refusal);
      continue;
    }

    std::string body;
    const Got got_body = co_await self.receive_body(size, body);
    if (got_body == Got::closed) co_return;
    if (got_body == Got::refused) break;

    auto outcome = hub.service.handle(self.head_, self.ticket_, std::move(body));
    if (auto* const pending = std::get_if<PendingRead>(&outcome)) {
      auto reply = co_await self.wait_for(*pending);
      if (!reply || hub.service.verifier().has_ended(self.ticket_.id.worker)) co_return;
      outcome = std::move(*reply);
      in_one_go = 0;
    }

    Reply& reply = std::get<Reply>(outcome);
    // Horovod's clients read to the end of the connection.
    if (!self.ticket_.is_signed) reply.close = true;
    going_on = co_await self.answer(reply);
    if (self.unread().empty()) {
      in_one_go = 0;
    } else if (++in_one_go >= kRequestsInOneGo) {
      in_one_go = 0;
      co_await asio::post(self.socket_.get_executor(), use_awaitable);
    }
  }

  if (!hub.stopping) co_await self.linger();
}

}  // namespace hvd::rendezvous
