// Finds the hosts to blame when hosts of a job lose each other. Each report, that one host does not
// reach another, is checked with two probes: the agent of the first host tries again, and the agent
// of the second shows by its answer that it lives. A host that is dead is found by its silence, and
// the hosts that miss it are sound.
//
// A failure is reported by all hosts, one after the other, and a single report does not tell which
// of its two hosts has lost the others, too. So the first report begins a round, and the choice
// ends it: when the time for reports is over and no answer is missing.
//
// For the thread of `io`, which outlives this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "driver/agents/address_search.h"
#include "driver/core/timers.h"
#include "driver/job/addresses.h"

namespace hvd::driver {

class ReachChecks {
 public:
  // From one host to another.
  struct Way {
    HostIndex from = 0;
    HostIndex to = 0;
    friend bool operator<(const Way& a, const Way& b) {
      return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    }
    bool touches(HostIndex host) const { return from == host || to == host; }
  };
  struct Limits {
    Duration reports = kProbeTimeout;   // from the first report of a round on
    Duration answers = kAnswerTimeout;  // from the last one on; then a silent host counts as dead
  };
  // The numbers of the probes that were sent for one report.
  struct Probes {
    std::uint32_t attempt = 0;  // way.from tries to reach way.to
    std::uint32_t ping = 0;     // for way.to, which only has to answer
  };
  // `host` is to be given up; this way of it is broken. May call any function of this.
  using OnLost =
      std::function<void(HostIndex host, const Way& way, const std::string& error_of_way)>;

  ReachChecks(boost::asio::io_context& io, Limits limits, OnLost on_lost);
  ReachChecks(const ReachChecks&) = delete;
  ReachChecks& operator=(const ReachChecks&) = delete;

  // In this round; workers of one host lose the same connection together.
  bool is_under_way(const Way& way) const { return ways_.contains(way); }
  void begin(const Way& way, const Probes& probes);
  // `error` of an attempt; empty: the host was reached, or the probe was a ping. Answers to probes
  // of an earlier round are ignored.
  void on_answer(std::uint32_t probe, const std::string& error);
  // The host is gone.
  void forget(HostIndex host);

 private:
  struct Pending {
    Way way;
    HostIndex agent = 0;  // that is to answer
  };

  void remove(HostIndex host);
  void remove_silent_hosts();
  void choose_if_complete();

  const Limits limits_;
  const OnLost on_lost_;
  bool takes_reports_ = false;                // the time for them is not over
  std::map<Way, std::string> ways_;           // of this round, with the errors of broken ones
  std::map<std::uint32_t, Pending> pending_;  // probes of this round
  OwnTimer reports_timer_;
  OwnTimer answers_timer_;
};

}  // namespace hvd::driver
