#include "tests/rendezvous/server_fixture.h"

#include <array>
#include <cerrno>
#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::rendezvous::test {

using hvd::test::kGenerous;

RunningServer::RunningServer(ServerOptions options)
    : busy_(boost::asio::make_work_guard(io_)),
      server_(std::make_unique<Server>(io_, token_, std::move(options))) {
  const Status started = server_->start();
  if (!started.ok()) throw std::runtime_error(started.message());
  address_ = server_->address();
  thread_ = std::thread([this] { io_.run(); });
}

RunningServer::~RunningServer() {
  on_its_thread([this](Server&) { server_.reset(); });
  busy_.reset();
  // Ends by itself only if no connection is left behind.
  thread_.join();
}

void RunningServer::on_its_thread(const std::function<void(Server&)>& work) {
  std::promise<void> done;
  boost::asio::post(io_, [&] {
    work(*server_);
    done.set_value();
  });
  done.get_future().wait();
}

ClientOptions RunningServer::client_options() const {
  ClientOptions options;
  options.host = address_.host;
  options.port = address_.port;
  return options;
}

std::unique_ptr<Client> RunningServer::client() const {
  return std::make_unique<Client>(client_options(), token_);
}

std::string RawAnswer::field(const std::string& name) const {
  const std::string start = "\r\n" + name + ": ";
  const std::size_t at = head.find(start);
  if (at == std::string::npos) return "";
  const std::size_t from = at + start.size();
  return head.substr(from, head.find("\r\n", from) - from);
}

RawConnection::RawConnection(const SocketAddress& server) {
  auto socket = connect_tcp(server, Clock::now() + kGenerous);
  if (!socket.ok()) throw std::runtime_error(socket.status().message());
  socket_ = std::move(*socket);
}

void RawConnection::send(std::string_view bytes) {
  const Status sent = send_all(fd(), bytes, Clock::now() + kGenerous);
  EXPECT_TRUE(sent.ok()) << sent.to_string();
}

bool RawConnection::try_send(std::string_view bytes) {
  return send_all(fd(), bytes, Clock::now() + kGenerous).ok();
}

bool RawConnection::receive_more() {
  const Status ready = wait_for(fd(), POLLIN, Clock::now() + kGenerous);
  EXPECT_TRUE(ready.ok()) << "nothing came: " << ready.to_string();
  if (!ready.ok()) return false;
  std::array<char, 65536> buffer{};
  const ssize_t got = ::recv(fd(), buffer.data(), buffer.size(), 0);
  if (got <= 0) return false;
  received_.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

RawAnswer RawConnection::receive() {
  RawAnswer answer;
  std::size_t end = 0;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!receive_more()) return answer;
  }
  answer.head = received_.substr(0, end + 2);
  const std::size_t length = parse_number<std::size_t>(answer.field("Content-Length")).value_or(0);
  while (received_.size() < end + 4 + length) {
    if (!receive_more()) return answer;
  }
  answer.body = received_.substr(end + 4, length);
  answer.status = parse_number<int>(std::string_view(answer.head).substr(9, 3)).value_or(-1);
  received_.erase(0, end + 4 + length);
  return answer;
}

std::string RawConnection::receive_all() {
  while (receive_more()) {
  }
  return std::exchange(received_, {});
}

bool RawConnection::closed_by_server() { return receive_all().empty(); }

void RawConnection::half_close() { ::shutdown(fd(), SHUT_WR); }

void RawConnection::reset() {
  const linger now{1, 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket_.reset();
}

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string signed_request(Signer& signer, std::string_view method, std::string_view target,
                           std::string_view body, std::int64_t time_offset) {
  const std::string digest = body_digest_text(body);
  const auto signature = signer.sign({method, target, digest}, unix_now() + time_offset);
  std::string request =
      cat(method, " ", target,
          " HTTP/1.1\r\nHost: test\r\nAuthorization: ", signature.authorization, "\r\n");
  if (method == "PUT" || method == "POST") {
    request += cat("Content-Length: ", body.size(), "\r\n");
  }
  return request + "\r\n" + std::string(body);
}

}  // namespace hvd::rendezvous::test
