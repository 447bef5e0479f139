// What other users of a machine could learn from a job, or have it do. The credential of each
// worker reaches it by descriptor alone, so that the list of processes does not show it; and what a
// worker may do with that.
#include <array>
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "base/protocol/worker_link.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/support/dumpable_memory.h"
#include "tests/support/other_user.h"

namespace hvd::test {
namespace {

class SecretsTest : public JobTest {};

// The usual encodings of these bytes.
Words forms_of(const std::string& bytes) {
  std::string upper = to_hex(bytes);
  for (char& digit : upper) digit = static_cast<char>(std::toupper(digit));
  return {bytes, to_hex(bytes), upper, to_base64(bytes).substr(0, 42)};
}

TEST_F(SecretsTest, NoCommandLineAndNoEnvironmentHoldsTheToken) {
  const std::filesystem::path tokens[] = {directory() / "token0", directory() / "token1"};
  const std::string end_file = directory() / "go";
  Process& job = start({"--verbose", "--log-level", "debug", "-np", "2", "sh", "-c",
                        "exec " + binary("e2e_stays") + " --child --token " +
                            (directory() / "token").string() + "$HVD_RANK --until " + end_file});
  wait_for_workers(job, "up", 2);
  ASSERT_NE(read_file(tokens[0]), read_file(tokens[1])) << "each worker has its own";

  Words forms;
  for (const auto& token : tokens) {
    const auto bytes = hvd::from_hex(read_file(token));
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(bytes->size(), Token::kSize);
    for (auto& form : forms_of(*bytes)) forms.push_back(std::move(form));
  }
  int scanned = 0;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    if (!parse_number<pid_t>(process.path().filename().string())) continue;
    for (const char* const name : {"cmdline", "environ"}) {
      const std::string content = read_file(process.path() / name);
      if (content.find(mark()) != std::string::npos) ++scanned;
      for (const auto& form : forms) {
        EXPECT_EQ(content.find(form), std::string::npos) << process.path() / name;
      }
    }
  }
  // hvdrun and its workers were among those that were looked at.
  EXPECT_GE(scanned, 3);

