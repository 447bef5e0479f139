#include "driver/journal/kept_journals.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/file.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/security/private_directory.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".jsonl";
constexpr std::chrono::seconds kNew{10};

std::string directory_path() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* const set = std::getenv(kEventsDirectoryVariable);
  return set != nullptr && *set != '\0' ? std::string(set) : cat("/var/tmp/hvd-", ::geteuid());
}

// "a6cca56365eafafb.jsonl". Other files are the user's.
bool is_name_of_journal(const std::string& name) {
  return name.size() == kJobIdDigits + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == kJobIdDigits;
}

// The lock is shared, so that a hvdrun which begins to write there does not fail because of it.
bool is_being_written(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// A journal that cannot be looked at or removed stays.
void remove_oldest(const std::string& directory) {
  std::vector<std::pair<fs::file_time_type, fs::path>> journals;
  std::error_code error;
  auto entry = fs::directory_iterator(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const bool is_journal = is_name_of_journal(entry->path().filename()) &&
                            entry->symlink_status(unknown).type() == fs::file_type::regular;
    if (!is_journal) continue;
    const auto time = entry->last_write_time(unknown);
    if (!unknown) journals.emplace_back(time, entry->path());
  }
  std::sort(journals.begin(), journals.end());

  std::size_t left = journals.size();
  for (const auto& [time, file] : journals) {
    if (left < kKeptJournals) return;
    // One that is new may be about to be locked.
    if (time > fs::file_time_type::clock::now() - kNew || is_being_written(file)) continue;
    if (fs::remove(file, error)) --left;
  }
}

}  // namespace

Result<Journal> create_kept_journal(const std::string& job_id) {
  const std::string directory = directory_path();
  HVD_RETURN_IF_ERROR(make_private_directory(directory, kEventsDirectoryVariable));
  remove_oldest(directory);
  return Journal::create(cat(directory, "/", job_id, kEnding), kKeptJournalLimits);
}

}  // namespace hvd::driver
