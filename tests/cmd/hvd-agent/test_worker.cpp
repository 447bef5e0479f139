// The workers of the agent's tests: small programs that behave badly on request. Each mode prints
// a line on stdout when it has reached the point that the test waits for.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/machine/life_lock.h"
#include "base/machine/proc.h"
#include "base/protocol/worker_link.h"
#include "base/socket.h"
#include "base/text.h"

namespace {

using hvd::cat;

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(STDOUT_FILENO, text.data(), text.size()) < 0) ::_exit(99);
}

[[noreturn]] void stay() {
  for (;;) ::pause();
}

int channel() { return std::atoi(std::getenv(hvd::worker_link::kDescriptorVariable)); }

void ignore_polite_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) std::signal(number, SIG_IGN);
}

void children(int count) {
  for (int i = 0; i < count; ++i) {
    if (const pid_t pid = ::fork(); pid == 0) stay();
  }
  say("ready");
  stay();
}

// Forks twice, leaves session and group, closes everything and forgets its environment, as a hidden
// program does.
void daemon(const char* self) {
  if (const pid_t middle = ::fork(); middle == 0) {
    ::setsid();
    if (const pid_t grandchild = ::fork(); grandchild == 0) {
      ignore_polite_signals();
      say(cat("daemon ", ::getpid()));
      for (int fd = 0; fd < 256; ++fd) ::close(fd);
      std::array<char*, 3> arguments{const_cast<char*>(self), const_cast<char*>("stay"), nullptr};
      std::array<char*, 1> nothing{nullptr};
      ::execve(self, arguments.data(), nothing.data());
    }
    ::_exit(0);
  }
  ::wait(nullptr);
}

// Whether whoever inherits orphans leaves thousands of them unburied, which would fill the machine.
bool is_not_reaped() {
  constexpr std::size_t kMuch = 20'000;  // bytes, of their numbers
  const pid_t heir = ::getppid();
  return hvd::read_proc_file(cat("/proc/", heir, "/task/", heir, "/children")).size() > kMuch;
}

// Each process lives only until it has forked the next: an observer sees the previous one.
[[noreturn]] void run_away() {
  constexpr int kLookEvery = 200;
  ignore_polite_signals();
  for (int generation = 1;; ++generation) {
    if (generation % kLookEvery == 0 && is_not_reaped()) {
      say("not reaped");
      ::_exit(0);
    }
    if (::fork() > 0) ::_exit(0);
    ::setsid();
  }
}

void runners(int count) {
  for (int i = 0; i < count; ++i) {
    if (::fork() == 0) run_away();
  }
  say("ready");
  stay();
}

void stopped_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    stay();
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  say(cat("stopped ", child));
  stay();
}

[[noreturn]] void tick() {
  for (;;) {
    say("tick");
    ::poll(nullptr, 0, 2);
  }
}

// One child attaches to the other as leak checkers and debuggers do: it sends SIGSTOP to it, and
// waits for that stop. The other is held up until its own child, which says who it is, is killed.
void attach() {
  const pid_t held_up = ::fork();
  if (held_up == 0) {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (::vfork() == 0) {
      say(cat("holds up ", ::getpid()));
      stay();
    }
    tick();
  }
  while (hvd::state_of(held_up) != 'D') ::poll(nullptr, 0, 1);
  if (::fork() == 0) {
    if (::ptrace(PTRACE_ATTACH, held_up, nullptr, nullptr) != 0) say("may not attach");
    say(cat("attached to ", held_up));
    int status = 0;
    ::waitpid(held_up, &status, __WALL);
    say(cat("stopped by ", WSTOPSIG(status), "."));
    ::ptrace(PTRACE_DETACH, held_up, nullptr, nullptr);
  }
  stay();
}

// The child keeps both pipes; the worker itself ends.
void leave_child() {
  if (::fork() == 0) stay();
  say("last words");
}

void read_channel() {
  hvd::FrameDecoder decoder;
  for (;;) {
    const auto frame = hvd::receive_frame(channel(), decoder, hvd::kNever);
    if (!frame.ok()) return say("end");
    say(cat("kind ", frame->kind, " of ", frame->payload.size(), " bytes"));
  }
}

