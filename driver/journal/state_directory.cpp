#include "driver/journal/state_directory.h"

#include <algorithm>
#include <cerrno>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/security/private_directory.h"
#include "base/security/trusted_file.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/job/job_options.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

constexpr int kSchema = 1;
constexpr std::size_t kMaxJobFile = 4096;
// For as many join tokens as a job may have, with the longest names of hosts.
constexpr std::size_t kMaxTokensFile = std::size_t{8} << 20;

// The first `most` bytes.
Result<std::string> read_from(int fd, std::size_t most, const std::string& file) {
  std::string text(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t got = ::read(fd, text.data() + size, most - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(cat("read ", file), errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

Result<KeptJob> job_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto has = [&](const char* field, auto is) {
    const auto found = json.find(field);
    return found != json.end() && (*found.*is)();
  };
  if (!json.is_object() || !has("schema", &Json::is_number_unsigned) ||
      !has("job", &Json::is_string) || !has("key", &Json::is_string) ||
      !has("epoch", &Json::is_number_unsigned) || !has("build", &Json::is_string) ||
      !has("machine", &Json::is_string)) {
    return Status(Code::data_loss, "it is not the file of a job that was left");
  }
  if (json["schema"] != kSchema) {
    return Status(Code::failed_precondition, cat("it is of schema ", json["schema"].dump(),
                                                 "; this hvdrun reads schema ", kSchema));
  }
  if (const auto build = json["build"].get<std::string>(); build != build_id()) {
    return Status(Code::failed_precondition,
                  cat("its job runs with hvd ", quoted(build), ", and this is hvd ", build_id(),
                      ": only the same build can go on with it"));
  }
  auto key = Token::from_hex(json["key"].get<std::string>());
  if (!key.ok()) return key.status();
  std::string id = json["job"].get<std::string>();
  if (id.size() != kJobIdDigits || id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Status(Code::data_loss, cat(quoted(id), " is no number of a job"));
  }
  return KeptJob{std::move(id), std::move(*key), json["epoch"].get<std::uint64_t>(),
                 json["machine"].get<std::string>()};
}

}  // namespace

bool StateDirectory::has_job(const std::string& path) {
  return ::access((path + "/job.json").c_str(), F_OK) == 0;
}

Result<StateDirectory> StateDirectory::open(const std::string& path, bool waits) {
  HVD_RETURN_IF_ERROR(make_private_directory(path, "--state"));
  const std::string file = path + "/lock";
  auto lock = open_file_to_write(file, {.what = "lock of the job's state"});
  HVD_RETURN_IF_ERROR(lock.status());
  if (::flock(lock->get(), LOCK_EX | (waits ? 0 : LOCK_NB)) != 0) {
    if (errno == EWOULDBLOCK) {
      return Status(Code::unavailable,
                    cat(path,
                        " is in use: another hvdrun drives the job that is kept there "
                        "(--standby waits until that one has ended)"));
    }
    return Status::from_errno(cat("lock ", file), errno);
  }
  return StateDirectory(path, std::move(*lock));
}

Result<std::optional<KeptJob>> StateDirectory::left() const {
  const auto fd = open_trusted_file(job_file(), "file of the job's state", FileTrust::secret);
  if (fd.status().code() == Code::not_found) return std::optional<KeptJob>();
  HVD_RETURN_IF_ERROR(fd.status());
  auto text = read_from(fd->get(), kMaxJobFile, job_file());
  HVD_RETURN_IF_ERROR(text.status());
  auto job = job_from(*text);
  wipe(text->data(), text->size());
  if (!job.ok()) {
    return job.status().with_context(cat(job_file(), " (without that file a new job begins)"));
  }
  ++job->epoch;
  return std::optional(std::move(*job));
}

Status StateDirectory::keep(const KeptJob& job) {
  if (job.epoch == 1) {  // of an earlier job
    ::unlink(commit_file().c_str());
    ::unlink(tokens_file().c_str());
  }
  const Json json{{"schema", kSchema},   {"job", job.id},
                  {"build", build_id()}, {"key", to_hex(job.key.bytes())},
                  {"epoch", job.epoch},  {"machine", job.machine}};
  HVD_RETURN_IF_ERROR(write_whole_file(job_file(), json.dump() + "\n", WhenThere::replace,
                                       {.what = "file of the job's state", .is_synced = true}));
  epoch_ = job.epoch;
  return {};
}

// A file that is gone is no sign of another driver.
bool StateDirectory::is_ours() const {
  const auto job = left();
  return !job.ok() || !*job || (*job)->epoch == epoch_ + 1;
}

// A failure leaves the older one, which tells as well that there were commits.
void StateDirectory::keep_commit(const std::string& mark) const {
  static_cast<void>(write_whole_file(commit_file(), mark + "\n", WhenThere::replace,
                                     {.what = "commit of the job's state"}));
}

std::string StateDirectory::commit() const {
  const auto fd = open_trusted_file(commit_file(), "commit of the job's state", FileTrust::secret);
  const auto text = fd.ok() ? read_from(fd->get(), kMaxJobFile, commit_file()) : fd.status();
  return text.ok() ? std::string(trim(*text)) : "";
}

Status StateDirectory::keep_join_tokens(const std::string& text) const {
  return write_whole_file(tokens_file(), text + "\n", WhenThere::replace,
                          {.what = "file of the job's join tokens", .is_synced = true});
}

Result<std::string> StateDirectory::join_tokens() const {
  const auto fd =
      open_trusted_file(tokens_file(), "file of the job's join tokens", FileTrust::secret);
  if (fd.status().code() == Code::not_found) return std::string();
  HVD_RETURN_IF_ERROR(fd.status());
  return read_from(fd->get(), kMaxTokensFile, tokens_file());
}

void StateDirectory::forget() const {
  ::unlink(job_file().c_str());
  ::unlink(commit_file().c_str());
  ::unlink(tokens_file().c_str());
}

}  // namespace hvd::driver
