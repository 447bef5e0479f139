#include "driver/journal/journal.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/private_directory.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/journal/journal_json.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBuffer = 65'536;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Of a file: up to its last line feed.
Result<std::uint64_t> size_of_whole_lines(const std::string& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  off_t end = fd ? ::lseek(fd.get(), 0, SEEK_END) : -1;
  std::string block;
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(kBuffer));
    block.resize(static_cast<std::size_t>(end - begin));
    const ssize_t got = ::pread(fd.get(), block.data(), block.size(), begin);
    if (got != static_cast<ssize_t>(block.size())) break;
    if (const auto last = block.rfind('\n'); last != std::string::npos) {
      return static_cast<std::uint64_t>(begin) + last + 1;
    }
    end = begin;
  }
  if (end == 0) return std::uint64_t{0};
  return Status::from_errno(cat("read ", file), errno);
}

}  // namespace

bool is_quiet(const Event& event, const std::vector<Action>& actions) {
  return actions.empty() && (std::holds_alternative<event::Tick>(event) ||
                             std::holds_alternative<event::Heard>(event) ||
                             std::holds_alternative<event::Unserved>(event) ||
                             std::holds_alternative<event::Quiet>(event));
}

std::string journal_head(const JobIdentity& job, const JobStart& start) {
  return line_of({{"schema", kJournalSchema},
                  {"job", job.id},
                  {"pid", job.pid},
                  {"build", build_id()},
                  {"command", job.command},
                  {"directory", job.directory},
                  {"elastic", job.elastic},
                  {"data_security", job.data_security},
                  {"at", utc_text(job.started)},
                  {"start", json_of(start)}});
}

std::string journal_line(const Event& event, const std::vector<Action>& actions,
                         const std::vector<JobHost>& hosts, TimePoint now,
                         std::chrono::system_clock::time_point wall_time) {
  Json json = json_of(event, hosts);
  json["clock"] = now.time_since_epoch().count();
  if (!is_quiet(event, actions)) {
    json["at"] = utc_text(wall_time);
    Json& decided = json["actions"] = Json::array();
    for (const auto& action : actions) decided.push_back(json_of(action, hosts));
  }
  return line_of(json);
}

void JournalLines::add_to_stretch(const Event& event, TimePoint now) {
  quiet_until_ = now;
  if (const auto* const heard = std::get_if<event::Heard>(&event)) heard_[heard->host] = now;
  if (const auto* const behind = std::get_if<event::Unserved>(&event)) {
    unserved_[behind->host] = now;
  }
}

std::string JournalLines::rest() {
  const auto end = std::exchange(quiet_until_, std::nullopt);
  if (!end) return {};
  event::Quiet quiet;
  for (const auto& [host, at] : std::exchange(heard_, {})) quiet.heard.push_back({host, *end - at});
  for (const auto& [host, at] : std::exchange(unserved_, {})) {
    quiet.unserved.push_back({host, *end - at});
  }
  return journal_line(quiet, {}, {}, *end, {});
}

std::string JournalLines::step(const Event& event, const std::vector<Action>& actions,
                               const Job& job, TimePoint now,
                               std::chrono::system_clock::time_point wall_time) {
  if (!job.was_routine()) {
    written_ = now;
    return rest() + journal_line(event, actions, job.hosts(), now, wall_time);
  }
  add_to_stretch(event, now);
  if (now - written_ < kMark) return {};
  written_ = now;
  return journal_line(event::Quiet{}, {}, {}, now, {});
}

// What the thread writes to.
struct Journal::File {
  File(std::string path, UniqueFd descriptor) : name(std::move(path)), fd(std::move(descriptor)) {}

  // Nothing more is written after an error.
  void fail(Status why) {
    fd.reset();
    const std::lock_guard lock(mutex);
    failed = std::move(why);
  }

  void empty() {
    struct stat about {};
    const bool is_file = ::fstat(fd.get(), &about) == 0 && S_ISREG(about.st_mode);
    if (is_file && ::ftruncate(fd.get(), 0) != 0) {
      fail(Status::from_errno(cat("empty ", name), errno));
    }
  }

  void sync() {
    if (fd && ::fdatasync(fd.get()) != 0) fail(Status::from_errno(cat("sync ", name), errno));
  }

