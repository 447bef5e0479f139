// A worker that waits, or is waited for.
//
//   idle SECONDS   does nothing for so long, and says what that cost:
//                  "idle RANK: CPU us, WAKEUPS wakeups, SENT bytes; then SENT bytes.": the last
//                  for one step of work. Bytes sent over connections are counted.
//   stall          the last rank asks for "first", says "PID stalled RANK.", and asks for the rest,
//                  "gradients" and "weights", when it gets SIGUSR2. Each says "ok RANK."
//   duplicate      all but the last rank ask for "twice" twice, and say what they hear
//
// An error of a collective goes to stderr as "heard: ..." and ends the program with 1.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

namespace {

void say(const char* text, int value) {
  std::printf("%s %d.\n", text, value);
  std::fflush(stdout);
}

hvd::Handle ask(std::vector<float>& values, const std::string& name) {
  values.assign(100, static_cast<float>(hvd::rank() + 1));
  return hvd::allreduce_async(values, {.name = name, .op = hvd::Sum});
}

void reduce(const std::string& name) {
  std::vector<float> values;
  ask(values, name).wait();
  const int sum = hvd::size() * (hvd::size() + 1) / 2;
  if (values.front() != static_cast<float>(sum)) throw std::runtime_error(name + " is wrong");
}

// The resources that this process has used so far.
struct Cost {
  long microseconds = 0;
  long wakeups = 0;
};

Cost cost_so_far() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto microseconds = [](const timeval& time) {
    return time.tv_sec * 1'000'000 + time.tv_usec;
  };
  return {microseconds(usage.ru_utime) + microseconds(usage.ru_stime), usage.ru_nvcsw};
}

unsigned long long tcp_bytes_sent() {
  unsigned long long bytes = 0;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    const int fd = std::atoi(item.path().filename().c_str());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) bytes += info.tcpi_bytes_sent;
  }
  return bytes;
}

int idle(int seconds) {
  for (int round = 0; round < 10; ++round) reduce("values");
  hvd::barrier();
  // Traffic that follows a barrier: the other ranks are told that it has ended.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto bytes = tcp_bytes_sent();
  const Cost before = cost_so_far();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const Cost after = cost_so_far();
  const auto bytes_after = tcp_bytes_sent();
  reduce(std::string(1000, 'v'));  // it has been alive; no shared-memory message is so long
  const auto bytes_of_work = tcp_bytes_sent() - bytes_after;
  std::printf("idle %d: %ld us, %ld wakeups, %llu bytes; then %llu bytes.\n", hvd::rank(),
              after.microseconds - before.microseconds, after.wakeups - before.wakeups,
              bytes_after - bytes, bytes_of_work);
  return 0;
}

int stall() {
  reduce("first");
  if (hvd::rank() == hvd::size() - 1) {
    say((std::to_string(::getpid()) + " stalled").c_str(), hvd::rank());
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR2);
    const timespec longest{300, 0};
    int got = -1;
    do {
      got = ::sigtimedwait(&signals, nullptr, &longest);
    } while (got < 0 && errno == EINTR);  // SIGUSR1 and SIGCONT are nothing to it
    if (got != SIGUSR2) return 3;
  }
  std::vector<float> gradients;
  std::vector<float> weights;
  auto one = ask(gradients, "gradients");
  auto other = ask(weights, "weights");
  one.wait();
  other.wait();
  reduce("last");
  say("ok", hvd::rank());
  return 0;
}

int duplicate() {
  const bool late = hvd::rank() == hvd::size() - 1;
  std::vector<float> values;
  hvd::Handle first;
  if (!late) {
    first = ask(values, "twice");
    try {
      std::vector<float> others;
      ask(others, "twice").wait();
      return 4;
    } catch (const hvd::InvalidArgumentError& error) {
      std::printf("%s\n", error.what());
    }
  }
  hvd::barrier();
  if (late) first = ask(values, "twice");
  first.wait();
  reduce("twice");
  say("ok", hvd::rank());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  // Before there are threads, so that none of them takes it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    hvd::init();
    const int code = what == "idle" && argc == 3 ? idle(std::atoi(argv[2]))
                     : what == "stall"           ? stall()
                     : what == "duplicate"       ? duplicate()
                                                 : 2;
    if (code == 0) hvd::shutdown();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heard: %s\n", error.what());
    return 1;
  }
}
