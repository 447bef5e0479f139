// Answers agent_link::Probe: which of the targets accept a TCP connection from here? All targets of
// a probe are tried at once, under one deadline and without blocking. Owned by the supervisor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

class Prober {
 public:
  static constexpr std::size_t kMostTargets = 4096;
  using Answer = std::function<void(const agent_link::Probed& probed)>;

  Prober(EventLoop& loop, Answer answer) : loop_(loop), answer_(std::move(answer)) {}

  // data_loss for more targets than any driver names.
  Status probe(agent_link::Probe probe, TimePoint now);
  TimePoint deadline() const;
  // Answers probes that are complete or past their deadline.
  void on_time(TimePoint now);

 private:
  struct Attempt {
    UniqueFd socket;  // open while it is under way
    Watch watch;
    bool connected = false;
    std::string received;
  };
  struct Run {
    agent_link::Probe probe;
    TimePoint deadline;
    std::vector<Attempt> attempts;  // one for each target, as are these
    std::vector<std::string> errors;
    std::size_t under_way = 0;
  };

  void begin(Run& run, std::size_t index);
  void on_events(Run& run, std::size_t index);
  void hear_greeting(Run& run, std::size_t index);
  static std::string error_of(const Run& run, std::size_t index, int error_number);
  static void end(Run& run, std::size_t index, std::string error);

  EventLoop& loop_;
  Answer answer_;
  std::vector<std::unique_ptr<Run>> runs_;
};

}  // namespace hvd::agent