  directory_file("go");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  for (const auto& form : forms) {
    EXPECT_EQ(end.out.find(form), std::string::npos);
    EXPECT_EQ(end.err.find(form), std::string::npos);
  }
}

// "hvdrun" as /proc/PID/comm says it.
std::string name_of(pid_t pid) { return std::string(trim(whole_proc_file(pid, "comm"))); }

// hvdrun and the workers have it on pages that no core dump contains, and the agent passes it on.
TEST_F(SecretsTest, NoCoreDumpWouldHoldTheToken) {
  const std::string metrics_token = directory() / "metrics";
  Process& job = start({"-np", "2", "--metrics-bind", "127.0.0.1:0", "--metrics-token-file",
                        metrics_token, "sh", "-c",
                        cat("exec ", binary("looks"), " ", (directory() / "token").string(),
                            "$HVD_RANK ", binary("e2e_works"))});
  wait_for_workers(job, "working", 2);
  const std::string digits = read_file(directory() / "token0");
  const auto bytes = hvd::from_hex(digits);
  ASSERT_TRUE(bytes.ok());
  const std::string shown = std::string(trim(read_file(metrics_token)));
  const auto shown_bytes = hvd::from_hex(shown);
  ASSERT_TRUE(shown_bytes.ok());

  std::map<std::string, int> seen;
  std::map<std::string, int> with_credential;
  std::map<std::string, int> with_metrics_token;
  for (const pid_t pid : processes()) {
    const std::string name = name_of(pid);
    if (name == worker_link::kReaperName) continue;  // the next test's
    ++seen[name];
    // A message may just be signed: what is there for that moment is not meant.
    for (const std::string& secret : {*bytes, digits, *shown_bytes, shown}) {
      FoundBytes found;
      EXPECT_TRUE(eventually([&] {
        found = find_in_memory(pid, secret);
        return found.dumped.empty();
      })) << name
          << " has it in " << hvd::join(found.dumped, ", ");
      if (found.kept_out > 0 && secret == *bytes) ++with_credential[name];
      if (found.kept_out > 0 && secret == *shown_bytes) ++with_metrics_token[name];
    }
  }
  EXPECT_EQ(with_credential["e2e_works"], 1) << "it is that of rank 0";
  EXPECT_EQ(with_metrics_token, (std::map<std::string, int>{{"hvdrun", 1}}));
  EXPECT_EQ(seen, (std::map<std::string, int>{{"hvdrun", 1}, {"hvd-agent", 1}, {"e2e_works", 2}}));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

// It has the agent's memory as it was when the worker was started. The system shows files of a
// process that leaves no core dump as root's, and so the process has to be another user's.
TEST_F(SecretsTest, AReaperLeavesNoCoreDump) {
  Words command{binary("hvdrun"), "-np", "1", "sh", "-c", "echo $$ up $HVD_RANK.; exec sleep 1000"};
  if (::geteuid() == 0) {
    const Words as_nobody{"setpriv", "--reuid",       cat(kOtherUser),
                          "--regid", cat(kOtherUser), "--clear-groups"};
    command.insert(command.begin(), as_nobody.begin(), as_nobody.end());
  }
  Process job(command, {.environment = {{"HVD_EVENTS_DIR", directory().string()},
                                        {"HOME", "/nonexistent"}}});
  const pid_t worker = wait_for_workers(job, "up", 1).at(0);
  const auto owner = [](pid_t pid) {
    struct stat info {};
    return ::stat(cat("/proc/", pid, "/mem").c_str(), &info) == 0 ? static_cast<int>(info.st_uid)
                                                                  : -1;
  };
  const auto parent = [](pid_t pid) {
    const std::string status = whole_proc_file(pid, "status");
    const auto at = status.find("PPid:\t") + 6;
    return parse_number<pid_t>(status.substr(at, status.find('\n', at) - at)).value_or(-1);
  };
  const pid_t reaper = parent(worker);
  EXPECT_EQ(name_of(reaper), worker_link::kReaperName);
  EXPECT_EQ(owner(reaper), 0);
  EXPECT_NE(owner(worker), 0);
  EXPECT_NE(owner(parent(reaper)), 0) << "the agent's own dumps are as useful as ever";
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

TEST_F(SecretsTest, EachWorkerOfEachJobHasACredentialOfItsOwn) {
  std::set<std::string> seen;
  for (int i = 0; i < 3; ++i) {
    const std::string file = directory() / cat("token", i);
    const std::string go = directory_file("go");
    const ExitStatus end =
        run_job({"-np", "1", binary("e2e_stays"), "--token", file, "--until", go});
    EXPECT_EQ(end.code, 0) << end.err;
    seen.insert(read_file(file));
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen.count(""), 0U);
}

// Each rank tries it, and says what came of it.
TEST_F(SecretsTest, AWorkerWritesOnlyWhatIsItsOwnAndNothingAfterItsEnd) {
  const ExitStatus end = run_job({"-np", "2", binary("e2e_intrudes"), directory().string()});
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  const auto expect = [&](int rank, const std::string& attempt, const std::string& outcome) {
    const auto at = end.out.find(cat("[", rank, "]<stdout>:", attempt, ": "));
    ASSERT_NE(at, std::string::npos) << attempt << "\n" << end.out;
    const auto line = end.out.substr(at, end.out.find('\n', at) - at);
    EXPECT_NE(line.find(outcome), std::string::npos) << line;
  };
  for (const int rank : {0, 1}) {
    expect(rank, "own entry", ": done");
    expect(rank, "program's key", ": done");
    expect(rank, "world", "status 403, only hvdrun writes the world");
    expect(rank, "next world", "status 403, only hvdrun writes the world");
    expect(rank, "other's entry", cat("of generation 1 does not belong to rank ", rank));
    expect(rank, "erase other's entry", cat("of generation 1 does not belong to rank ", rank));
    expect(rank, "other's name", "status 401");
    expect(rank, "hvdrun's name", "status 401");
  }
  expect(1, "commit", "status 403, only rank 0 of generation \"1\" says what that has committed");
  expect(0, "after its end", "status 403, the credential of worker localhost#1, incarnation ");
}

// A job that writes every file that one can have of it, shows itself in every way, and loses a
// worker; then it is suspended.
class SecretsEverywhereTest : public ElasticJobTest {
 protected:
  // What nothing may hold, by a name for it. The secrets of the user are one by its name and one by
  // its value.
  std::map<std::string, std::string> secrets_;
  const std::string by_name_ = to_hex(random_bytes(16));
  const std::string by_value_ = cat("https://host/?sig=", to_hex(random_bytes(16)));
  const std::string metrics_token_ = directory() / "metrics_token";

  std::string file(const std::string& name) const { return directory() / name; }

  Words flags() const {
    return {"--verbose",
            "--log-level",
            "trace",
            "-np",
            "2",
            "--min-np",
            "1",
            "--events",
            file("events"),
            "--timeline-filename",
            file("timeline"),
            "--output-filename",
            file("output"),
            "--autotune",
            "--autotune-log-file",
            file("tuning"),
            "--flight-recorder",
            file("flights"),
            "--state-file",
            file("state"),
            "--metrics-bind",
            "127.0.0.1:0",
            "--metrics-token-file",
            metrics_token_,
            "--status-page"};
  }
  ProcessOptions with_secrets() const {
    return {.environment = {{"SERVICE_SECRET", by_name_}, {"PLACE", by_value_}}};
  }
  Words command() const {
    return {"sh", "-c",
            cat("exec ", binary("looks"), " ", file("token"), ".$$ ", binary("elastic_steps"),
                " --log ", file("step_logs"), " --orders ", file("orders"), " --until ",
                file("enough"), " --verify")};
  }

  void learn_secrets() {
    for (const auto& one : std::filesystem::directory_iterator(directory())) {
      const std::string name = one.path().filename();
      if (!name.starts_with("token.") || name.ends_with(".part")) continue;
      const auto bytes = from_hex(read_file(one.path()));
      ASSERT_TRUE(bytes.ok() && bytes->size() == Token::kSize) << name;
      for (const auto& form : forms_of(*bytes)) secrets_[cat("token ", secrets_.size())] = form;
    }
    ASSERT_FALSE(secrets_.empty());
    secrets_["metrics token"] = std::string(trim(read_file(metrics_token_)));
    secrets_["by name"] = by_name_;
    secrets_["by value"] = by_value_;
  }

  void expect_none(const std::string& text, const std::string& where) const {
    for (const auto& [name, secret] : secrets_) {
      // Workers of this host get all of hvdrun's variables (docs/hvdrun.md), and keep them.
      if (where.ends_with("/environ") && name.starts_with("by ")) continue;
      EXPECT_EQ(text.find(secret), std::string::npos) << where << " holds the " << name;
    }
  }

  // What the system shows of a process to its user and to root, but for its memory.
  void look_at_process(pid_t pid) const {
    const std::filesystem::path folder = cat("/proc/", pid);
    for (const char* const name : {"cmdline", "environ", "comm", "maps", "status", "stat", "limits",
                                   "cgroup", "mountinfo", "wchan", "sched", "io"}) {
      expect_none(whole_proc_file(pid, name), folder / name);
    }
    std::error_code ended;
    for (const auto& one : std::filesystem::directory_iterator(folder / "fdinfo", ended)) {
      const std::string number = one.path().filename();
      expect_none(whole_proc_file(pid, cat("fdinfo/", number).c_str()), one.path());
      expect_none(std::filesystem::read_symlink(folder / "fd" / number, ended), folder / number);
    }
  }

  int look_at_files() const {
    int count = 0;
    for (const auto& one : std::filesystem::recursive_directory_iterator(directory())) {
      const std::string name = one.path().filename();
      if (!one.is_regular_file() || name.starts_with("token.") || one.path() == metrics_token_) {
        continue;
      }
      ++count;
      expect_none(read_file(one.path()), one.path());
      expect_none(name, "a name of a file");
    }
    return count;
  }
};

TEST_F(SecretsEverywhereTest, NothingThatAJobWritesOrShowsHoldsOne) {
  Words words = flags();
  for (const auto& word : command()) words.push_back(word);
  Process& job = start(words, with_secrets());
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();
  kill_rank(0, SIGUSR1);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::is_empty(file("flights")); }));
  kill_rank(1);
  ASSERT_TRUE(step_logs().wait_for_steps_more(20)) << job.err();

