// Access to the status page of a job (page_server.h). A person gets a link with a key, which
// works once and for an hour. The browser that shows it gets a token. Requests for anything but the
// page's own files, which are the same for all jobs, are judged by that. The page's script keeps
// the token and shows it: a browser would send a cookie to all ports of the machine, and another
// user's program may listen there.
//
// A browser also sends the requests of strangers' pages, so a request has to name this server as a
// browser does that was led to it by its address: the name of a stranger may resolve to the same
// address (DNS rebinding), and a page of another site may ask for anything.
//
// Pure: it is handed the time, and knows no socket. For one thread. Keys and tokens are secrets:
// they are in no log.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "driver/status/http_listener.h"

namespace hvd::driver {

class PageAccess {
 public:
  static constexpr std::chrono::hours kKeyTime{1};
  // With one more the oldest one is forgotten.
  static constexpr std::size_t kMaxKeys = 16;
  static constexpr std::size_t kMaxBrowsers = 64;

  // `bound`: the address at which requests arrive.
  PageAccess(std::string job_id, SocketAddress bound);

  // A fresh key, in hexadecimal digits: `/?key=` and the key open the page once.
  std::string make_key(TimePoint now);

  struct Verdict {
    // 200: it may be answered. 303: it has shown a key, and gets the token. Else it is refused.
    unsigned status = 200;
    std::string text = {};   // why it is refused, and what to do
    std::string token = {};  // in hexadecimal digits
  };
  // Uses up the key that the request shows, if it shows one.
  Verdict judge(const HttpRequest& request, TimePoint now);

 private:
  struct Key {
    Token secret;
    TimePoint until;
  };

  bool is_named_by(std::string_view host) const;
  bool use_up(std::string_view key, TimePoint now);
  bool shows_token(const HttpRequest& request) const;

  std::string job_id_;
  SocketAddress bound_;
  std::deque<Key> keys_;
  std::deque<Token> browsers_;
};

}  // namespace hvd::driver
