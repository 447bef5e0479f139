// Serves the metrics of a job to a Prometheus over the network: `GET /metrics` over HTTP/1.1, for
// clients with the token (`Authorization: Bearer TOKEN`, in 64 hexadecimal digits). All others get
// 401, whatever they ask for; on a loopback address, too, since other users of this machine reach
// that as well.
//
// Owned by the driver, on its thread. The io_context outlives it.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>

#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "driver/status/http_listener.h"

namespace hvd::driver {

class MetricsServer {
 public:
  MetricsServer(boost::asio::io_context& io, const Token& token, std::function<HttpReply()> metrics,
                HttpLimits limits = {});

  // Begins to answer at this socket, which listens.
  Status start(UniqueFd listening) { return listener_.start(std::move(listening)); }

 private:
  HttpReply answer(const HttpRequest& request) const;
  bool shows_token(const HttpRequest& request) const;

  const Token token_;
  const std::function<HttpReply()> metrics_;
  HttpListener listener_;
};

}  // namespace hvd::driver
