// What the workers do, for a person who asks (SIGUSR1): all agents are asked at once, their answers
// gathered until all are there or a deadline, and told as one table. A worker that does not answer
// has a row that says why, as far as that is known.
//
// For the driver's thread. What the callbacks use outlives this.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/protocol/agent_link.h"

namespace hvd::driver {

// One worker that lives.
struct ActivityRow {
  int rank = -1;  // in the world in force; -1: it is in none
  std::string host;
  int slot = 0;
  int pid = 0;  // 0: its program does not run yet
  std::string in_flight;
  std::string last;
};

// The rows by rank, then by host and slot, below a line of headings; each line ends with a newline.
// Control characters are shown as '?': what stands there comes from the workers.
std::string activity_table(std::vector<ActivityRow> rows);
// What stands in the row of this worker.
std::string in_flight_text(const agent_link::WorkerActivity& activity);

class ActivityReport {
 public:
  // For the workers to answer, and then for the agents.
  static constexpr std::chrono::milliseconds kWorkersPatience{1000};
  static constexpr std::chrono::milliseconds kAgentsPatience{2000};
  // Several workers may have got the signal; one table is enough.
  static constexpr std::chrono::seconds kBetween{1};

  struct Callbacks {
    // Sends the question to all agents that have workers.
    std::function<void(const agent_link::AskActivity& question)> ask;
    // The workers that live, by incarnation.
    std::function<std::map<std::uint64_t, ActivityRow>()> workers;
    std::function<void(std::string_view text)> say;
  };

  ActivityReport(boost::asio::io_context& io, Callbacks callbacks)
      : patience_(io), callbacks_(std::move(callbacks)) {}
  ActivityReport(const ActivityReport&) = delete;
  ActivityReport& operator=(const ActivityReport&) = delete;

  // hvdrun itself was asked: a table follows, unless one is under way.
  void request();
  // An agent or a worker was.
  void request_from_worker();
  // Of another question, or a worker that was not asked: nothing.
  void answered(agent_link::WorkerActivity activity);

 private:
  void tell();

  boost::asio::steady_timer patience_;
  Callbacks callbacks_;
  std::uint32_t id_ = 0;
  bool under_way_ = false;
  TimePoint told_{};
  std::map<std::uint64_t, agent_link::WorkerActivity> answers_;  // by incarnation
  std::size_t expected_ = 0;
};

}  // namespace hvd::driver
