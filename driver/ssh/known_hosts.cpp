#include "driver/ssh/known_hosts.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/security/trusted_file.h"
#include "base/security/written_file.h"
#include "base/text.h"

namespace hvd::driver::ssh {
namespace {

constexpr int kMostLines = 1'000'000;
constexpr std::string_view kWhat = "known hosts";
// A pipe may have no writer, and a device no end.
constexpr FileKind kKind = FileKind::regular_or_null;

struct Entry {
  ssh_knownhosts_entry* entry = nullptr;
  Entry() = default;
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  ~Entry() { ssh_knownhosts_entry_free(entry); }
};

// Another writer may have left a line without its end, to which the new line would be appended.
bool ends_in_mid_line(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

// Excludes other jobs. Without the lock two of them might write a key twice, and nothing worse,
// since each line is one write, as with ssh itself, which does not lock. So a process that keeps
// the file locked is waited for only briefly.
void lock_if_possible(int fd) {
  constexpr std::chrono::milliseconds kLongest{1'000};
  constexpr std::chrono::milliseconds kPause{10};
  static bool hopeless = false;  // under append_known_host()'s mutex
  const TimePoint until = Clock::now() + kLongest;
  while (!hopeless && ::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    hopeless = Clock::now() >= until;
    std::this_thread::sleep_for(kPause);
  }
}

Result<UniqueFd> open_known_hosts(const std::string& file) {
  return open_trusted_file(file, kWhat, FileTrust::known_hosts, kKind);
}

// Another name of an open file.
std::string path_of(int fd) { return cat("/proc/self/fd/", fd); }

// The file that look_up() reads, or a new one where there is none: never one that the symbolic link
// of another user leads to.
Result<UniqueFd> open_to_append(const std::string& file) {
  constexpr int kHow = O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY;
  if (const auto there = open_known_hosts(file); there.ok()) {
    UniqueFd fd(::open(path_of(there->get()).c_str(), kHow));
    if (!fd) return Status::from_errno(cat("open ", file), errno);
    return fd;
  }
  return open_file_to_write(file, {.what = {}, .flags = kHow | O_CREAT | O_EXCL});
}

std::string_view type_of(ssh_key key) {
  const char* const curve = ssh_pki_key_ecdsa_name(key);
  if (curve != nullptr && std::string_view(curve).starts_with("ecdsa-")) return curve;
  return ssh_key_type_to_char(ssh_key_type(key));
}

// The lines for `name` that begin with `marker`; empty: those without one.
std::vector<KnownKey> read_entries(const std::vector<std::string>& files, const std::string& name,
                                   std::string_view marker, ssh_key key) {
  std::vector<KnownKey> found;
  for (const std::string& file : files) {
    // check_known_hosts() has reported files that cannot be trusted.
    const auto fd = open_known_hosts(file);
    if (!fd.ok()) continue;
    std::ifstream in(path_of(fd->get()));
    std::string line;
    for (int number = 1; number < kMostLines && std::getline(in, line); ++number) {
      for (char& c : line) c = c == '\t' ? ' ' : c;
      std::string_view text = trim(line);
      if (text.empty() || text.front() == '#') continue;
      const std::string_view first = text.substr(0, text.find(' '));
      if (first.starts_with('@') ? first != marker : !marker.empty()) continue;
      text = trim(text.substr(marker.size()));

      Entry entry;
      const std::string plain(text);
      if (ssh_known_hosts_parse_line(name.c_str(), plain.c_str(), &entry.entry) != SSH_OK) continue;
      ssh_key known = entry.entry->publickey;
      found.push_back({.file = file,
                       .line = number,
                       .type = std::string(type_of(known)),
                       .fingerprint = fingerprint_of(known),
                       .same = key != nullptr && ssh_key_cmp(known, key, SSH_KEY_CMP_PUBLIC) == 0});
    }
  }
  return found;
}

// As ssh-keygen -H writes it: nobody can tell the name from it without guessing it first.
std::string hashed_name(const std::string& name) {
  constexpr std::size_t kSalt = 20;
  const std::string salt = random_bytes(kSalt);
  const std::string hash = hmac_sha1(salt, name);
  // A cryptographic policy may leave out SHA-1.
  return hash.empty() ? name : cat("|1|", to_base64(salt), "|", to_base64(hash));
}

}  // namespace

Status check_known_hosts(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    Status opened = open_known_hosts(file).status();
    const bool is_refused =
        opened.code() == Code::failed_precondition || opened.code() == Code::invalid_argument;
    if (is_refused) return opened;
  }
  return {};
}

std::string known_hosts_name(std::string_view host, int port) {
  const std::string name = lower_case(host);
  return port == 0 || port == 22 ? name : cat("[", name, "]:", port);
}

std::string fingerprint_of(ssh_key key) {
  unsigned char* hash = nullptr;
  std::size_t size = 0;
  if (key == nullptr || ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &size) != 0) {
    return "unknown";
  }
  char* const text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, size);
  std::string result = text == nullptr ? "unknown" : text;
  ssh_string_free_char(text);
  ssh_clean_pubkey_hash(&hash);
  return result;
}

std::string KnownKey::place() const { return cat(file, ":", line); }

std::vector<KnownKey> look_up(const std::vector<std::string>& files, const std::string& name,
                              ssh_key key) {
  std::vector<KnownKey> found = read_entries(files, name, "", key);
  for (KnownKey& entry : read_entries(files, name, "@revoked", key)) {
    entry.revoked = true;
    found.push_back(std::move(entry));
  }
  return found;
}

std::optional<KnownKey> find_authority(const std::vector<std::string>& files,
                                       const std::string& name) {
  const auto found = read_entries(files, name, "@cert-authority", nullptr);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

Status append_known_host(const std::string& file, const std::string& name, ssh_key key,
                         bool hashed) {
  // Two of our own sessions to one host must not both find it unknown and write it twice.
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  for (const KnownKey& known : look_up({file}, name, key)) {
    if (known.same) return {};
  }

  const std::string base64 = public_base64(key);
  if (base64.empty()) return {Code::internal, "the host's key cannot be exported"};
  std::string line = cat(hashed ? hashed_name(name) : name, " ", type_of(key), " ", base64, "\n");

  if (const std::size_t slash = file.rfind('/'); slash != std::string::npos && slash > 0) {
    // It may exist already. If it cannot be created, open() fails and names the reason.
    ::mkdir(file.substr(0, slash).c_str(), 0700);
  }
  const auto opened = open_to_append(file);
  HVD_RETURN_IF_ERROR(opened.status());
  const UniqueFd& fd = *opened;
  HVD_RETURN_IF_ERROR(check_trusted_file(fd.get(), file, kWhat, FileTrust::known_hosts, kKind));

  lock_if_possible(fd.get());
  if (ends_in_mid_line(fd.get())) line.insert(0, "\n");
  if (::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return Status::from_errno(cat("write ", file), errno);
  }
  return {};
}

}  // namespace hvd::driver::ssh
