#include "tests/testbed/hosts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/support/exec_arguments.h"
#include "tests/testbed/plan.h"
#include "tests/testbed/system.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

constexpr int kAnswerLimitMs = 120000;

std::string helper() { return binary("hvd-hosts"); }

// While one exists, what this thread starts is born among the processes of a host. So the pid that
// a start returns is the command's own.
class BornThere {
 public:
  BornThere(int first_process, const std::string& name) : here_(bed::open_pidfd(::getpid())) {
    bed::enter_namespaces(first_process, CLONE_NEWPID, name);
  }
  ~BornThere() { ::setns(here_.get(), CLONE_NEWPID); }
  BornThere(const BornThere&) = delete;
  BornThere& operator=(const BornThere&) = delete;

 private:
  UniqueFd here_;
};

std::string with_blanks(std::string arguments) {
  std::replace(arguments.begin(), arguments.end(), '\0', ' ');
  while (arguments.ends_with(' ')) arguments.pop_back();
  return arguments;
}

char state_of(pid_t pid) {
  const std::string stat = read_proc_file(cat("/proc/", pid, "/stat"));
  const auto end = stat.rfind(')');
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

}  // namespace

class Host::Impl {
 public:
  std::string name;
  std::string ipv4;
  std::string ipv6;
  fs::path files;
  bool sees_machine = false;  // the head
  pid_t pid = -1;             // of its first process
  UniqueFd pidfd;
  ino_t pid_namespace = 0;

  void born(const std::string& text) {
    const auto number = parse_number<pid_t>(text);
    if (!number) throw std::runtime_error(cat(name, " has no process number: \"", text, "\""));
    pid = *number;
    pidfd = bed::open_pidfd(pid);
    pid_namespace = bed::pid_namespace_of(pid);
  }
  bool is_up() const {
    pollfd polled{pidfd.get(), POLLIN, 0};
    return pidfd && ::poll(&polled, 1, 0) == 0;
  }
  void expect_up(const std::string& what) const {
    if (!is_up()) throw std::runtime_error(cat("cannot ", what, ": host ", name, " is off"));
  }
  ProcessOptions options_here(const ProcessOptions& options) const;
  std::vector<std::string> command_here(const std::vector<std::string>& command,
                                        const ProcessOptions& options) const;
};

// A host has the environment of a fresh login there, the head that of the test.
ProcessOptions Host::Impl::options_here(const ProcessOptions& options) const {
  ProcessOptions result = options;
  result.working_directory.clear();
  const auto set_default = [&](const std::string& key, const std::string& value) {
    result.environment.emplace(key, value);
  };
  set_default("HOME", "/root");
  set_default("PWD", "");
  if (sees_machine) {
    set_default("SSH_AUTH_SOCK", "");
    return result;
  }
  set_default("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  set_default("USER", "root");
  set_default("LOGNAME", "root");
  set_default("SHELL", "/bin/bash");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    set_default(text.substr(0, text.find('=')), "");
  }
  return result;
}

std::vector<std::string> Host::Impl::command_here(const std::vector<std::string>& command,
                                                  const ProcessOptions& options) const {
  if (command.empty()) throw std::runtime_error("no command to run on " + name);
  const fs::path& wanted = options.working_directory;
  std::vector<std::string> arguments{helper(), "enter", name, wanted.empty() ? "/root" : wanted};
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

const std::string& Host::name() const { return impl_->name; }
std::string Host::ipv4() const { return impl_->ipv4; }
std::string Host::ipv6() const { return impl_->ipv6; }
const fs::path& Host::files() const { return impl_->files; }
bool Host::is_up() const { return impl_->is_up(); }

void Host::place(const fs::path& file, const std::string& as) {
  impl_->expect_up("place " + file.string());
  const fs::path there = as.empty() ? "/root" / file.filename() : fs::path(as);
  // Through its first process, whose root directory is the host's.
  const fs::path from_here = cat("/proc/", impl_->pid, "/root") / there.relative_path();
  std::error_code error;
  fs::create_directories(from_here.parent_path(), error);
  if (!error) fs::copy_file(file, from_here, fs::copy_options::overwrite_existing, error);
  if (error) {
    throw std::runtime_error(cat("place ", file.string(), " on ", name(), " as ", there.string(),
                                 ": ", error.message()));
  }
}

std::unique_ptr<Process> Host::start(const std::vector<std::string>& command,
                                     const ProcessOptions& options) {
  const auto arguments = impl_->command_here(command, options);
  impl_->expect_up("run " + command.front());
  const BornThere there(impl_->pidfd.get(), name());
  return std::make_unique<Process>(arguments, impl_->options_here(options));
}

ExitStatus Host::run(const std::vector<std::string>& command, const ProcessOptions& options) {
  return start(command, options)->wait();
}

int Host::run_attached(const std::vector<std::string>& command, const ProcessOptions& options) {
  auto arguments = impl_->command_here(command, options);
  impl_->expect_up("run " + command.front());
  std::vector<std::string> environment;
  const auto changes = impl_->options_here(options).environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) environment.push_back(text);
  }
  for (const auto& [key, value] : changes) {
    if (!value.empty()) environment.push_back(cat(key, "=", value));
  }
  pid_t pid = -1;
  int error = 0;
  {
    const BornThere there(impl_->pidfd.get(), name());
    error = ::posix_spawn(&pid, arguments.front().c_str(), nullptr, nullptr,
                          exec_arguments(arguments).data(), exec_arguments(environment).data());
  }
  if (error != 0)
    throw std::runtime_error(cat("start ", arguments.front(), ": ", std::strerror(error)));
  int raw = 0;
  while (::waitpid(pid, &raw, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
}

std::vector<Host::Seen> Host::processes() const {
  std::vector<Seen> found;
  if (!is_up()) return found;
  for (const pid_t pid : numbers_in("/proc")) {
    if (!bed::lives_in(pid, impl_->pid_namespace)) continue;
    const std::string directory = cat("/proc/", pid);
    Seen seen{pid, with_blanks(read_proc_file(directory + "/cmdline")),
              read_proc_file(directory + "/environ"), state_of(pid)};
    if (seen.state != '?') found.push_back(std::move(seen));  // else it ended meanwhile
  }
  return found;
}

class HostBed::Impl {
 public:
  explicit Impl(BedOptions wanted);
  ~Impl();
  // Asks the server, and returns the lines of its answer without the "ok".
  std::vector<std::string> ask(const std::vector<std::string>& request);
  int number_of(const Host& host) const;

  BedOptions options;
  fs::path directory;
  std::vector<Host> hosts;  // the head first

 private:
  std::vector<std::string> answer();
  void end();

  pid_t server_ = -1;
  UniqueFd control_;
  friend class HostBed;
};

HostBed::Impl::Impl(BedOptions wanted) : options(std::move(wanted)) {
  if (const auto reason = why_impossible()) throw std::runtime_error("no test bed: " + *reason);
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    bed::throw_errno("socketpair");
  }
  control_.reset(pair[0]);
  const UniqueFd its(pair[1]);

  constexpr int kControl = 3;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, its.get(), kControl);

  std::vector<std::string> arguments{helper(), "serve", std::to_string(kControl),
                                     std::to_string(::getpid())};
  const auto rest = bed::words_of(options);
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  const int error = ::posix_spawn(&server_, arguments.front().c_str(), &actions, nullptr,
                                  exec_arguments(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw std::runtime_error(cat("start ", arguments.front(), ": ", std::strerror(error)));
  }
  try {
    const auto lines = answer();
    directory = lines.at(0);
    for (int number = 0; number <= options.hosts; ++number) {
      Host host;
      host.impl_ = std::make_shared<Host::Impl>();
      host.impl_->name = bed::name_of(number);
      if (options.ipv4) host.impl_->ipv4 = bed::ipv4_of(number);
      if (options.ipv6) host.impl_->ipv6 = bed::ipv6_of(number);
      host.impl_->files = directory / host.impl_->name;
      host.impl_->sees_machine = number == bed::kHead;
      host.impl_->born(lines.at(static_cast<std::size_t>(number) + 1));
      hosts.push_back(std::move(host));
    }
  } catch (...) {
    end();
    throw;
  }
}

