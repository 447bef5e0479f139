// A request to hvdrun's own sockets, and whether it may see the status page: what comes from a
// socket is a request in Beast's eyes, and in those of the page's guard.
#include "driver/status/http_listener.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/descriptors.h"
#include "driver/status/page_access.h"
#include "driver/status/page_files.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using driver::HttpListener;
using driver::HttpReply;
using driver::HttpRequest;

// One for all inputs: connections come and go, as in a job.
class Job {
 public:
  Job()
      : listener_(io_, [this](const HttpRequest& request, const HttpListener::Answer& answer) {
          judge(request, answer);
        }) {
    UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // The system gives it a name that no other socket has.
    const sockaddr_un any{AF_UNIX, {}};
    fuzz::must(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&any),
                      sizeof(any.sun_family)) == 0 &&
                   ::listen(listening.get(), 8) == 0,
               "a socket listens");
    length_ = sizeof(address_);
    ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address_), &length_);
    fuzz::must(listener_.start(std::move(listening)).ok(), "the listener starts");
  }

  // Sends this, and serves until the connection is closed.
  void serve(std::string_view request) {
    const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), length_) != 0) return;
    static_cast<void>(
        ::send(client.get(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    ::shutdown(client.get(), SHUT_WR);
    io_.restart();
    std::array<char, 4096> answer;
    for (;;) {
      const auto got = ::recv(client.get(), answer.data(), answer.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return;
      if (got < 0) io_.run_one_for(std::chrono::seconds(5));
    }
  }

 private:
  void judge(const HttpRequest& request, const HttpListener::Answer& answer) {
    const auto verdict = access_.judge(request, Clock::now());
    // Nobody has the key of this job, and the page's own files are those of every job.
    const std::string_view target = request.target;
    const bool is_file = driver::find_page_file(target.substr(0, target.find('?'))) != nullptr;
    fuzz::must(verdict.status != 303 && (verdict.status != 200 || is_file),
               "a stranger does not get in");
    fuzz::must_be_printable(verdict.text);
    answer({verdict.status, verdict.text});
  }

  boost::asio::io_context io_;
  driver::PageAccess access_{"job", {"127.0.0.1", 4000}};
  const std::string key_ = access_.make_key(Clock::now());
  HttpListener listener_;
  sockaddr_un address_{};
  socklen_t length_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Job job;
  job.serve(fuzz::Input(data, size).rest());
  return 0;
}
