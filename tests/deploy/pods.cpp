#include "tests/deploy/pods.h"

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

// Of pods, in the host's /root.
constexpr const char* kState = "/root/pod";

fs::path pod_files_of(const Host& host) { return host.files() / "root/pod"; }

}  // namespace

void prepare_for_pods(Host& host, const std::vector<std::string>& programs) {
  host.place(binary("hvdrun"), "/opt/hvd/bin/hvdrun");
  host.place(binary("hvd-agent"), "/opt/hvd/libexec/hvd/hvd-agent");
  for (const auto& program : programs) host.place(binary(program), "/opt/hvd/bin/" + program);
  host.place(HVD_SOURCE_DIR "/tests/deploy/container.sh", "/root/container.sh");

  fs::create_directories(data_of(host));
  fs::permissions(data_of(host), fs::perms::all);
  fs::create_directories(pod_files_of(host) / "volume");
  std::ofstream(pod_files_of(host) / "hosts") << "127.0.0.1 localhost\n";
  std::ofstream(pod_files_of(host) / "token") << std::string(64, 'a') << "\n";
}

void publish_name(Host& host, const std::string& address, const std::string& name) {
  // In place: the file is mounted in containers.
  std::ofstream(pod_files_of(host) / "hosts") << "127.0.0.1 localhost\n"
                                              << address << " " << name << "\n";
}

fs::path data_of(const Host& host) { return pod_files_of(host) / "data"; }

void move_volume(const Host& from, const Host& to) {
  const auto volume = pod_files_of(from) / "volume";
  fs::remove_all(pod_files_of(to) / "volume");
  const auto copied = run({"cp", "-a", volume, pod_files_of(to)});
  if (copied.code != 0) throw std::runtime_error(copied.err);
  fs::remove_all(volume);
}

Pod::Pod(Host& host, PodSpec spec, const std::string& name) : spec_(std::move(spec)) {
  std::vector<std::string> words{"unshare",
                                 "--pid",
                                 "--mount",
                                 "--uts",
                                 "--ipc",
                                 "--fork",
                                 "--",
                                 "/bin/sh",
                                 "/root/container.sh",
                                 name,
                                 cat(spec_.user),
                                 cat(spec_.group),
                                 cat(spec_.fs_group),
                                 kState};
  words.insert(words.end(), spec_.volumes.begin(), spec_.volumes.end());
  words.emplace_back("--");
  words.insert(words.end(), spec_.variables.begin(), spec_.variables.end());
  words.insert(words.end(), spec_.command.begin(), spec_.command.end());
  process_ = host.start(words);
}

// As this machine numbers it: the only child of unshare.
pid_t Pod::first_process() const {
  const pid_t parent = process_->pid();
  const auto children = read_proc_file(cat("/proc/", parent, "/task/", parent, "/children"));
  const auto pid = parse_number<pid_t>(trim(children));
  if (!pid) throw std::runtime_error("the container has ended: " + said());
  return *pid;
}

ExitStatus Pod::remove() {
  const pid_t first = first_process();
  ::kill(first, SIGTERM);
  const auto is_over = [&] { return state_of(first) == 0 || state_of(first) == 'Z'; };
  if (eventually(is_over, spec_.grace)) return wait();

  ::kill(first, SIGKILL);
  auto end = wait();
  end.code = 128 + SIGKILL;  // unshare has a code of its own
  return end;
}

ExitStatus Pod::exec(const std::vector<std::string>& command) const {
  std::vector<std::string> words{"nsenter",
                                 "--target",
                                 cat(first_process()),
                                 "--all",
                                 "--root",
                                 "--setuid",
                                 cat(spec_.user),
                                 "--setgid",
                                 cat(spec_.group),
                                 "--",
                                 "env",
                                 "-i",
                                 "PATH=/opt/hvd/bin:/usr/bin:/bin",
                                 "HOME=/"};
  words.insert(words.end(), command.begin(), command.end());
  return run(words);
}

void Pod::kill() {
  ::kill(first_process(), SIGKILL);
  wait();
}

}  // namespace hvd::test
