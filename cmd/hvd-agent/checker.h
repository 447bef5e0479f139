// Answers agent_link::Check: could a worker be started here? Each check runs in a process of its
// own, which takes the steps of a launch (program.h) up to the last, so that the agent neither
// changes its directory nor waits for a slow file system. Answers come in the order of the
// questions. Owned by the supervisor.
#pragma once

#include <deque>
#include <functional>
#include <string>

#include "base/descriptors.h"
#include "base/protocol/agent_link.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

class Checker {
 public:
  using Answer = std::function<void(const agent_link::Checked& checked)>;

  Checker(EventLoop& loop, Answer answer) : loop_(loop), answer_(std::move(answer)) {}
  void check(agent_link::Check check);

 private:
  void begin_next();
  Status begin(const agent_link::Check& check);
  void on_readable();
  void finish(const agent_link::Checked& checked);

  EventLoop& loop_;
  Answer answer_;
  std::deque<agent_link::Check> waiting_;  // the first one is under way while pipe_ is open
  UniqueFd pipe_;
  Watch watch_;
  std::string received_;
};

}  // namespace hvd::agent
