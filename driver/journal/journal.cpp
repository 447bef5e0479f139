#include "driver/journal/journal.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "driver/journal/journal_json.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBuffer = 65'536;

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

bool is_quiet(const Event& event, const std::vector<Action>& actions) {
  return actions.empty() && (std::holds_alternative<event::Tick>(event) ||
                             std::holds_alternative<event::Heard>(event) ||
                             std::holds_alternative<event::Unserved>(event));
}

std::string journal_head(const JobIdentity& job, const JobStart& start) {
  return line_of({{"schema", kJournalSchema},
                  {"job", job.id},
                  {"pid", job.pid},
                  {"build", build_id()},
                  {"command", job.command},
                  {"directory", job.directory},
                  {"elastic", job.elastic},
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

std::string journal_line_of_abridgement(std::chrono::system_clock::time_point wall_time) {
  return line_of({{"abridged", true}, {"at", utc_text(wall_time)}});
}

Result<Journal> Journal::create(const std::string& file, JournalLimits limits) {
  // Nothing that reads slowly, or not at all, may hold up hvdrun.
  UniqueFd fd(::open(file.c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY,
                     S_IRUSR | S_IWUSR));
  if (!fd) return Status::from_errno(cat("create ", file), errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status(Code::failed_precondition, cat(file, " is in use by another hvdrun"));
  }
  return Journal(file, limits, std::move(fd));
}

Status Journal::begin(const JobIdentity& job, const JobStart& start) {
  struct stat about {};
  const bool is_file = ::fstat(fd_.get(), &about) == 0 && S_ISREG(about.st_mode);
  if (is_file && ::ftruncate(fd_.get(), 0) != 0) {
    const int error = errno;
    fd_.reset();
    return Status::from_errno(cat("empty ", file_), error);
  }
  return write(journal_head(job, start), true);
}

Status Journal::step(const Event& event, const std::vector<Action>& actions,
                     const std::vector<JobHost>& hosts, TimePoint now,
                     std::chrono::system_clock::time_point wall_time) {
  if (!fd_) return {};
  const bool quiet = is_quiet(event, actions);
  if (quiet && size_ >= limits_.whole) {
    if (std::exchange(abridged_, true)) return {};
    return write(journal_line_of_abridgement(wall_time), true);
  }
  return write(journal_line(event, actions, hosts, now, wall_time), !quiet);
}

Status Journal::write(const std::string& line, bool at_once) {
  if (line.size() > limits_.most - std::min(size_, limits_.most)) {
    fd_.reset();
    return {Code::resource_exhausted,
            cat(file_, " has reached its limit of ", limits_.most, " bytes")};
  }
  size_ += line.size();
  unwritten_ += line;
  if (!at_once && unwritten_.size() < kBuffer) return {};

  std::string_view rest = unwritten_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      fd_.reset();
      return Status::from_errno(cat("write ", file_), error);
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  unwritten_.clear();
  return {};
}

}  // namespace hvd::driver
