// What the workers of a job do at a moment, for people.
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

// A running worker.
struct ActivityRow {
  int rank = -1;  // in the world in force; -1: it is not in that world
  std::string host;
  int slot = 0;
  int pid = 0;  // 0: its program does not run yet
  std::string in_flight;
  std::string last;
  std::string missing = {};  // what rank 0 says of the others, in lines
};

// By rank, then by host and slot; those without a rank last.
bool is_listed_before(const ActivityRow& a, const ActivityRow& b);

// The rows by rank, then by host and slot, below a line of headings; each line ends with a newline.
// Long texts are cut, and control characters are escaped, since workers wrote them.
std::string activity_table(std::vector<ActivityRow> rows);
// The lines below the table: the ranks that others wait for, in the words of rank 0. A line about a
// rank whose own row names that tensor is left out: its request was lost on the way to rank 0. Long
// lines are cut, and control characters are escaped, since a worker wrote them.
std::string missing_lines(const std::string& missing, const std::vector<ActivityRow>& rows);
// The text of the column "in flight" for this worker.
std::string in_flight_text(const agent_link::WorkerActivity& activity);

// The report on the activity of all workers that SIGUSR1 and `hvdrun dump` request: one question
// goes to all agents, their answers are gathered until all have come or a deadline passes, and one
// table is printed. A worker without an answer has a row with the reason, as far as that is known.
//
// For the driver's thread. All that the callbacks use outlives this.
class ActivityReport {
 public:
  // The time for the workers to answer, and for their agents.
  static constexpr std::chrono::milliseconds kWorkersTimeout{1000};
  static constexpr std::chrono::milliseconds kAgentsTimeout{2000};
  // Several workers may have got the signal, for which one table is enough.
  static constexpr std::chrono::seconds kMinInterval{1};

  struct Callbacks {
    // Sends the question to all agents that have workers.
    std::function<void(const agent_link::AskActivity& question)> ask;
    // The running workers, by incarnation.
    std::function<std::map<std::uint64_t, ActivityRow>()> workers;
    std::function<void(std::string_view text)> say;
  };

  ActivityReport(boost::asio::io_context& io, Callbacks callbacks)
      : timeout_(io), callbacks_(std::move(callbacks)) {}
  ActivityReport(const ActivityReport&) = delete;
  ActivityReport& operator=(const ActivityReport&) = delete;

  using Tell = std::function<void(std::string_view text)>;

  // hvdrun has got the signal. Has no effect while a report is being gathered for that.
  void request();
  // At a request. Told once, also if the report is being gathered already.
  void request_for(Tell tell);
  // An agent or a worker has got it.
  void request_from_worker();
  // An answer to an earlier question is ignored.
  void answered(agent_link::WorkerActivity activity);

 private:
  void gather();
  void report();
  void tell(std::string_view text);

  boost::asio::steady_timer timeout_;
  Callbacks callbacks_;
  std::uint32_t id_ = 0;
  bool running_ = false;
  bool is_to_say_ = false;    // it is for everybody, too
  std::vector<Tell> askers_;  // who is told
  TimePoint reported_at_{};
  std::map<std::uint64_t, agent_link::WorkerActivity> answers_;  // by incarnation
  std::size_t expected_ = 0;
};

// The last activities of the workers of a job, as they reported them when their world failed or
// when they were told to stop: for the report on a job that ends abnormally. A value, for one
// thread.
class LastActivities {
 public:
  // Only the first words of a worker since clear() count: what it says later follows from the
  // failure.
  void add(std::uint64_t incarnation, ActivityRow worker);
  // A new world is in force.
  void clear() { rows_.clear(); }

  // Whole lines: a table of the workers by rank, then the ranks that had not asked for what others
  // waited for. Empty if no worker has said anything.
  std::string text() const;

 private:
  // More workers than this are counted, not listed.
  static constexpr std::size_t kListed = 32;

  std::map<std::uint64_t, ActivityRow> rows_;  // by incarnation
};

}  // namespace hvd::driver