void write_channel(std::string_view what) {
  std::string bytes;
  if (what == "initialised") bytes = hvd::worker_link::Initialised{::getpid()}.encode();
  if (what == "done") {
    bytes = hvd::worker_link::Initialised{::getpid()}.encode() + hvd::worker_link::Done{}.encode();
  }
  if (what == "twice") {
    for (int i = 0; i < 2; ++i) bytes += hvd::worker_link::Initialised{::getpid()}.encode();
    for (int i = 0; i < 2; ++i) bytes += hvd::worker_link::Done{}.encode();
  }
  if (what == "elastic") {
    using namespace hvd::worker_link;  // NOLINT(google-build-using-namespace): its message types
    bytes = Initialised{::getpid()}.encode() + Ready{}.encode() + Ready{}.encode();
    for (const std::uint64_t generation : {5, 5, 4, 6}) bytes += Committed{generation}.encode();
    bytes += Leave{}.encode() + Leave{}.encode() + Left{"why"}.encode() + Left{}.encode() +
             Done{}.encode();
  }
  if (what == "work") {
    bytes = hvd::worker_link::WorkReport{{1, 1, 0, {}}}.encode() +
            hvd::worker_link::WorkReport{{2, 3, 0, {}}}.encode() +
            hvd::worker_link::Initialised{::getpid()}.encode();
  }
  if (what == "last-words") {
    hvd::worker_link::Activity activity;
    activity.in_flight = "allreduce \"a\"";
    activity.last = "nothing";
    activity.missing = "rank 1 on b#0 has not asked for \"a\"";
    bytes = hvd::worker_link::Initialised{::getpid()}.encode() + activity.encode();
  }
  if (what == "unknown") {
    bytes = hvd::encode_frame(77, "?") + hvd::encode_frame(78, "?") +
            hvd::worker_link::Initialised{::getpid()}.encode();
  }
  if (what == "rubbish") {
    ::signal(SIGPIPE, SIG_IGN);
    const std::string rubbish(1 << 20, '\xff');
    ::send(channel(), rubbish.data(), rubbish.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return say("written");
  }
  if (!hvd::send_all(channel(), bytes, hvd::kNever).ok()) ::_exit(98);
}

// Holds the lock that says that it lives, and so much memory that freeing it takes a while.
[[noreturn]] void hold_memory(std::size_t megabytes) {
  auto lock = hvd::LifeLock::open(std::atoi(std::getenv(hvd::worker_link::kLifeLockVariable)));
  if (!lock.ok()) ::_exit(95);
  lock->hold();
  const std::size_t size = megabytes << 20;
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) ::_exit(94);
  ::madvise(memory, size, MADV_NOHUGEPAGE);
  std::memset(memory, 1, size);
  say("ready");
  stay();
}

[[noreturn]] void hold_and_execute() {
  auto lock = hvd::LifeLock::open(std::atoi(std::getenv(hvd::worker_link::kLifeLockVariable)));
  if (!lock.ok()) ::_exit(95);
  lock->hold();
  ::execl("/bin/sh", "sh", "-c", "echo another program; exec sleep 1000", nullptr);
  ::_exit(93);
}

void until_told_to_stop() {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, nullptr);
  say("ready");
  int number = 0;
  ::sigwait(&term, &number);
  // The announcement must lie there already: no waiting.
  hvd::FrameDecoder decoder;
  for (;;) {
    const auto frame = hvd::receive_frame(channel(), decoder, hvd::Clock::now());
    if (!frame.ok()) return say("SIGTERM without announcement");
    if (frame->kind != static_cast<int>(hvd::worker_link::Kind::stop)) continue;
    return say(cat("SIGTERM after: ", hvd::worker_link::Stop::decode(frame->payload)->reason));
  }
}

void spew(std::size_t count) {
  std::string pattern;
  for (std::size_t i = 0; i < 65'521; ++i) pattern += static_cast<char>(i * 31 + i / 256);
  while (count > 0) {
    const auto part = std::min(count, pattern.size());
    const ssize_t written = ::write(STDOUT_FILENO, pattern.data(), part);
    if (written < 0) ::_exit(97);
    // Shifts the pattern so that a lost or doubled piece shows.
    std::rotate(pattern.begin(), pattern.begin() + written, pattern.end());
    count -= static_cast<std::size_t>(written);
  }
}

void show_signals() {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    if (std::strncmp(line.data(), "SigBlk", 6) == 0 || std::strncmp(line.data(), "SigIgn", 6) == 0)
      std::fputs(line.data(), stdout);
  }
  std::fclose(file);
  std::printf("session %d group %d\n", static_cast<int>(::getsid(0) == ::getpid()),
              static_cast<int>(::getpgrp() == ::getpid()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 96;
  const std::string_view mode = argv[1];
  const int count = argc > 2 ? std::atoi(argv[2]) : 0;
  if (mode == "stay") stay();
  if (mode == "stay-stubbornly") {
    ignore_polite_signals();
    say("ready");
    stay();
  }
  if (mode == "children") children(count);
  if (mode == "daemon") {
    daemon("/proc/self/exe");
    stay();
  }
  if (mode == "daemon-and-exit") daemon("/proc/self/exe");
  if (mode == "runners") runners(count);
  if (mode == "stopped-child") stopped_child();
  if (mode == "tick") tick();
  if (mode == "attach") attach();
  if (mode == "leave-child") leave_child();
  if (mode == "read-channel") read_channel();
  if (mode == "write-channel") write_channel(argv[2]);
  if (mode == "write-channel-and-stay") {
    write_channel(argv[2]);
    stay();
  }
  if (mode == "hold-memory") hold_memory(static_cast<std::size_t>(count));
  if (mode == "hold-and-execute") hold_and_execute();
  if (mode == "until-told-to-stop") until_told_to_stop();
  if (mode == "spew") spew(static_cast<std::size_t>(count));
  if (mode == "show-signals") show_signals();
  // Without what exit() runs: a leak checker would be one more process of the worker.
  std::fflush(stdout);
  ::_exit(0);
}
