// Answers HTTP/1.1 requests at a listening socket, TCP or Unix, one request for each connection.
// The meaning of a request, and the clients that may make it, are its owner's business
// (control_server.h, metrics_server.h, page_server.h).
//
// For one thread: that of the io_context, which outlives it. A client that is slow, silent or wrong
// costs a connection for at most ten seconds. There are few connections at a time; with one more
// the oldest one of the address with the most of them is closed, so that a flood drives out itself.
//
// An answer may go on for as long as the client stays (HttpStream). Such connections are counted by
// themselves. One that does not read has at most one piece of the answer in memory, and is closed
// after the same ten seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::driver {

struct HttpRequest {
  int socket = -1;  // of the connection
  std::string method;
  std::string target;
  std::string body;
  std::string authorization;  // empty: there is none, or more than one
  // Empty: there is none; with a comma at its beginning: there is more than one.
  std::string host;
  std::string origin;
  std::string fetch_site;  // Sec-Fetch-Site
  std::string last_event_id;
};

// The token of `Authorization: Bearer TOKEN`; empty: there is none.
std::string_view bearer_token(const HttpRequest& request);

// The body of an answer that goes on.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // The next part of the body; empty: there is none for now. Called when the client has taken all
  // before.
  virtual std::string next() = 0;
  // Sent if nothing else was for some time: a client that has gone is noticed by it.
  virtual std::string idle() = 0;
};

using HttpField = std::pair<std::string, std::string>;  // name and value

struct HttpReply {
  unsigned status = 200;
  std::string text;  // the answer to HEAD leaves it out
  std::string content_type = {};
  bool asks_for_token = false;  // says that a bearer token is needed
  std::vector<HttpField> fields = {};
  std::shared_ptr<HttpStream> stream = {};  // in place of the text
};

struct HttpLimits {
  std::chrono::milliseconds time{
      10'000};  // for each request and its answer, each piece of a stream
  std::size_t connections = 64;
  std::size_t streams = 16;
  std::chrono::milliseconds idle{10'000};  // of a stream
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

  // Streams may have something to say. They are asked once this turn of the loop is over.
  void wake_streams();
  // Sends what the streams still have, as far as the clients take it at once, and closes them.
  void end_streams();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
