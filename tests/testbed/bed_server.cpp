#include "tests/testbed/bed_server.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/files.h"
#include "tests/testbed/host_init.h"
#include "tests/testbed/network.h"
#include "tests/testbed/system.h"

namespace hvd::test::bed {
namespace {

namespace fs = std::filesystem;

constexpr int kHostStartLimitMs = 60000;
constexpr const char* kDirectoryPrefix = "hvd-bed-";

struct Machine {
  pid_t pid = -1;       // of the first process, as the bed counts
  std::string far_pid;  // as the machine counts
  UniqueFd line;        // to it, while it starts
  ino_t processes = 0;  // its pid namespace
};

class BedServer {
 public:
  explicit BedServer(const Plan& plan) : plan_(plan), network_(plan) {}

  // All these hosts, at a time.
  void start(const std::vector<int>& numbers);
  std::string all_pids() const;
  std::string answer_to(const std::string& request);

 private:
  std::string told_by(int number, const std::string& expected);
  void crash(int number);
  int number_from(const std::string& word) const;

  const Plan& plan_;
  Network network_;
  std::map<int, Machine> machines_;
  std::vector<pid_t> unreaped_;  // first processes of hosts that crashed
};

std::string BedServer::told_by(int number, const std::string& expected) {
  std::string said;
  if (!receive_record(machines_.at(number).line.get(), said, kHostStartLimitMs)) {
    throw std::runtime_error(cat(name_of(number), " ended while it started"));
  }
  if (!said.starts_with(expected)) {
    throw std::runtime_error(said.starts_with("error ") ? said.substr(6) : said);
  }
  return said.substr(expected.size());
}

void BedServer::start(const std::vector<int>& numbers) {
  std::map<int, pid_t> pids;
  for (const int number : numbers) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      throw_errno("socketpair");
    }
    UniqueFd ours(pair[0]);
    UniqueFd its(pair[1]);
    const pid_t pid = fork_into(kHostNamespaces);
    if (pid == 0) be_host(plan_, number, its.get());
    machines_[number] = Machine{pid, "", std::move(ours), 0};
    pids[number] = pid;
  }
  network_.plug(pids);
  for (const int number : numbers) {
    Machine& machine = machines_.at(number);
    machine.far_pid = told_by(number, "files ");
    machine.processes = pid_namespace_of(parse_number<pid_t>(machine.far_pid).value_or(-1));
    send_record(machine.line.get(), "go");
  }
  for (const int number : numbers) {
    told_by(number, "ready");
    machines_.at(number).line.reset();
  }
  for (const int number : numbers) network_.apply_to(number);
}

std::string BedServer::all_pids() const {
  std::string text;
  for (const auto& [number, machine] : machines_) text += "\n" + machine.far_pid;
  return text;
}

void BedServer::crash(int number) {
  Machine& machine = machines_.at(number);
  if (machine.pid < 0) throw std::runtime_error(name_of(number) + " is off already");
  network_.silence(number);  // before anything there can say goodbye
  if (!end_namespace(machine.pid, machine.processes)) unreaped_.push_back(machine.pid);
  machine.pid = -1;
  network_.unplug(number);
}

int BedServer::number_from(const std::string& word) const {
  const auto number = parse_number<int>(word);
  if (!number || *number < 0 || *number > plan_.last()) {
    throw std::runtime_error(cat("there is no host ", word));
  }
  return *number;
}

