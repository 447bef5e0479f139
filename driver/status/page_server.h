// Serves the status page of a job (--status-page, docs/page.md) over HTTP/1.1:
//
//   GET /            the page, with /page.css and its scripts (driver/status/page)
//
// and, to the browsers that have been let in (page_access.h):
//
//   GET /status      what the job is doing (job_status.h), as JSON
//   GET /events      what happens, as server-sent events: the lines of the job's journal
//
// The driver hands over events only once somebody has opened the page. A page that reads slowly
// misses events, and is told how many; it never holds up the job.
//
// Owned by the driver, on its thread. The io_context outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/port_range.h"
#include "base/socket.h"
#include "base/status.h"
#include "driver/status/event_buffer.h"
#include "driver/status/http_listener.h"
#include "driver/status/page_access.h"

namespace hvd::driver {

// Listens at `bind`, port 0 as for listen_tcp(). An empty host is a random address of 127.0.0.0/8:
// to a browser the page is then another site than whatever listened, or will, at an address that
// somebody else can know beforehand, and nothing that such a site has left there concerns the page
// (a service worker, its storage). 127.0.0.1 takes its place where the system has no other.
Result<UniqueFd> listen_for_page(const SocketAddress& bind, const ListenPorts& ports);

class PageServer {
 public:
  // `bound`: where it will listen. `status` says what the job is doing, as JSON.
  PageServer(boost::asio::io_context& io, const std::string& job_id, const SocketAddress& bound,
             std::function<std::string()> status, HttpLimits limits = {});

  // Begins to answer at this socket, which listens.
  Status start(UniqueFd listening) { return listener_.start(std::move(listening)); }

  // A link that opens the page once.
  std::string make_link();

  // Whether somebody has opened the page: from then on it wants all events.
  bool wants_events() const { return opened_; }
  // One line of JSON, with or without its line feed.
  void add_event(std::string line);
  // The job has ended. Open pages get the events that are left, as far as that takes no time.
  void end(int exit_code, std::string_view reason);

 private:
  class Events;

  void answer(const HttpRequest& request, const HttpListener::Answer& answer);
  HttpReply reply_to(const HttpRequest& request);
  const std::string& status();

  const std::string job_id_;
  const SocketAddress bound_;
  const std::function<std::string()> make_status_;
  PageAccess access_;
  bool opened_ = false;
  std::shared_ptr<EventBuffer> events_ = std::make_shared<EventBuffer>();
  std::shared_ptr<std::string> last_words_ = std::make_shared<std::string>();
  std::string status_;
  TimePoint status_holds_until_{};
  HttpListener listener_;
};

}  // namespace hvd::driver