HostBed::Impl::~Impl() { end(); }

void HostBed::Impl::end() {
  control_.reset();
  if (server_ > 0) ::waitpid(server_, nullptr, 0);
  server_ = -1;
}

std::vector<std::string> HostBed::Impl::answer() {
  std::string text;
  if (!bed::receive_record(control_.get(), text, kAnswerLimitMs)) {
    throw std::runtime_error("the server of the test bed ended");
  }
  auto lines = split(text, '\n');
  if (lines.front() != "ok") {
    throw std::runtime_error("test bed: " + text.substr(std::min<std::size_t>(6, text.size())));
  }
  lines.erase(lines.begin());
  return lines;
}

std::vector<std::string> HostBed::Impl::ask(const std::vector<std::string>& request) {
  bed::send_record(control_.get(), join(request, "\n"));
  return answer();
}

int HostBed::Impl::number_of(const Host& host) const {
  for (std::size_t number = 0; number < hosts.size(); ++number) {
    if (hosts[number].impl_ == host.impl_) return static_cast<int>(number);
  }
  throw std::runtime_error(cat("host ", host.name(), " is of another bed"));
}

HostBed::HostBed(BedOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

HostBed::~HostBed() {
  try {
    end_capture();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the bed may be broken by now
  }
}

Host& HostBed::host(int number) {
  if (number < 1 || number > size()) {
    throw std::runtime_error(cat("the bed has hosts 1 to ", size(), ", not ", number));
  }
  return impl_->hosts.at(static_cast<std::size_t>(number));
}

Host& HostBed::head() { return impl_->hosts.front(); }
int HostBed::size() const { return impl_->options.hosts; }
fs::path HostBed::key() const { return impl_->directory / "id_ed25519"; }

std::string HostBed::host_list(int slots) const {
  std::vector<std::string> entries;
  for (int number = 1; number <= size(); ++number) {
    entries.push_back(cat(bed::name_of(number), ":", slots));
  }
  return join(entries, ",");
}

void HostBed::cut_off(Host& host) {
  impl_->ask({"cut_off", std::to_string(impl_->number_of(host))});
}

void HostBed::cut(Host& one, Host& other) {
  impl_->ask(
      {"cut", std::to_string(impl_->number_of(one)), std::to_string(impl_->number_of(other))});
}

void HostBed::heal() { impl_->ask({"heal"}); }

void HostBed::shape(Host& host, const Shape& shape) {
  impl_->ask(
      {"shape", std::to_string(impl_->number_of(host)), shape.rate, shape.delay, cat(shape.loss)});
}

void HostBed::unshape(Host& host) { shape(host, {}); }

void HostBed::crash(Host& host) {
  impl_->ask({"crash", std::to_string(impl_->number_of(host))});
  host.impl_->pidfd.reset();
}

void HostBed::boot(Host& host) {
  const auto lines = impl_->ask({"boot", std::to_string(impl_->number_of(host))});
  host.impl_->born(lines.at(0));
}

void HostBed::capture(const fs::path& file) {
  impl_->ask({"capture", fs::absolute(file).string()});
}

void HostBed::end_capture() { impl_->ask({"end_capture"}); }

}  // namespace hvd::test