std::string BedServer::answer_to(const std::string& request) {
  const auto arguments = split(request, '\n');
  const auto word = [&](std::size_t index) {
    return index < arguments.size() ? arguments[index] : "";
  };
  const auto host = [&](std::size_t index) { return number_from(word(index)); };
  std::erase_if(unreaped_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
  const std::string& verb = arguments.at(0);
  if (verb == "cut_off") {
    network_.cut_off(host(1));
  } else if (verb == "cut") {
    network_.cut(host(1), host(2));
  } else if (verb == "heal") {
    network_.heal();
  } else if (verb == "shape") {
    network_.shape(host(1), {.rate = word(2), .delay = word(3), .loss = std::stod(word(4))});
  } else if (verb == "crash") {
    crash(host(1));
  } else if (verb == "boot") {
    const int number = host(1);
    if (machines_.at(number).pid >= 0) throw std::runtime_error(name_of(number) + " is up already");
    start({number});
    return "ok\n" + machines_.at(number).far_pid;
  } else if (verb == "capture") {
    network_.capture(word(1));
  } else if (verb == "end_capture") {
    network_.end_capture();
  } else {
    throw std::runtime_error("unknown request " + verb);
  }
  return "ok";
}

// Until the maker is gone.
void serve(BedServer& server, int control, int maker) {
  for (;;) {
    std::array<pollfd, 2> polled{pollfd{control, POLLIN, 0}, pollfd{maker, POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[1].revents != 0) return;
    std::string request;
    if (!receive_record(control, request)) return;
    std::string answer;
    try {
      answer = server.answer_to(request);
    } catch (const std::exception& error) {
      answer = cat("error\n", error.what());
    }
    tell(control, answer);
  }
}

[[noreturn]] void be_first_process(const Plan& plan, int control, int maker) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    mount_at("none", "/", "", MS_REC | MS_PRIVATE);
    make_keys(plan);
    make_head_login(plan);
    BedServer server(plan);
    std::vector<int> everybody;
    for (int number = 0; number <= plan.last(); ++number) everybody.push_back(number);
    server.start(everybody);
    send_record(control, cat("ok\n", plan.directory.string(), server.all_pids()));
    serve(server, control, maker);
  } catch (const std::exception& error) {
    tell(control, cat("error\n", error.what()));
  }
  ::_exit(0);
}

// The lock of a bed's directory is held by its processes: free means that they are gone.
bool is_abandoned(const fs::path& directory) {
  const UniqueFd lock(::open((directory / "lock").c_str(), O_RDWR | O_CLOEXEC));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
}

void remove_abandoned() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(), ignored)) {
    if (!entry.path().filename().string().starts_with(kDirectoryPrefix)) continue;
    if (is_abandoned(entry.path())) fs::remove_all(entry.path(), ignored);
  }
}

UniqueFd make_directory(Plan& plan) {
  for (;;) {
    std::string name = fs::temp_directory_path() / cat(kDirectoryPrefix, "XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) throw_errno("make " + name);
    ::chmod(name.c_str(), 0711);
    const fs::path lock_file = fs::path(name) / "lock";
    UniqueFd lock(::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    // Another bed may have thought it abandoned just before.
    if (lock && ::flock(lock.get(), LOCK_EX) == 0 && fs::exists(lock_file)) {
      plan.directory = name;
      return lock;
    }
  }
}

}  // namespace

int serve_bed(Plan plan, int control, pid_t maker) {
  reset_signals();
  ::signal(SIGPIPE, SIG_IGN);
  ::setsid();  // a Ctrl-C is for the maker; what follows from it happens here by itself
  ::umask(022);
  UniqueFd lock;
  try {
    const UniqueFd maker_fd = open_pidfd(maker);
    give_up_the_clock();
    remove_abandoned();
    lock = make_directory(plan);
    std::array<int, 2> pair{};
    if (::pipe2(pair.data(), O_CLOEXEC) != 0) throw_errno("pipe2");
    const pid_t pid = fork_into(kHostNamespaces);
    if (pid == 0) be_first_process(plan, control, maker_fd.get());
    const ino_t processes = pid_namespace_of(pid);
    // It ends when it closes this, also when it is killed.
    const UniqueFd life(pair[0]);
    ::close(pair[1]);
    ::close(control);
    char nothing = 0;
    while (::read(life.get(), &nothing, 1) < 0 && errno == EINTR) {
    }
    end_namespace(pid, processes);
  } catch (const std::exception& error) {
    tell(control, cat("error\n", error.what()));
  }
  std::error_code ignored;
  if (!plan.directory.empty()) fs::remove_all(plan.directory, ignored);
  return 0;
}

}  // namespace hvd::test::bed