  void write(std::string_view text, std::uint64_t count) {
    while (fd && !text.empty()) {
      const ssize_t put = ::write(fd.get(), text.data(), text.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return fail(Status::from_errno(cat("write ", name), errno));
      text.remove_prefix(static_cast<std::size_t>(put));
    }
    const std::lock_guard lock(mutex);
    if (fd) lines += count;
  }

  const std::string name;
  UniqueFd fd;  // of the thread

  std::mutex mutex;
  Status failed;  // until it was told
  std::uint64_t lines = 0;
};

Journal::Journal(std::string file, std::uint64_t most, UniqueFd fd)
    : file_(std::move(file)),
      most_(most),
      to_(std::make_shared<File>(file_, std::move(fd))),
      thread_(std::make_unique<Background>(kPatience)) {}

Result<Journal> Journal::create(const std::string& file, std::uint64_t most) {
  // Nothing that reads slowly, or not at all, may hold up hvdrun.
  constexpr int kHow = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK;
  auto fd = open_file_to_write(file, {.what = "events file", .flags = kHow});
  HVD_RETURN_IF_ERROR(fd.status());
  if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(Code::failed_precondition, cat(file, " is in use by another hvdrun"));
  }
  return Journal(file, most, std::move(*fd));
}

Result<Journal> Journal::resume(const std::string& file) {
  auto journal = create(file);
  HVD_RETURN_IF_ERROR(journal.status());
  const auto whole = size_of_whole_lines(file);
  HVD_RETURN_IF_ERROR(whole.status());
  if (::ftruncate(journal->to_->fd.get(), static_cast<off_t>(*whole)) != 0) {
    return Status::from_errno(cat("cut ", file), errno);
  }
  journal->size_ = *whole;
  return journal;
}

Status Journal::begin(const JobIdentity& job, const JobStart& start) {
  return begin_with(journal_head(job, start));
}

Status Journal::begin_with(const std::string& head) {
  const Status begun = thread_->add(0, [to = to_] { to->empty(); });
  if (!begun.ok()) return end(begun.with_context(cat("write ", file_)));
  return write(head, true);
}

Status Journal::step(const Event& event, const std::vector<Action>& actions, const Job& job,
                     TimePoint now, std::chrono::system_clock::time_point wall_time) {
  return write(steps_.step(event, actions, job, now, wall_time), true);
}

Status Journal::write(const std::string& lines, bool at_once) {
  if (lines.empty()) return {};
  const auto count = static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
  lines_ += count;
  if (!is_open_) return {};
  if (lines.size() > most_ - std::min(size_, most_)) {
    return end(
        {Code::resource_exhausted, cat(file_, " has reached its limit of ", most_, " bytes")});
  }
  const std::size_t waiting = thread_->waiting() + unwritten_.size();
  if (waiting + lines.size() > kMaxWaiting) {
    return end({Code::resource_exhausted,
                cat("write ", file_, ": it takes nothing, and ", waiting, " bytes wait for it")});
  }
  size_ += lines.size();
  unwritten_ += lines;
  unwritten_lines_ += count;
  if (at_once || unwritten_.size() >= kBuffer) hand_over();
  return look();
}

void Journal::hand_over() {
  if (unwritten_.empty()) return;
  const std::size_t size = unwritten_.size();
  // The thread runs since begin().
  (void)thread_->add(size,
                     [to = to_, text = std::exchange(unwritten_, {}),
                      lines = std::exchange(unwritten_lines_, 0)] { to->write(text, lines); });
}

Status Journal::look() {
  Status failed;
  {
    const std::lock_guard lock(to_->mutex);
    failed = std::exchange(to_->failed, {});
  }
  if (!failed.ok()) return is_open_ ? end(std::move(failed)) : Status();
  if (has_told_hang_ || !is_open_ || !thread_->hangs(Clock::now())) return {};
  has_told_hang_ = true;
  return {Code::deadline_exceeded,
          cat("write ", file_, ": it has taken nothing for ", kPatience.count(), " s")};
}

Status Journal::end(Status why) {
  is_open_ = false;
  return why;
}

Status Journal::flush() {
  HVD_RETURN_IF_ERROR(write_rest());
  if (is_open_) hand_over();
  (void)thread_->wait();
  return look();
}

Status Journal::sync() {
  HVD_RETURN_IF_ERROR(write_rest());
  if (!is_open_) return {};
  hand_over();
  const Status added = thread_->add(0, [to = to_] { to->sync(); });
  if (!added.ok()) return end(added.with_context(cat("write ", file_)));
  const bool done = thread_->wait();
  HVD_RETURN_IF_ERROR(look());
  return done ? Status() : Status(Code::deadline_exceeded, cat("sync ", file_, ": it hangs"));
}

std::uint64_t Journal::missing() const {
  const std::lock_guard lock(to_->mutex);
  return lines_ - to_->lines;
}

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
  return Journal::create(cat(directory, "/", job_id, kEnding), kMostOfKeptJournal);
}

}  // namespace hvd::driver
