#include "driver/status/job_sockets.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/security/private_directory.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogins = "/run/user";
constexpr const char* kTemporary = "/tmp";
constexpr std::string_view kTemporaryName = "hvd-";
constexpr std::string_view kEnding = ".sock";

// The owner of a file of this kind, such as S_IFDIR; nullopt: something else is there, or a link.
std::optional<uid_t> owner_of(const std::string& path, mode_t kind) {
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0 || (about.st_mode & S_IFMT) != kind) return std::nullopt;
  return about.st_uid;
}

// HVD_RUNTIME_DIR, or empty.
std::string chosen_directory() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  const char* const set = std::getenv("HVD_RUNTIME_DIR");
  return set != nullptr ? set : std::string();
}

std::string temporary_directory() { return cat(kTemporary, "/", kTemporaryName, ::geteuid()); }

std::string usual_directory() {
  if (std::string chosen = chosen_directory(); !chosen.empty()) return chosen;
  const std::string login = cat(kLogins, "/", ::geteuid());
  return owner_of(login, S_IFDIR) == ::geteuid() ? login + "/hvd" : temporary_directory();
}

std::set<fs::path> directories() {
  std::set<fs::path> found{usual_directory()};
  if (!chosen_directory().empty()) return found;
  // A job that has outlived a login.
  found.insert(temporary_directory());
  // Root sees the jobs of all users.
  if (::geteuid() != 0) return found;

  std::error_code ignored;
  for (const auto& login : fs::directory_iterator(kLogins, ignored)) {
    const fs::path path = login.path() / "hvd";
    const auto user = parse_number<uid_t>(login.path().filename().string());
    if (user && is_private_directory(path, *user)) found.insert(path);
  }
  for (const auto& entry : fs::directory_iterator(kTemporary, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kTemporaryName)) continue;
    const auto user = parse_number<uid_t>(name.substr(kTemporaryName.size()));
    if (user && is_private_directory(entry.path(), *user)) found.insert(entry.path());
  }
  return found;
}

}  // namespace

Result<std::string> job_socket_directory() {
  std::string path = usual_directory();
  HVD_RETURN_IF_ERROR(make_private_directory(path, "HVD_RUNTIME_DIR"));
  return path;
}

std::string job_socket_path(const std::string& directory, const std::string& job_id) {
  return cat(directory, "/", job_id, kEnding);
}

std::vector<JobSocket> job_sockets_in(const std::string& directory) {
  std::vector<JobSocket> found;
  const auto owner = owner_of(directory, S_IFDIR);
  if (!owner || (*owner != ::geteuid() && ::geteuid() != 0)) return found;

  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    // For root another user may have made the file: a terminal shows its name, and no socket has a
    // longer path.
    if (!name.ends_with(kEnding) || name != printable(name)) continue;
    if (entry.path().native().size() >= sizeof(sockaddr_un::sun_path)) continue;
    if (owner_of(entry.path(), S_IFSOCK) != owner) continue;
    found.push_back({name.substr(0, name.size() - kEnding.size()), entry.path(), *owner});
  }
  return found;
}

std::vector<JobSocket> find_job_sockets() {
  std::vector<JobSocket> found;
  for (const auto& directory : directories()) {
    for (auto& socket : job_sockets_in(directory)) found.push_back(std::move(socket));
  }
  std::sort(found.begin(), found.end(),
            [](const JobSocket& one, const JobSocket& other) { return one.job_id < other.job_id; });
  return found;
}

}  // namespace hvd::driver
