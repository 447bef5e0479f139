// Goes through the journal of a job again (driver/journal/journal.h): the same events at the same
// times, through the job's state machine as it is now. Each decision must be the one that was taken
// then. Without a clock, a socket or a process: nothing of the job is started.
#pragma once

#include <cstddef>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd::driver {

struct Replayed {
  std::string job_id;
  std::string build;
  std::size_t events = 0;
  std::size_t actions = 0;
  bool is_finished = false;  // the journal goes to the end of the job
  bool is_cut_off = false;  // in the middle of its last line: hvdrun was killed, or still writes it

  // The first decision that is another one now; nothing was gone through after it.
  struct Difference {
    std::size_t line = 0;  // from 1 on
    std::string event;     // JSON, as are these:
    std::vector<std::string> then;
    std::vector<std::string> now;
  };
  std::optional<Difference> difference;
};

// data_loss: it is not a journal; the text names the line. failed_precondition: of another schema.
Result<Replayed> replay(std::istream& journal);

}  // namespace hvd::driver
