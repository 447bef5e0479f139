// The journal of a job (--events): a file with one JSON object in each line, for all that goes into
// the job's state machine and all that comes out of it, in order and with the time. The first line
// says what the job begins with. Since the machine is pure, the file holds all of the job:
// driver/journal/replay.h goes through it again. docs/events.md describes it.
//
// Steps that only note that time passes or that agents live are far more than all others. What
// counts of a stretch of them is in one line (event::Quiet), which is written when the stretch
// ends. Meanwhile a short one says once a minute that time passes, so that the file grows by some 4
// KB an hour while nothing happens, whatever the number of hosts.
//
// For one thread, which never waits for the file: another one writes it (base/background.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "driver/job/job.h"
#include "driver/job/job_options.h"

namespace hvd::driver {

inline constexpr int kJournalSchema = 3;
inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// Time has passed, or an agent lives, and nothing came of it.
bool is_quiet(const Event& event, const std::vector<Action>& actions);

// The lines, each with its line feed. Bytes that are not valid UTF-8 are replaced.
std::string journal_head(const JobIdentity& job, const JobStart& start);
// The actions with which Job::step() answered; `hosts` are Job::hosts() after that.
std::string journal_line(const Event& event, const std::vector<Action>& actions,
                         const std::vector<JobHost>& hosts, TimePoint now,
                         std::chrono::system_clock::time_point wall_time);

// The lines of a journal behind its first one.
class JournalLines {
 public:
  // A line says at least so often that time passes.
  static constexpr std::chrono::minutes kMark{1};

  // What `job`, whose last step this was, adds to the journal; empty: nothing yet.
  std::string step(const Event& event, const std::vector<Action>& actions, const Job& job,
                   TimePoint now, std::chrono::system_clock::time_point wall_time);
  // What the steps so far have yet to add.
  std::string rest();

 private:
  void add_to_stretch(const Event& event, TimePoint now);

  // The last word of each host in the stretch that goes on.
  std::map<HostIndex, TimePoint> heard_;
  std::map<HostIndex, TimePoint> unserved_;
  std::optional<TimePoint> quiet_until_;
  TimePoint written_{};  // the last line
};

class Journal {
 public:
  // The most bytes of lines that the file has not taken yet; beyond that the journal ends.
  static constexpr std::size_t kMaxWaiting = std::size_t{8} << 20;
  // A write that takes longer hangs.
  static constexpr std::chrono::seconds kPatience{5};

  // A new file can be read by its user alone. A file that exists is locked, and emptied when the
  // journal begins; failed_precondition: another journal is being written to it. Each error names
  // the file.
  // `most` bytes: before it is larger it ends.
  static Result<Journal> create(const std::string& file, std::uint64_t most = kNoLimit);
  // The same of a file that is to be gone on with behind its last whole line, in place of begin().
  // What stands behind that is cut off.
  static Result<Journal> resume(const std::string& file);

  const std::string& file() const { return file_; }
  // It has not ended early.
  bool is_open() const { return is_open_; }

  // After an error, which says what is wrong with the file, nothing more is written: a journal with
  // a gap would tell of another job. The error may come from an earlier call, and is returned once.
  // deadline_exceeded: the file hangs, and the journal goes on as soon as it does not; once, too.
  Status begin(const JobIdentity& job, const JobStart& start);
  Status step(const Event& event, const std::vector<Action>& actions, const Job& job, TimePoint now,
              std::chrono::system_clock::time_point wall_time);
  // The beginning and a line that another journal of this job has.
  Status begin_with(const std::string& head);
  Status copy(const std::string& line) { return write(line, false); }
  // Waits until the file has all lines, or hangs.
  Status flush();
  // The same, and until they are on the disk: then a crash of the machine does not take them.
  // deadline_exceeded: it hangs.
  Status sync();
  // Lines that the file has not got, so far.
  std::uint64_t missing() const;

 private:
  struct File;
  Journal(std::string file, std::uint64_t most, UniqueFd fd);
  Status write(const std::string& lines, bool at_once);
  Status write_rest() { return write(steps_.rest(), false); }
  void hand_over();
  // What the thread has to say of the file.
  Status look();
  Status end(Status why);

  std::string file_;
  std::uint64_t most_;
  std::uint64_t size_ = 0;  // of all lines
  JournalLines steps_;
  bool is_open_ = true;
  bool has_told_hang_ = false;
  std::string unwritten_;
  std::uint64_t lines_ = 0;            // of the job, whether written or not
  std::uint64_t unwritten_lines_ = 0;  // in unwritten_
  std::shared_ptr<File> to_;           // shared with the thread
  std::unique_ptr<Background> thread_;
};

// The journals that hvdrun keeps of its own accord, of the last jobs of this user on this machine:
// "JOB.jsonl" in HVD_EVENTS_DIR, else in /var/tmp/hvd-UID. The directory is closed to others. A
// journal there is bounded, and so is their number.
inline constexpr const char* kEventsDirectoryVariable = "HVD_EVENTS_DIR";
inline constexpr std::size_t kKeptJournals = 20;
inline constexpr std::uint64_t kMostOfKeptJournal = 64 << 20;

// Creates the journal of this job. The oldest ones are removed, unless a hvdrun writes them, so
// that there are at most kKeptJournals.
Result<Journal> create_kept_journal(const std::string& job_id);

}  // namespace hvd::driver
