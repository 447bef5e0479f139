// Runs a discovery script: one run at a time, each with a limit of time and of output, and with
// nothing left when it has ended, whatever the script started. The meaning of the runs is
// discovery/watch.h's business.
//
// For the thread that runs `io`.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include "discovery/watch.h"

namespace hvd::discovery {

struct ScriptOptions {
  std::string command;  // a file, with or without its directory, or else a line for /bin/sh
  std::chrono::milliseconds timeout{10'000};
  std::size_t max_output = std::size_t{4} << 20;
  std::size_t max_errors = std::size_t{4}
                           << 10;  // of its standard error the last; more is no fault
  // Beyond the timeout, for killed processes to be gone.
  std::chrono::milliseconds kill_timeout{5'000};
};

class Script {
 public:
  Script(boost::asio::io_context& io, ScriptOptions options);
  // Kills a run that is under way, with all its processes; its `done` is never called.
  ~Script();
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  // Calls `done` once, later. Not while a run is under way.
  void run(std::function<void(ScriptEnd)> done);
  bool running() const;

 private:
  class Run;
  boost::asio::io_context& io_;
  const ScriptOptions options_;
  std::shared_ptr<Run> run_;  // the last one
};

}  // namespace hvd::discovery
