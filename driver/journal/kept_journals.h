// The journals that hvdrun keeps of its own accord, of the last jobs of this user on this machine:
// "JOB.jsonl" in HVD_EVENTS_DIR, else in /var/tmp/hvd-UID. The directory is closed to others. A
// journal there is bounded, and so is their number.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "driver/journal/journal.h"

namespace hvd::driver {

inline constexpr const char* kEventsDirectoryVariable = "HVD_EVENTS_DIR";
inline constexpr std::size_t kKeptJournals = 20;
// From this size on the lines are left out that only say that time passes. They are most of a long
// job: some 20 MB for each host and day.
inline constexpr JournalLimits kKeptJournalLimits{.whole = 16 << 20, .most = 64 << 20};

// Creates the journal of this job. The oldest ones are removed, unless a hvdrun writes them, so
// that there are at most kKeptJournals.
Result<Journal> create_kept_journal(const std::string& job_id);

}  // namespace hvd::driver
