// Judges how the runs of a discovery script ended. Pure: it is told how each run ended and answers
// what there is to be done about it.
//
//   - The same answer again changes nothing. The order of the hosts belongs to the answer.
//   - A run that fails changes nothing: the last good answer stays in force, however long. One
//     warning says so when runs begin to fail or fail in another way, and one when they succeed
//     again.
//   - The very first run must succeed: a job that never knew a host has nothing to go on with.
//
// A value for one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "discovery/hosts.h"

namespace hvd::discovery {

// How a run of the script ended.
struct ScriptEnd {
  std::string error;   // "exited with code 3"; empty: it exited with 0
  std::string output;  // what it printed; of no use if there was an error
  // The last of what it printed on its standard error.
  std::string standard_error;
};

// The changes at the end of a run.
struct Update {
  std::optional<std::vector<Host>> hosts;  // there is a new answer
  std::string warning;                     // one line for a person, if any
  Status fatal;                            // not ok: the job cannot go on
};

class Watch {
 public:
  // `script` stands in messages.
  Watch(std::string script, int slots_per_host)
      : script_(std::move(script)), slots_per_host_(slots_per_host) {}

  Update take(const ScriptEnd& end);

 private:
  Update fail(const std::string& kind, const std::string& text);

  std::string script_;
  int slots_per_host_;
  std::optional<std::vector<Host>> answer_;  // the last good one
  std::string failure_;                      // its kind; empty: there is none
};

}  // namespace hvd::discovery
