#include "tests/support/process.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>

#include "base/machine/proc.h"
#include "base/status.h"
#include "base/text.h"
#include "tests/support/exec_arguments.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::test {
namespace {

using std::chrono::steady_clock;

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (!value.empty()) result.push_back(cat(name, "=", value));
  }
  return result;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void kill_tree(pid_t root) {
  for (const pid_t pid : numbers_in("/proc")) {
    if (parent_of(pid) == root) kill_tree(pid);
  }
  ::kill(root, SIGKILL);
}

// Reads what is there; true at end of file.
bool drain(UniqueFd& fd, std::string& into) {
  std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  if (got > 0) into.append(buffer.data(), static_cast<std::size_t>(got));
  return got == 0;
}

}  // namespace

int kill_one(pid_t pid, int signal_number) {
  EXPECT_GT(pid, 0) << "no process was found";
  return pid > 0 ? ::kill(pid, signal_number) : -1;
}

Process::Process(const std::vector<std::string>& command, const ProcessOptions& options) {
  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (options.close_stdin) {
    posix_spawn_file_actions_addclose(&actions, 0);
  } else {
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, out_write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err_write.get(), 2);
  if (!options.working_directory.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.working_directory.c_str());
  }

  // A shell that runs the tests in the background ignores these, and hvdrun would, too.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t by_default;
  sigemptyset(&by_default);
  for (const int number : {SIGINT, SIGQUIT, SIGHUP}) sigaddset(&by_default, number);
  posix_spawnattr_setsigdefault(&attributes, &by_default);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  auto arguments = command;
  auto environment = environment_with(options.environment);
  const int error =
      ::posix_spawnp(&pid_, arguments.at(0).c_str(), &actions, &attributes,
                     exec_arguments(arguments).data(), exec_arguments(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    ended_ = true;
    throw std::runtime_error(Status::from_errno("start " + command[0], error).to_string());
  }

  out_ = std::move(out_read);
  err_ = std::move(err_read);
}

Process::~Process() {
  if (ended_) return;
  kill_tree(pid_);
  ::waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

// Takes in what was printed until something new came, or it ended; false when the time is up.
bool Process::pump(steady_clock::time_point until) {
  while (!ended_) {
    if (!out_ && !err_) {
      int raw = 0;
      const pid_t got = ::waitpid(pid_, &raw, WNOHANG);
      if (got == pid_) {
        status_.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
        status_.code = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
        ended_ = true;
        return true;
      }
      if (steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    std::array<pollfd, 2> polled{pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now()).count();
    if (left <= 0 || ::poll(polled.data(), polled.size(), static_cast<int>(left)) == 0)
      return false;
    if (polled[0].revents != 0 && drain(out_, status_.out)) out_.reset();
    if (polled[1].revents != 0 && drain(err_, status_.err)) err_.reset();
    return true;
  }
  return true;
}

bool Process::wait_for_text(const std::string& where, const std::string& text,
                            std::chrono::milliseconds limit, std::size_t after) {
  const auto until = steady_clock::now() + limit;
  while (where.find(text, after) == std::string::npos) {
    if (ended_ || !pump(until)) return false;
  }
  return true;
}

bool Process::wait_for_output(const std::string& text, std::chrono::milliseconds limit,
                              std::size_t after) {
  return wait_for_text(status_.out, text, limit, after);
}

bool Process::wait_for_error(const std::string& text, std::chrono::milliseconds limit,
                             std::size_t after) {
  return wait_for_text(status_.err, text, limit, after);
}

ExitStatus Process::wait(std::chrono::milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!ended_) {
    if (!pump(until)) {
      ADD_FAILURE() << "process " << pid_ << " still runs after " << limit.count()
                    << " ms; stdout:\n"
                    << status_.out << "\nstderr:\n"
                    << status_.err;
      break;
    }
  }
  return status_;
}

ExitStatus run(const std::vector<std::string>& command, const ProcessOptions& options,
               std::chrono::milliseconds limit) {
  Process process(command, options);
  return process.wait(limit);
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = std::filesystem::temp_directory_path() / "hvd-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryDirectory::file(const std::string& name,
                                               std::string_view content) const {
  auto path = path_ / name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

std::vector<pid_t> processes_with_variable(const std::string& name, const std::string& value) {
  std::vector<pid_t> found;
  const std::string wanted = name + "=" + value;
  for (const pid_t pid : numbers_in("/proc")) {
    if (pid == ::getpid()) continue;
    for (const auto& entry : split(read_file(cat("/proc/", pid, "/environ")), '\0')) {
      if (entry == wanted) {
        found.push_back(pid);
        break;
      }
    }
  }
  return found;
}

bool wait_until_gone(const std::string& name, const std::string& value,
                     std::chrono::milliseconds limit) {
  return eventually([&] { return processes_with_variable(name, value).empty(); }, limit);
}

std::string binary(const std::string& name) { return std::string(HVD_BIN_DIR) + "/" + name; }

}  // namespace hvd::test