  learn_secrets();
  const auto running = processes();
  EXPECT_GE(running.size(), 4U) << "hvdrun, its agent, a reaper and a worker, at least";
  for (const pid_t pid : running) look_at_process(pid);
  job.signal(SIGTERM);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 75) << end.err;  // suspended
  expect_none(end.out, "its standard output");
  expect_none(end.err, "its standard error");
  EXPECT_NE(end.err.find("SIGKILL"), std::string::npos) << "the loss was told";

  for (const char* const written : {"events", "timeline", "tuning", "state"}) {
    EXPECT_TRUE(std::filesystem::exists(file(written))) << written;
  }
  EXPECT_FALSE(std::filesystem::is_empty(file("output")));
  EXPECT_GT(look_at_files(), 8);

  for (const char* const ask : {"--dry-run", "--check-build"}) {
    Words asked = words;
    asked.insert(asked.begin(), ask);
    const ExitStatus told = run_job(asked, with_secrets());
    expect_none(told.out, ask);
    expect_none(told.err, ask);
  }
}

// In a folder in which everybody may make files, another user has put links under the names of the
// files that a job of root's writes. They lead to a file that only root may write.
TEST(SharedFolder, NoFileOfAJobDestroysAnotherOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  constexpr uid_t kStranger = 65534;
  const TemporaryDirectory directory;
  const auto precious = directory.file("precious", "text").string();
  const auto shared = directory.path() / "shared";
  std::filesystem::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  const auto plant = [&](const std::string& name, const std::string& target) {
    const auto link = (shared / name).string();
    EXPECT_EQ(::symlink(target.c_str(), link.c_str()), 0);
    EXPECT_EQ(::lchown(link.c_str(), kStranger, kStranger), 0);
    return link;
  };
  std::filesystem::create_directories(directory.path() / "elsewhere/rank.0");

  const auto kRows = std::to_array<Words>({
      {"--events", plant("events", precious)},
      {"--output-filename", plant("output", directory.path() / "elsewhere")},
      {"--timeline-filename", plant("timeline", precious)},
      {"--autotune", "--autotune-log-file", plant("tuning", precious)},
  });
  for (const Words& row : kRows) {
    Words command{binary("hvdrun"), "-np", "2"};
    command.insert(command.end(), row.begin(), row.end());
    command.push_back(binary("allreduce_once"));
    const ExitStatus end = run(command);
    EXPECT_NE(end.code, 0) << row.front();
    EXPECT_NE(end.err.find("belongs to user 65534"), std::string::npos)
        << row.front() << ": " << end.err;
    EXPECT_EQ(read_file(precious), "text") << row.front();
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() / "elsewhere/rank.0"));
}

}  // namespace
}  // namespace hvd::test
