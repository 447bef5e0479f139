#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <poll.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/security/crypto.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/core/stderr_tail.h"
#include "driver/ssh/remote_script.h"
#include "driver/ssh/steps.h"

namespace hvd::driver::ssh {
namespace {

constexpr std::size_t kNonceBytes = 16;
// The login shell may print any amount of text before the first reply; the end of it is kept for
// error messages.
constexpr std::size_t kKeptNoise = std::size_t{8} << 10;
constexpr std::size_t kLongestAnswer = std::size_t{64} << 10;
// Enough in libssh's buffer to keep the connection busy, and little enough to stop soon.
constexpr std::uint32_t kLargestWrite = 128U << 10;
constexpr std::chrono::milliseconds kProgressInterval{1'000};  // while the agent is copied

// The last of these lines, joined to one line without control characters.
std::string last_lines(const std::vector<std::string>& lines) {
  constexpr std::size_t kShownLines = 4;
  constexpr std::size_t kShownBytes = 600;
  std::vector<std::string> kept;
  for (auto line = lines.rbegin(); line != lines.rend() && kept.size() < kShownLines; ++line) {
    std::string text(trim(*line));
    if (text.empty()) continue;
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    }
    kept.insert(kept.begin(), text.substr(0, kShownBytes));
  }
  return join(kept, "; ");
}

// One exec channel, on which the remote script runs.
class ScriptChannel {
 public:
  ScriptChannel(ssh_session session, ssh_channel channel, std::string nonce,
                const std::function<void()>& on_progress)
      : session_(session), channel_(channel), nonce_(std::move(nonce)), on_progress_(on_progress) {}

  struct Reply {
    std::string kind;  // "need", "ok", "no"
    std::string text;  // the rest of its line
  };

  // Writes the rest of `out` as far as the host takes it, and reads up to the next reply. Waits for
  // at most `quiet_for`, which begins anew with each progress with `out`.
  Result<Reply> next(std::string_view& out, const EventFlag& stop,
                     std::chrono::milliseconds quiet_for) {
    Deadline deadline{.stop = &stop, .at = Clock::now() + quiet_for};
    while (true) {
      const std::size_t unsent = out.size();
      HVD_RETURN_IF_ERROR(write(out));
      HVD_RETURN_IF_ERROR(read());
      if (auto reply = find_reply()) return *reply;
      if (ended()) return Status(Code::unavailable, why_it_ended());
      if (seen_.size() > kLongestAnswer) {
        return Status(Code::data_loss, cat("the host's answer has no end", output_text()));
      }

      if (out.size() < unsent) {
        const TimePoint now = Clock::now();
        deadline = {.stop = &stop, .at = now + quiet_for, .begin = now};
        if (now >= report_at_) {
          report_at_ = now + kProgressInterval;
          on_progress_();
        }
        continue;
      }

      pollfd socket{.fd = ssh_get_fd(session_), .events = POLLIN, .revents = 0};
      if ((ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0) socket.events |= POLLOUT;
      if (const Status status = deadline.poll({&socket, 1}, Clock::now() + kPollInterval);
          !status.ok()) {
        if (status.code() != Code::deadline_exceeded) return status;
        return Status(Code::deadline_exceeded, silence());
      }
    }
  }

  // The bytes after the last reply: they are the agent's.
  std::string take_rest() { return std::move(seen_); }

 private:
  Status write(std::string_view& out) {
    while (!out.empty() && !ended_ && (ssh_get_status(session_) & SSH_WRITE_PENDING) == 0) {
      const std::uint32_t size =
          std::min({ssh_channel_window_size(channel_), kLargestWrite,
                    static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), kLargestWrite))});
      if (size == 0) return {};
      const int written = ssh_channel_write(channel_, out.data(), size);
      if (written < 0 || ssh_channel_is_closed(channel_) != 0) {
        out = {};  // the host's error message is still to be read
        return {};
      }
      if (written == 0) return {};
      out.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
  }

  Status read() {
    for (const bool errors : {true, false}) {
      while (true) {
        const int count =
            ssh_channel_read_nonblocking(channel_, buffer_.data(), buffer_.size(), errors ? 1 : 0);
        if (count <= 0) {
          if (count == SSH_EOF || count == SSH_ERROR) ended_ = ended_ || !errors;
          break;
        }

        const std::string_view bytes(buffer_.data(), static_cast<std::size_t>(count));
        if (errors) {
          errors_.feed(bytes);
        } else {
          seen_ += bytes;
          if (find(nonce_ + ":") == std::string::npos) discard_noise();
        }
        if (seen_.size() > kLongestAnswer) break;
      }
    }
    return {};
  }

  std::size_t find(const std::string& text) const { return seen_.find(text); }

  void discard_noise() {
    if (seen_.size() > kKeptNoise) seen_.erase(0, seen_.size() - kKeptNoise);
  }

  std::optional<Reply> find_reply() {
    const std::size_t start = find(nonce_ + ":");
    if (start == std::string::npos) return std::nullopt;
    std::size_t kind_at = start + nonce_.size() + 1;
    const std::size_t colon = seen_.find(':', kind_at);
    if (colon == std::string::npos) return std::nullopt;

    Reply reply{.kind = seen_.substr(kind_at, colon - kind_at), .text = {}};
    if (reply.kind == "no") {
      // Its text may have several lines, and nothing follows it.
      if (!ended_) return std::nullopt;
      std::string text = seen_.substr(colon + 1);
      reply.text = last_lines(split(text, '\n'));
      return reply;
    }

    const std::size_t line_end = seen_.find('\n', colon);
    if (line_end == std::string::npos) return std::nullopt;
    reply.text = seen_.substr(colon + 1, line_end - colon - 1);
    seen_.erase(0, line_end + 1);
    return reply;
  }

