// Answers questions about a running job, and takes requests, at a Unix socket that only this user
// and root can reach (job_sockets.h). It speaks HTTP/1.1, one request for each connection:
//
//   GET /status   what the job is doing (job_status.h), as JSON
//   GET /metrics  its metrics (driver/metrics/job_metrics.h), in the text format of Prometheus
//   POST /page    a link that opens its status page once (page_server.h); 409: it has no page
//   POST /dump    what each worker does now, as text, within a few seconds
//   POST /stop    as if hvdrun had got SIGTERM
//   POST /drain, /undrain   of the host that the body names: no worker of an elastic job works
//                           there, or may again
//   POST /scale   of an elastic job: its world has at most as many workers as the body says
//   POST /token   of an elastic job that agents join: makes, lists, revokes a join token, as the
//                 body says in JSON
//
// A request that the job refuses is answered with 409 and the reason, in words.
//
// Owned by the driver, on its thread. The io_context outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/status.h"
#include "driver/status/http_listener.h"

namespace hvd::driver {

class ControlServer {
 public:
  struct Callbacks {
    std::function<std::string()> status;
    std::function<HttpReply()> metrics;
    std::function<std::string()> page_link;  // empty: there is no page
    // Calls `answer` once, now or later.
    std::function<void(std::function<void(std::string_view text)> answer)> dump;
    std::function<void()> stop;
    // A change that a request with this body asks for. Calls `answer` once, now or later.
    using Answer = std::function<void(bool accepted, std::string_view text)>;
    using Change = std::function<void(std::string_view body, Answer answer)>;
    Change drain;
    Change undrain;
    Change scale;
    Change token;
  };

  ControlServer(boost::asio::io_context& io, Callbacks callbacks);
  ~ControlServer();  // removes the socket
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Begins to listen. Sockets of jobs of this user that were killed are removed before. From then
  // on the socket is made again where one may lie by then, if its file is gone: the end of a login
  // removes /run/user/UID, and the job goes on.
  Status start(const std::string& job_id);

 private:
  Status listen();
  void look_after_file();
  bool has_file() const;
  void answer(const HttpRequest& request, const HttpListener::Answer& answer);
  const Callbacks::Change* change_at(std::string_view target) const;

  boost::asio::io_context& io_;
  Callbacks callbacks_;
  std::string job_id_;
  std::unique_ptr<HttpListener> listener_;
  std::string path_;  // empty: there is no socket
  std::pair<dev_t, ino_t> file_{};
  boost::asio::steady_timer next_look_;
};

}  // namespace hvd::driver
