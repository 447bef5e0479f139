// Speaks to the rendezvous as Horovod's own clients do: unsigned requests, a connection for each,
// and for each of the three scopes of a static job a PUT of its own value, GETs of all others until
// they are there, and a DELETE of its own. Ends with 0 if all that worked, with 4 if it was turned
// away with 401.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/socket.h"
#include "base/text.h"

namespace {

using namespace std::chrono_literals;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) {
    std::fprintf(stderr, "%s is not set\n", name);
    std::exit(2);
  }
  return value;
}

int number(const char* name) { return std::atoi(variable(name).c_str()); }

struct Answer {
  int status = 0;
  std::string body;
};

Answer request(const std::string& verb, const std::string& path, const std::string& body) {
  const auto deadline = hvd::Clock::now() + 30s;
  const hvd::SocketAddress where{
      variable("HOROVOD_GLOO_RENDEZVOUS_ADDR"),
      static_cast<std::uint16_t>(number("HOROVOD_GLOO_RENDEZVOUS_PORT"))};
  auto connection = hvd::connect_tcp(where, deadline);
  if (!connection.ok()) {
    std::fprintf(stderr, "%s\n", connection.status().to_string().c_str());
    std::exit(3);
  }
  const std::string head = hvd::cat(verb, " ", path, " HTTP/1.1\r\nHost: ", where.to_string(),
                                    "\r\nConnection: close\r\nContent-Length: ", body.size(),
                                    "\r\nContent-Type: text/plain\r\n\r\n");
  if (!hvd::send_all(connection->get(), head + body, deadline).ok()) std::exit(3);
  std::string answer;
  std::array<char, 4096> buffer{};
  while (const ssize_t got = ::read(connection->get(), buffer.data(), buffer.size())) {
    if (got < 0) std::exit(3);
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  const auto end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos) {
    std::fprintf(stderr, "no HTTP answer to %s %s: %s\n", verb.c_str(), path.c_str(),
                 answer.c_str());
    std::exit(3);
  }
  return {std::atoi(answer.c_str() + sizeof("HTTP/1.x")), answer.substr(end + 4)};
}

void expect_ok(const std::string& what, int status) {
  if (status == 200) return;
  std::fprintf(stderr, "%s: status %d\n", what.c_str(), status);
  std::exit(status == 401 ? 4 : 5);
}

// Binary, as Gloo's addresses are.
std::string value_of(const std::string& scope, int rank) {
  return std::string("\0\xff\r\n", 4) + scope + std::string(1, static_cast<char>(rank)) +
         std::string(200, '\x01');
}

void use_scope(const std::string& scope, int rank, int size) {
  const std::string own = hvd::cat("/", scope, "/", rank);
  expect_ok("PUT " + own, request("PUT", own, value_of(scope, rank)).status);
  const auto deadline = hvd::Clock::now() + 30s;
  for (int other = 0; other < size; ++other) {
    const std::string path = hvd::cat("/", scope, "/", other);
    Answer answer = request("GET", path, "");
    while (answer.status == 404 && hvd::Clock::now() < deadline) {
      std::this_thread::sleep_for(10ms);
      answer = request("GET", path, "");
    }
    expect_ok("GET " + path, answer.status);
    if (answer.body != value_of(scope, other)) {
      std::fprintf(stderr, "GET %s: %zu bytes that nobody put there\n", path.c_str(),
                   answer.body.size());
      std::exit(6);
    }
  }
  expect_ok("DELETE " + own, request("DELETE", own, "").status);
}

}  // namespace

int main() {
  use_scope("global", number("HOROVOD_RANK"), number("HOROVOD_SIZE"));
  use_scope("local_" + variable("HOROVOD_HOSTNAME"), number("HOROVOD_LOCAL_RANK"),
            number("HOROVOD_LOCAL_SIZE"));
  use_scope(hvd::cat("cross_", number("HOROVOD_LOCAL_RANK")), number("HOROVOD_CROSS_RANK"),
            number("HOROVOD_CROSS_SIZE"));
  std::printf("rank %d: all scopes\n", number("HOROVOD_RANK"));
  return 0;
}
