// Many connections that say nothing and come again when they are closed, as an attacker makes them.
// On loopback only, and bounded: so many at a time, so many in all.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

#include "base/socket.h"

namespace hvd::test {

class SilentCrowd {
 public:
  // `count` connections at a time to `where`; `from` is a loopback address of this machine.
  SilentCrowd(SocketAddress where, std::size_t count, std::string from = "127.0.0.1");
  ~SilentCrowd();  // all go
  SilentCrowd(const SilentCrowd&) = delete;
  SilentCrowd& operator=(const SilentCrowd&) = delete;

  // How many connections were made so far.
  std::size_t made() const { return made_; }
  // Blocks until so many were; false if that takes longer than it may.
  bool wait_for(std::size_t made) const;

 private:
  void loop();

  const SocketAddress where_;
  const std::size_t count_;
  const std::string from_;
  std::atomic<std::size_t> made_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace hvd::test
