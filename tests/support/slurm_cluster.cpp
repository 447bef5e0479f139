#include "tests/support/slurm_cluster.h"

#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScript = HVD_SOURCE_DIR "/tests/support/slurm_cluster.sh";

// The first of so many ports in a row that are free now, below those that the kernel gives away.
// Tests that begin at the same moment have pids close to each other, and look in blocks of their
// own.
int free_ports(int count) {
  constexpr int kBlock = 8;
  constexpr int kBlocks = 1'500;
  if (count > kBlock) throw std::runtime_error("a Slurm has more nodes than it has ports for");
  for (int first = 20'000 + ::getpid() % kBlocks * kBlock; first < 32'000; first += kBlock) {
    int taken = 0;
    for (int port = first; port < first + count; ++port) {
      if (!listen_tcp({"0.0.0.0", static_cast<std::uint16_t>(port)}).ok()) ++taken;
    }
    if (taken == 0) return first;
  }
  throw std::runtime_error("no free ports for a Slurm");
}

// Pids of all processes whose command line has this word.
std::vector<pid_t> processes_with_word(const std::string& word) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (!pid) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.find(word) != std::string::npos) found.push_back(*pid);
  }
  return found;
}

}  // namespace

std::optional<std::string> SlurmCluster::why_not() {
  if (::geteuid() != 0) return "only root can make a process namespace for Slurm";
  for (const char* const program :
       {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/srun", "/usr/sbin/munged"}) {
    if (!fs::exists(program)) return cat(program, " is not installed");
  }
  return std::nullopt;
}

SlurmCluster::SlurmCluster(fs::path directory, int nodes, int gpus)
    : directory_(std::move(directory)) {
  fs::create_directories(directory_);
  environment_ = {{"SLURM_CONF", (directory_ / "slurm.conf").string()}};
  process_ = std::make_unique<Process>(std::vector<std::string>{
      "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", kScript, directory_.string(),
      cat(nodes), cat(free_ports(nodes + 1)), cat(gpus)});
  if (!process_->wait_for_output("ready")) {
    throw std::runtime_error("Slurm does not start: " + process_->err());
  }
}

SlurmCluster::~SlurmCluster() = default;

std::string SlurmCluster::command(const std::vector<std::string>& words) const {
  const ExitStatus end = run(words, {.environment = environment_});
  EXPECT_EQ(end.code, 0) << join(words, " ") << ": " << end.out << end.err;
  return std::string(trim(end.out));
}

std::string SlurmCluster::submit(const std::vector<std::string>& flags,
                                 const std::string& script) const {
  const fs::path file = directory_ / "job.sh";
  std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
  std::vector<std::string> words{"sbatch", "--parsable", "--open-mode=append",
                                 "--output=" + (directory_ / "job.%j").string()};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back(file.string());
  return command(words);
}

std::string SlurmCluster::output(const std::string& job) const {
  const fs::path file = directory_ / ("job." + job);
  return fs::exists(file) ? read_file(file) : std::string();
}

bool SlurmCluster::wait_for_output(const std::string& job, const std::string& text) const {
  return eventually([&] { return output(job).find(text) != std::string::npos; });
}

bool SlurmCluster::wait_for_state(const std::string& job, const std::string& state) const {
  return eventually([&] { return field(job, "JobState") == state; });
}

std::string SlurmCluster::field(const std::string& job, const std::string& name) const {
  const std::string text = " " + command({"scontrol", "--oneliner", "show", "job", job});
  const std::string mark = " " + name + "=";
  const auto begin = text.find(mark);
  if (begin == std::string::npos) return {};
  const auto value = text.substr(begin + mark.size());
  return value.substr(0, value.find(' '));
}

void SlurmCluster::crash(const std::string& node) const {
  // A slurmd, and the steps that it has started, have the node's name or its configuration in their
  // command lines; processes of the step are killed by their agent's end.
  const std::string configuration = (directory_ / node / "slurm.conf").string();
  for (const pid_t pid : processes_with_word(configuration)) ::kill(pid, SIGKILL);
  for (const pid_t pid : processes_with_word("--host=" + node)) ::kill(pid, SIGKILL);
  command({"scontrol", "update", "nodename=" + node, "state=down", "reason=crash"});
}

}  // namespace hvd::test
