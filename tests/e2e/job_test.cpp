#include "tests/e2e/job_test.h"

#include <csignal>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "base/security/crypto.h"
#include "base/text.h"

namespace hvd::test {
namespace {

constexpr const char* kMark = "HVD_E2E_MARK";

std::string parent_in(const std::string& status) {
  for (const auto& line : lines_of(status)) {
    if (line.starts_with("PPid:")) return std::string(trim(line.substr(5)));
  }
  return "";
}

}  // namespace

JobTest::JobTest() : mark_(to_hex(random_bytes(8))) {}

JobTest::~JobTest() {
  started_.clear();
  for (const pid_t pid : processes()) kill_one(pid, SIGKILL);
}

void JobTest::TearDown() { expect_nobody_left("the test"); }

Process& JobTest::start(const Words& words, ProcessOptions options) {
  Words command{binary("hvdrun")};
  command.insert(command.end(), words.begin(), words.end());
  options.environment[kMark] = mark_;
  started_.push_back(std::make_unique<Process>(command, options));
  return *started_.back();
}

ExitStatus JobTest::run_job(const Words& words, ProcessOptions options) {
  return start(words, std::move(options)).wait();
}

ExitStatus JobTest::expect_all_ok(int ranks, const Words& command, const Words& flags) {
  Words words{"-np", std::to_string(ranks)};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), command.begin(), command.end());
  ExitStatus end = run_job(words);
  EXPECT_EQ(end.code, 0) << ranks << " ranks\n" << end.out << end.err;
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(lines_of_rank(end.out, rank), Words{"ok " + std::to_string(rank) + "."}) << end.err;
  }
  return end;
}

void JobTest::expect_ok_alone(const Words& command) {
  const ExitStatus end = run(command);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "ok 0.\n");
}

void JobTest::signal_until(Process& job, int number, const std::string& said) {
  EXPECT_TRUE(eventually([&] {
    job.signal(number);
    return job.wait_for_error(said, std::chrono::milliseconds(50));
  })) << job.err();
}

std::vector<pid_t> JobTest::processes() const { return processes_with_variable(kMark, mark_); }

void JobTest::crash(Process& process) {
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait().signal, SIGKILL);
}

void JobTest::expect_nobody_left(const std::string& after) {
  if (wait_until_gone(kMark, mark_, std::chrono::seconds(20))) return;
  std::string left;
  for (const pid_t pid : processes()) {
    std::string command = read_file(cat("/proc/", pid, "/cmdline"));
    for (char& character : command) {
      if (character == '\0') character = ' ';
    }
    left += cat("\n  ", pid, " ", command);
  }
  ADD_FAILURE() << "left after " << after << ":" << left;
}

std::map<int, pid_t> wait_for_workers(Process& job, const std::string& word, int count) {
  std::map<int, pid_t> found;
  for (int rank = 0; rank < count; ++rank) {
    const std::string said = cat(" ", word, " ", rank, ".");
    if (!job.wait_for_output(said)) {
      ADD_FAILURE() << "rank " << rank << " never said \"" << word << "\"; stdout:\n"
                    << job.out() << "\nstderr:\n"
                    << job.err();
      break;
    }
    const auto end = job.out().find(said);
    const auto begin = job.out().find_last_not_of("0123456789", end - 1) + 1;
    const auto pid = parse_number<pid_t>(job.out().substr(begin, end - begin));
    EXPECT_TRUE(pid.has_value()) << job.out();
    found[rank] = pid.value_or(0);
  }
  return found;
}

std::vector<pid_t> children_named(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_number<pid_t>(entry.path().filename().string());
    if (!pid) continue;
    if (trim(read_file(entry.path() / "comm")) == name &&
        parent_in(read_file(entry.path() / "status")) == std::to_string(parent)) {
      found.push_back(*pid);
    }
  }
  return found;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> lines_of_rank(const std::string& text, int rank,
                                       const std::string& stream) {
  const std::string prefix = cat("[", rank, "]<", stream, ">:");
  std::vector<std::string> lines;
  for (const auto& line : lines_of(text)) {
    if (line.starts_with(prefix)) lines.push_back(line.substr(prefix.size()));
  }
  return lines;
}

std::set<std::uint16_t> listening_ports(const std::vector<pid_t>& processes) {
  std::set<std::string> sockets;
  for (const pid_t pid : processes) {
    std::error_code gone;
    for (std::filesystem::directory_iterator at(cat("/proc/", pid, "/fd"), gone), end;
         !gone && at != end; at.increment(gone)) {
      const std::string target = std::filesystem::read_symlink(at->path(), gone);
      if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
    }
  }
  std::set<std::uint16_t> ports;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    for (const auto& line : lines_of(read_file(table))) {
      std::istringstream fields(line);
      std::string number, local, remote, state, word, inode;
      fields >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> word;
      fields >> inode;
      if (state != "0A" || sockets.count(inode) == 0) continue;
      ports.insert(
          static_cast<std::uint16_t>(std::stoul(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

}  // namespace hvd::test
