#include "cmd/hvd-agent/notice_command.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/launch.h"

namespace hvd::agent {
namespace {

constexpr std::size_t kKeptOutput = 4096;    // bytes, of each stream
constexpr double kMostSeconds = 31'536'000;  // a year; more fits no message
constexpr int kNoNoticeYet = 1;              // the exit code
// So many reads empty a pipe that was full when the command ended. A command that prints without
// end leaves the agent time for the rest.
constexpr int kReadsOfPipe = 17;

std::string_view last_line(std::string_view text) {
  text = trim(text);
  const auto newline = text.rfind('\n');
  return newline == std::string_view::npos ? text : trim(text.substr(newline + 1));
}

}  // namespace

std::optional<std::chrono::milliseconds> time_left(std::string_view printed) {
  const auto seconds = parse_number<double>(last_line(printed));
  if (!seconds || !std::isfinite(*seconds)) return std::nullopt;
  const double possible = std::clamp(*seconds, 0.0, kMostSeconds);
  return std::chrono::milliseconds(std::llround(possible * 1000));
}

void NoticeCommand::begin(std::string command, std::vector<std::string> environment,
                          std::string working_directory) {
  if (command.empty() || !command_.empty()) return;
  command_ = {"/bin/sh", "-c", std::move(command)};
  environment_ = std::move(environment);
  working_directory_ = std::move(working_directory);
  run_at_ = Clock::now();
}

void NoticeCommand::stop() {
  is_finished_ = true;
  run_at_ = kNever;
  order(ReaperOrder::Kind::kill);
}

void NoticeCommand::check_lease() const { order(ReaperOrder::Kind::check_lease); }

void NoticeCommand::order(ReaperOrder::Kind kind) const {
  if (!reaper_) return;
  ReaperOrder order;
  order.kind = kind;
  [[maybe_unused]] const ssize_t sent =
      ::send(reaper_.get(), &order, sizeof(order), MSG_DONTWAIT | MSG_NOSIGNAL);
  // One that was stopped takes no order.
  if (reaper_pid_ > 0) ::kill(reaper_pid_, SIGCONT);
}

void NoticeCommand::on_time(TimePoint now) {
  if (now < run_at_) return;
  run_at_ = kNever;
  if (const Status begun = run(); !begun.ok()) {
    complain(cat("cannot be run: ", begun.message()));
    if (!reaper_) run_at_ = now + kPause;
  }
}

Status NoticeCommand::open(Stream& stream, UniqueFd& write_end) {
  auto pipe = make_pipe();
  HVD_RETURN_IF_ERROR(pipe.status());
  HVD_RETURN_IF_ERROR(set_nonblocking(pipe->read_end.get(), true));
  stream.text.clear();
  stream.watch.end();
  stream.pipe = std::move(pipe->read_end);
  auto watch = context_.loop.watch(stream.pipe.get(), EPOLLIN,
                                   [&stream](std::uint32_t) { read(stream, 1); });
  HVD_RETURN_IF_ERROR(watch.status());
  stream.watch = std::move(*watch);
  write_end = std::move(pipe->write_end);
  return {};
}

Status NoticeCommand::run() {
  WorkerStart start;
  start.command = command_;
  start.environment = environment_;
  start.working_directory = working_directory_;
  start.open_files = context_.open_files;
  HVD_RETURN_IF_ERROR(check(start));
  HVD_RETURN_IF_ERROR(open(output_, start.standard_output));
  HVD_RETURN_IF_ERROR(open(errors_, start.standard_error));

  auto reaper = fork_reaper(start, context_.lease, context_.outlives_driver);
  HVD_RETURN_IF_ERROR(reaper.status());
  reaper_pid_ = reaper->pid;
  auto watch = context_.loop.watch(reaper->socket.get(), EPOLLIN,
                                   [this](std::uint32_t) { on_reaper_events(); });
  // A reaper that cannot be watched ends with the command when its socket is closed.
  HVD_RETURN_IF_ERROR(watch.status());
  reaper_ = std::move(reaper->socket);
  reaper_watch_ = std::move(*watch);
  runs_ = true;
  return {};
}

void NoticeCommand::read(Stream& stream, int times) {
  std::array<char, kKeptOutput> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (; stream.pipe && times > 0; --times) {
    const ssize_t got = ::read(stream.pipe.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      stream.watch.end();
      stream.pipe.reset();
      return;
    }
    stream.text.append(buffer.data(), static_cast<std::size_t>(got));
    if (stream.text.size() > kKeptOutput) {
      stream.text.erase(0, stream.text.size() - kKeptOutput);
    }
  }
}

void NoticeCommand::on_reaper_events() {
  if (receive_reports(reaper_, [this](const ReaperReport& report) { on_report(report); })) return;
  reaper_watch_.end();
  reaper_.reset();
  if (is_finished_) return;
  if (runs_) complain("has ended with its reaper, which was killed");
  run_at_ = Clock::now() + kPause;
}

void NoticeCommand::on_report(const ReaperReport& report) {
  runs_ =
      report.kind == ReaperReport::Kind::launched || report.kind == ReaperReport::Kind::unkillable;
  if (report.kind == ReaperReport::Kind::launch_failed) {
    complain(cat("cannot be run: ", report.message));
  } else if (report.kind == ReaperReport::Kind::exited) {
    exited(report.wait_status);
  }
}

void NoticeCommand::exited(int wait_status) {
  order(ReaperOrder::Kind::kill);  // what it has left
  if (is_finished_) return;
  read(output_, kReadsOfPipe);
  read(errors_, kReadsOfPipe);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    is_finished_ = true;
    return noticed_(time_left(output_.text));
  }
  const std::string_view said = last_line(errors_.text);
  const bool is_mere_no = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kNoNoticeYet;
  if (is_mere_no && said.empty()) return;
  const std::string how = WIFSIGNALED(wait_status)
                              ? cat("was killed by signal ", WTERMSIG(wait_status))
                              : cat("exited with code ", WEXITSTATUS(wait_status));
  complain(cat(how, said.empty() ? "" : ": ", said));
}

void NoticeCommand::complain(const std::string& what) {
  if (std::exchange(has_complained_, true)) return;
  problem_(cat(what, "; it is run again every ", seconds_text(kPause)));
}

}  // namespace hvd::agent
