// Answers HTTP/1.1 requests at a listening socket, TCP or Unix, one request for each connection.
// What is asked for, and who may ask, is its owner's business (control_server.h,
// metrics_server.h).
//
// For one thread: that of the io_context, which outlives it. A client that is slow, silent or wrong
// costs a connection for at most ten seconds. There are few connections at a time; with one more
// the oldest one of the address with the most of them is closed, so that a flood drives out itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::driver {

struct HttpRequest {
  int socket = -1;  // of the connection
  std::string method;
  std::string target;
  std::string body;
  std::string authorization;  // empty: there is none, or more than one
};

struct HttpReply {
  unsigned status = 200;
  std::string text;
  std::string content_type = {};
  bool asks_for_token = false;  // says that a bearer token is needed
};

struct HttpLimits {
  std::chrono::milliseconds time{10'000};  // for each request and its answer
  std::size_t connections = 64;
};

class HttpListener {
 public:
  using Answer = std::function<void(HttpReply reply)>;
  // Calls `answer` once, now or later.
  using Handler = std::function<void(const HttpRequest& request, Answer answer)>;

  HttpListener(boost::asio::io_context& io, Handler handler, HttpLimits limits = {});
  ~HttpListener();  // closes the socket and all connections
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  // Begins to accept at this socket, which listens.
  Status start(UniqueFd listening);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
