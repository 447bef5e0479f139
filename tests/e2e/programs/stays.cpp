// A plain program, which knows nothing of hvd, and does not go by itself. Says "PID up RANK." when
// all that it was asked to make is there.
//
//   --child        forks a child that stays too
//   --daemon       and a daemon: forked twice, a session of its own, no terminal
//   --ignore-term  it and all its children ignore SIGTERM, SIGINT and SIGHUP
//   --until FILE   ends with 0 when FILE appears
//   --token FILE   writes the job's token, in hexadecimal, to FILE: this one test program may, to
//   know what must be
//                  found nowhere
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/protocol/worker_link.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"

namespace {

[[noreturn]] void stay() {
  while (true) ::pause();
}

void add_child() {
  if (::fork() == 0) stay();
}

void add_daemon() {
  const pid_t between = ::fork();
  if (between == 0) {
    ::setsid();
    if (::fork() == 0) {
      for (int fd = 0; fd < 64; ++fd) ::close(fd);
      stay();
    }
    ::_exit(0);
  }
  ::waitpid(between, nullptr, 0);
}

bool write_token(const std::string& path) {
  const char* const number = std::getenv(hvd::worker_link::kDescriptorVariable);
  if (number == nullptr) return false;
  hvd::FrameDecoder decoder;
  const auto frame =
      hvd::receive_frame(std::atoi(number), decoder, hvd::Clock::now() + std::chrono::seconds(30));
  if (!frame.ok()) return false;
  const auto welcome = hvd::worker_link::Welcome::decode(frame->payload);
  if (!welcome.ok()) return false;
  // Renamed into place, so that a waiting reader sees all of it.
  std::ofstream(path + ".part") << hvd::to_hex(welcome->credential.bytes());
  std::filesystem::rename(path + ".part", path);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string until;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--child") {
      add_child();
    } else if (argument == "--daemon") {
      add_daemon();
    } else if (argument == "--ignore-term") {
      for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::signal(number, SIG_IGN);
    } else if (argument == "--until") {
      until = argv[++i];
    } else if (argument == "--token") {
      if (!write_token(argv[++i])) return 9;
    }
  }
  const char* const rank = std::getenv("HVD_RANK");
  std::printf("%d up %s.\n", static_cast<int>(::getpid()), rank == nullptr ? "?" : rank);
  std::fflush(stdout);
  if (until.empty()) stay();
  while (!std::filesystem::exists(until)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}
