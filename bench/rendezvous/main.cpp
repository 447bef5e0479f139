// hvd_rendezvous_bench [CLIENTS...]: starts the server in a process of its own, loads it, prints
// what it measured and how much memory the server took. With none named: 1, 16 and 64 readers, then
// 5,000 waiters.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/text.h"
#include "bench/rendezvous/load.h"
#include "rendezvous/server.h"

namespace {

using hvd::bench::Measured;

constexpr std::chrono::milliseconds kTime{3'000};
constexpr int kWaiters = 5'000;

// The server as a child process, so that its memory is its own.
struct ServerProcess {
  pid_t pid = -1;
  hvd::SocketAddress address;
};

ServerProcess start_server(const hvd::Token& token) {
  int ends[2];
  if (::pipe(ends) != 0) std::exit(1);
  ServerProcess server;
  server.pid = ::fork();
  if (server.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    boost::asio::io_context io(1);
    hvd::rendezvous::Server service(io, token, {});
    const hvd::Status started = service.start();
    const std::uint16_t port = started.ok() ? service.address().port : 0;
    if (::write(ends[1], &port, sizeof(port)) != sizeof(port) || port == 0) ::_exit(1);
    io.run();
    ::_exit(0);
  }
  std::uint16_t port = 0;
  if (::read(ends[0], &port, sizeof(port)) != sizeof(port) || port == 0) {
    std::fprintf(stderr, "the server did not start\n");
    std::exit(1);
  }
  server.address = {"127.0.0.1", port};
  return server;
}

// A line of /proc/<pid>/status, in MiB.
double memory_of(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

bool print(const std::string& what, const hvd::Result<Measured>& measured) {
  if (!measured.ok()) {
    std::printf("%-34s FAILED: %s\n", what.c_str(), measured.status().to_string().c_str());
    return false;
  }
  const auto& times = measured->milliseconds;
  const auto at = [&](double part) {
    return times[static_cast<std::size_t>(part * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-34s %9.0f /s   p50 %7.3f ms   p99 %7.3f ms   max %8.3f ms\n", what.c_str(),
              static_cast<double>(times.size()) / measured->seconds, at(0.5), at(0.99),
              times.back());
  std::fflush(stdout);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);

  std::vector<int> crowds;
  for (int i = 1; i < argc; ++i) crowds.push_back(hvd::parse_number<int>(argv[i]).value_or(1));
  if (crowds.empty()) crowds = {1, 16, 64};

  const hvd::Token token = hvd::Token::random();
  const ServerProcess server = start_server(token);
  bool fine = true;
  for (const int clients : crowds) {
    const std::string n = std::to_string(clients);
    fine &= print("hvd get, " + n + " connections",
                  hvd::bench::read_by_connections(server.address, token, clients, kTime));
    fine &= print("hvd get, " + n + " blocking clients",
                  hvd::bench::read_by_clients(server.address, token, clients, kTime));
  }
  if (argc == 1) {
    const double before = memory_of(server.pid, "VmRSS:");
    fine &= print("hvd wake, " + std::to_string(kWaiters) + " waiters",
                  hvd::bench::wake_waiters(server.address, token, kWaiters));
    std::printf("server memory: %.1f MiB before, %.1f MiB at its peak with the waiters\n", before,
                memory_of(server.pid, "VmHWM:"));
  }
  ::kill(server.pid, SIGTERM);
  ::waitpid(server.pid, nullptr, 0);
  return fine ? 0 : 1;
}
