#include "cmd/hvdrun/top_command.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/text.h"
#include "cmd/hvdrun/job_questions.h"
#include "cmd/hvdrun/status_text.h"

namespace hvd::cli {
namespace {

constexpr std::chrono::seconds kPace{1};
constexpr std::string_view kHelp = "q or Ctrl-C: quit";

// Escape sequences that all terminals of today know (ECMA-48, and xterm's second screen).
constexpr std::string_view kEnterScreen = "\033[?1049h\033[?25l";
constexpr std::string_view kLeaveScreen = "\033[?25h\033[?1049l";
constexpr std::string_view kHome = "\033[H";
constexpr std::string_view kClearLine = "\033[K";
constexpr std::string_view kClearBelow = "\033[J";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// The second screen of the terminal, with keys that arrive at once and are not shown.
class Screen {
 public:
  Screen() { ::tcgetattr(STDIN_FILENO, &before_); }
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void enter() {
    if (std::exchange(entered_, true)) return;
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    write_all(kEnterScreen);
  }
  void leave() {
    if (!std::exchange(entered_, false)) return;
    write_all(kLeaveScreen);
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }

 private:
  termios before_{};
  bool entered_ = false;
};

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
    ::sigaddset(&set, signal);
  }
  return set;
}

// Signals arrive as bytes of a descriptor while this exists.
class WatchedSignals {
 public:
  WatchedSignals() : set_(watched_signals()) {
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    fd_ = UniqueFd(::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~WatchedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

  int fd() const { return fd_.get(); }
  // The next one that is pending; 0: none is.
  int take() const {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  sigset_t set_;
  sigset_t before_{};
  UniqueFd fd_;
};

class Top {
 public:
  explicit Top(const driver::JobSocket& job) : job_(job) {}

  Result<std::string> run() {
    for (;;) {
      const auto answer = ask_status(job_);
      if (answer.status().code() == Code::not_found) {
        return cat("job ", job_.job_id, " is over\n");
      }
      // One that is stopped does not answer for a while.
      auto text = answer.ok() ? status_text(*answer) : Result(answer.status().message());
      if (!text.ok()) return text.status();
      if (!show_until(*text, Clock::now() + kPace)) return std::string();
    }
  }

 private:
  // False: the user wants to quit.
  bool show_until(const std::string& text, TimePoint end) {
    draw(text);
    for (TimePoint now = Clock::now(); now < end; now = Clock::now()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now);
      std::array<pollfd, 2> watched{pollfd{STDIN_FILENO, POLLIN, 0},
                                    pollfd{signals_.fd(), POLLIN, 0}};
      if (::poll(watched.data(), watched.size(), static_cast<int>(left.count())) <= 0) continue;
      if (watched[0].revents != 0 && quits_by_key()) return false;
      while (const int signal = signals_.take()) {
        if (signal == SIGTSTP) {
          pause();
        } else if (signal != SIGWINCH) {
          return false;
        }
        draw(text);
      }
    }
    return true;
  }

  // The terminal is gone, or the user has pressed a key.
  static bool quits_by_key() {
    char key = 0;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN) || key == 'q' || key == 'Q';
  }

  void pause() {
    screen_.leave();
    ::raise(SIGSTOP);
  }

  void draw(const std::string& text) {
    screen_.enter();
    winsize size{};
    ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::size_t rows = size.ws_row > 0 ? size.ws_row : 24;
    const std::size_t columns = size.ws_col > 0 ? size.ws_col : 80;
    write_all(top_frame(cat(text, "\n", kHelp, "\n"), rows, columns));
  }

  const driver::JobSocket& job_;
  const WatchedSignals signals_;
  Screen screen_;
};

// The beginning of a line, at most so many characters of UTF-8.
std::string_view cut(std::string_view line, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool begins = (static_cast<unsigned char>(line[at]) & 0xC0U) != 0x80U;
    if (begins && characters++ == columns) return line.substr(0, at);
  }
  return line;
}

}  // namespace

std::string top_frame(std::string_view text, std::size_t rows, std::size_t columns) {
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::vector<std::string> lines = split(text, '\n');
  if (lines.size() > rows && rows > 0) {
    const std::size_t left_out = lines.size() - (rows - 1);
    lines.resize(rows - 1);
    lines.push_back(cat("(", left_out, " more lines; ", kHelp, ")"));
  }

  std::string frame(kHome);
  for (std::size_t i = 0; i < lines.size() && i < rows; ++i) {
    if (i > 0) frame += "\r\n";
    frame.append(cut(lines[i], columns)).append(kClearLine);
  }
  return frame.append(kClearBelow);
}

Result<std::string> run_top(const driver::JobSocket& job) {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    return Status(Code::failed_precondition,
                  "hvdrun top needs a terminal as its input and output; hvdrun status prints the "
                  "same once");
  }
  return Top(job).run();
}

}  // namespace hvd::cli
