// A terminal of its own, for tests of what people do at one.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <pty.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/socket.h"
#include "tests/support/process.h"

namespace hvd::test {

// A shell with job control on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::map<std::string, std::string>& environment) {
    int fd = -1;
    pid_ = ::forkpty(&fd, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      ::setenv("PS1", "", 1);
      ::execlp("bash", "bash", "--norc", "--noprofile", "-i", nullptr);
      ::_exit(127);
    }
    fd_.reset(fd);
  }
  ~Terminal() {
    if (pid_ > 0) ::kill(-pid_, SIGKILL);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) {
    ASSERT_EQ(::write(fd_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  bool wait_for(const std::string& text) {
    const TimePoint until = Clock::now() + kGenerous;
    while (screen_.find(text) == std::string::npos) {
      pollfd polled{fd_.get(), POLLIN, 0};
      if (::poll(&polled, 1, milliseconds_until(until, Clock::now())) <= 0) return false;
      std::array<char, 4096> buffer{};
      const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
      if (got <= 0) return false;
      screen_.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return true;
  }
  const std::string& screen() const { return screen_; }
  // Waits look only at output from now on.
  void forget() { screen_.clear(); }
  void resize(unsigned short rows, unsigned short columns) {
    const winsize size{rows, columns, 0, 0};
    ASSERT_EQ(::ioctl(fd_.get(), TIOCSWINSZ, &size), 0);
  }

 private:
  pid_t pid_ = -1;
  UniqueFd fd_;
  std::string screen_;
};

}  // namespace hvd::test
