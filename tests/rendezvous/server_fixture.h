// A real server on a thread of its own, and raw sockets to it, for tests that speak HTTP by hand.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "base/descriptors.h"
#include "base/socket.h"
#include "rendezvous/auth.h"
#include "rendezvous/client.h"
#include "rendezvous/server.h"

namespace hvd::rendezvous::test {

class RunningServer {
 public:
  explicit RunningServer(ServerOptions options = {});
  ~RunningServer();
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  const Token& token() const { return token_; }
  const SocketAddress& address() const { return address_; }
  ClientOptions client_options() const;
  std::unique_ptr<Client> client() const;
  // Runs `work` on the server's thread and waits for it.
  void on_its_thread(const std::function<void(Server&)>& work);

 private:
  Token token_ = Token::random();
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_;
  std::unique_ptr<Server> server_;
  SocketAddress address_;
  std::thread thread_;
};

struct RawAnswer {
  int status = 0;  // 0: none came
  std::string head;
  std::string body;
  // The value of a header, or "".
  std::string field(const std::string& name) const;
};

// A connection on which a test writes what it likes. Every call has a generous deadline; what fails
// is a test failure.
class RawConnection {
 public:
  explicit RawConnection(const SocketAddress& server);

  void send(std::string_view bytes);
  // False, without a failure, if the other side did not take it all.
  bool try_send(std::string_view bytes);
  // The next answer (100 Continue is one, too); status 0 if the server closed instead.
  RawAnswer receive();
  // All bytes until the server closes.
  std::string receive_all();
  bool closed_by_server();
  void half_close();
  void reset();  // closes with RST
  int fd() const { return socket_.get(); }

 private:
  bool receive_more();
  UniqueFd socket_;
  std::string received_;
};

// A request with its signature, as bytes.
std::string signed_request(Signer& signer, std::string_view method, std::string_view target,
                           std::string_view body = "", std::int64_t time_offset = 0);
std::int64_t unix_now();

}  // namespace hvd::rendezvous::test