  bool ended() const { return ended_ || ssh_is_connected(session_) == 0; }

  std::string output_text() const {
    const std::string out = last_lines(split(seen_, '\n'));
    const std::string errors = last_lines(errors_.lines());
    if (out.empty() && errors.empty()) return {};
    return cat(". It said: ", out, out.empty() || errors.empty() ? "" : "; ", errors);
  }

  std::string why_it_ended() {
    if (ssh_is_connected(session_) == 0) {
      return cat("the connection broke while the agent was being started: ", error_text(session_),
                 output_text());
    }
    (void)read();  // the last lines of its standard error
    const int code = ssh_channel_get_exit_status(channel_);
    return cat("the command that starts the agent was not run to its end",
               code >= 0 ? cat(" (exit code ", code, ")") : std::string(), output_text(),
               ". May this user run commands there, and is there a /bin/sh?");
  }

  std::string silence() const {
    return cat("the command that starts the agent did not answer in time", output_text(),
               ". Does the host run another command instead of what it is told, or do the start "
               "files of the login shell wait for something?");
  }

  ssh_session session_;
  ssh_channel channel_;
  std::string nonce_;
  const std::function<void()>& on_progress_;
  TimePoint report_at_ = Clock::now() + kProgressInterval;
  std::string seen_;
  StderrTail errors_;
  bool ended_ = false;
  std::array<char, 16'384> buffer_{};
};

std::string this_machine() {
  utsname name{};
  ::uname(&name);
  return static_cast<const char*>(name.machine);
}

}  // namespace

Result<std::shared_ptr<const AgentImage>> read_agent(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0) {
    return Status::from_errno(cat("read the agent ", path), errno);
  }

  auto image = std::make_shared<AgentImage>();
  image->path = path;
  image->bytes.resize(static_cast<std::size_t>(about.st_size));
  std::size_t done = 0;
  while (done < image->bytes.size()) {
    const ssize_t count = ::read(fd.get(), image->bytes.data() + done, image->bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno(cat("read the agent ", path), errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done == 0 || done < image->bytes.size()) {
    return Status(Code::data_loss, cat("read the agent ", path, ": the file has become shorter"));
  }

  const Digest digest = sha256(image->bytes);
  image->hash = to_hex(as_view(digest));
  return std::shared_ptr<const AgentImage>(std::move(image));
}

Result<Started> start_agent(ssh_session session, const AgentImage& image,
                            const std::string& cache_directory, const EventFlag& stop,
                            std::chrono::milliseconds quiet_for,
                            const std::function<void()>& on_progress) {
  if (cache_directory.find_first_of(std::string("\n\0", 2)) != std::string::npos) {
    return Status(Code::invalid_argument, "the name of the cache directory contains a line end");
  }

  const Deadline deadline{.stop = &stop, .at = Clock::now() + quiet_for};
  ssh_channel const channel = ssh_channel_new(session);  // freed with the session
  if (channel == nullptr) return Status(Code::resource_exhausted, "out of memory");
  auto opened =
      drive(session, SSH_AGAIN, deadline, [&] { return ssh_channel_open_session(channel); });
  if (!opened.ok()) return opened.status().with_context("open a channel");
  if (*opened != SSH_OK) {
    return Status(Code::unavailable,
                  cat("the host opens no channel for a command: ", error_text(session)));
  }

  RemoteScript script{.nonce = to_hex(random_bytes(kNonceBytes)),
                      .build_id = std::string(build_id()),
                      .hash = image.hash,
                      .size = image.bytes.size(),
                      .machine = this_machine()};
  const std::string command = remote_command(script);
  auto executed = drive(session, SSH_AGAIN, deadline,
                        [&] { return ssh_channel_request_exec(channel, command.c_str()); });
  if (!executed.ok()) return executed.status().with_context("run a command");
  if (*executed != SSH_OK) {
    return Status(Code::unavailable, cat("the host runs no command: ", error_text(session)));
  }

  ScriptChannel script_channel(session, channel, script.nonce, on_progress);
  const std::string line = first_line(cache_directory);
  std::string_view out = line;
  while (true) {
    auto reply = script_channel.next(out, stop, quiet_for);
    if (!reply.ok()) return reply.status();
    if (reply->kind == "ok") break;
    if (reply->kind == "need" && out.data() != image.bytes.data()) {
      out = image.bytes;
      on_progress();
      continue;
    }
    if (reply->kind == "no") {
      const std::size_t blank = reply->text.find(' ');
      return Status(Code::failed_precondition,
                    explain(reply->text.substr(0, blank),
                            blank == std::string::npos ? "" : reply->text.substr(blank + 1)));
    }
    return Status(Code::data_loss,
                  cat("unexpected reply from the remote script: \"", reply->kind, "\""));
  }
  return Started{.channel = channel, .first_bytes = script_channel.take_rest()};
}

}  // namespace hvd::driver::ssh
