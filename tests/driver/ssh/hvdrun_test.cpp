// The messages of hvdrun for a job on hosts that cannot take part.
#include <algorithm>

#include "tests/driver/ssh/ssh_test.h"

namespace hvd::test {
namespace {

class SshHvdrun : public BedTest {
 protected:
  static ExitStatus hvdrun(HostBed& bed, std::vector<std::string> words) {
    words.insert(words.begin(), binary("hvdrun"));
    return bed.head().run(words);
  }
  // The line of the report that is about this host.
  static std::string line_of(const ExitStatus& status, const std::string& host) {
    for (const std::string& line : split(status.err, '\n')) {
      if (line.starts_with("    " + host + ": ")) return line.substr(host.size() + 6);
    }
    return {};
  }
  static bool is_clean(const Host& host) { return !runs_agent(host); }
};

TEST_F(SshHvdrun, EveryBadHostIsNamedWithItsStep) {
  HostBed bed({.hosts = 4});
  bash(bed.host(2), "sed -i 's#^root:.*#root:x:0:0:root:/root:/usr/sbin/nologin#' /etc/passwd");
  bash(bed.host(3), "rm .ssh/authorized_keys");
  bash(bed.head(),
       "ssh-keygen -q -t ed25519 -N '' -f other && sed -i /^h4/d .ssh/known_hosts && "
       "echo h4 $(cut -d' ' -f1,2 other.pub) >>.ssh/known_hosts");
  const auto job = hvdrun(bed, {"-H", "h1,nowhere,h2,h3,h4,h1:1:port=2222", "hostname"});
  EXPECT_EQ(job.code, 1);
  EXPECT_EQ(job.out, "");
  EXPECT_TRUE(holds(job.err, "5 hosts cannot take part")) << job.err;
  EXPECT_TRUE(line_of(job, "nowhere").starts_with("resolve: look up nowhere: ")) << job.err;
  EXPECT_TRUE(line_of(job, "h1:2222").starts_with("connect: connect to h1 port 2222: ")) << job.err;
  EXPECT_TRUE(line_of(job, "h2").starts_with("start agent: ")) << job.err;
  EXPECT_TRUE(holds(line_of(job, "h2"), "This account is currently not available")) << job.err;
  EXPECT_TRUE(line_of(job, "h3").starts_with("authenticate: user root is refused")) << job.err;
  EXPECT_TRUE(line_of(job, "h4").starts_with("host key: the host showed another key")) << job.err;
  EXPECT_EQ(line_of(job, "h1"), "") << job.err;
  EXPECT_TRUE(eventually([&] { return is_clean(bed.host(1)); }));
}

TEST_F(SshHvdrun, AProgramThatIsMissingOnOneHostIsFoundBeforeAnythingIsStarted) {
  HostBed bed({.hosts = 3});
  const TemporaryDirectory directory;
  const auto program = directory.file("train", "#!/bin/sh\necho started\n");
  bed.host(1).place(program);
  bed.host(3).place(program);
  std::filesystem::permissions(bed.host(1).files() / "root/train", std::filesystem::perms::all);
  std::filesystem::permissions(bed.host(3).files() / "root/train",
                               std::filesystem::perms::owner_read);
  const auto job = hvdrun(bed, {"-wd", "/root", "-H", "h1,h2,h3", "./train"});
  EXPECT_NE(job.code, 0);
  EXPECT_EQ(job.out, "");
  EXPECT_TRUE(line_of(job, "h2").starts_with("find program: ")) << job.err;
  EXPECT_TRUE(holds(line_of(job, "h2"), "No such file or directory")) << job.err;
  EXPECT_TRUE(line_of(job, "h3").starts_with("find program: ")) << job.err;
  EXPECT_TRUE(holds(line_of(job, "h3"), "ermission denied")) << job.err;

  bash(bed.host(1), "mkdir /root/work");
  const auto elsewhere = hvdrun(bed, {"-wd", "/root/work", "-H", "h1,h2", "hostname"});
  EXPECT_EQ(elsewhere.code, 1);
  EXPECT_TRUE(holds(elsewhere.err, "host h2 cannot take part: change directory: "))
      << elsewhere.err;
  EXPECT_TRUE(holds(elsewhere.err, "/root/work: No such file or directory")) << elsewhere.err;
}

// Local files may lie on a file system that does not answer, for which a pipe without a writer
// stands here.
TEST_F(SshHvdrun, AFileThatCannotBeReadToItsEndHoldsUpNoEnd) {
  HostBed bed({.hosts = 1});
  bash(bed.head(), "mkfifo /root/pipe");
  for (const char* const option : {"-i", "--ssh-config"}) {
    const auto job = hvdrun(
        bed, {option, "/root/pipe", "--start-timeout", "1", "-wd", "/", "-H", "h1", "hostname"});
    EXPECT_EQ(job.code, 1) << option;
    EXPECT_TRUE(holds(job.err, "host h1 cannot take part: ")) << job.err;
    EXPECT_TRUE(holds(job.err, "no answer within 1 s (--start-timeout)")) << job.err;
  }
}

TEST_F(SshHvdrun, KnownHostsThatSomebodyKeepsLockedAreWrittenAllTheSame) {
  HostBed bed({.hosts = 2, .head_knows_hosts = false});
  bash(bed.head(), "touch /root/.ssh/known_hosts");
  const auto locker = bed.head().start(
      {"flock", "/root/.ssh/known_hosts", "bash", "-c", "echo locked; exec sleep 1000000.75"});
  ASSERT_TRUE(locker->wait_for_output("locked"));
  const auto job = hvdrun(bed, {"-wd", "/", "-H", "h1,h2", "hostname"});
  EXPECT_EQ(job.code, 0) << job.err;
  bash(bed.head(), "ssh-keygen -F h1 && ssh-keygen -F h2");
}

TEST_F(SshHvdrun, OddHostsWork) {
  HostBed bed({.hosts = 3, .sshd_settings = {"MaxSessions 1", "Port 22", "Port 2222"}});
  bash(bed.host(1), "printf 'echo Welcome; echo warning >&2\\n' >.bashrc");
  if (bed.host(2).run({"test", "-x", "/bin/tcsh"}).code == 0) {
    bash(bed.host(2), "sed -i 's#^root:.*#root:x:0:0:root:/root:/bin/tcsh#' /etc/passwd");
  }
  const auto job = hvdrun(
      bed, {"-wd", "/", "-H", cat("h1,h2,hvduser@[", bed.host(3).ipv6(), "]:1"), "hostname"});
  EXPECT_EQ(job.code, 0) << job.err;
  for (const char* const name : {":h1\n", ":h2\n", ":h3\n"}) {
    EXPECT_TRUE(holds(job.out, name)) << job.out;
  }
  EXPECT_FALSE(holds(job.out, "Welcome")) << job.out;
  EXPECT_FALSE(holds(job.err, "warning")) << job.err;
}

// With SIGCHLD ignored, as some supervisors start programs, the kernel reaps the command itself.
TEST_F(SshHvdrun, AConditionThatFailsIsNotMetWhereTheKernelReapsItsCommand) {
  HostBed bed({.hosts = 1});
  bash(bed.head(),
       "printf 'Match exec \"exit 1\"\\n  HostName nowhere\\n"
       "Match exec \"exit 0\"\\n  HostName h1\\n' >.ssh/config");
  const auto ignoring = [&](const std::vector<std::string>& words) {
    std::vector<std::string> command{"env", "--ignore-signal=CHLD"};
    command.insert(command.end(), words.begin(), words.end());
    return bed.head().run(command);
  };
  const auto job = ignoring({binary("hvdrun"), "-wd", "/", "-H", "other", "hostname"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_TRUE(holds(job.out, ":h1\n")) << job.out;

  const auto unknown = ignoring(launcher({"--quit", "other"}));
  EXPECT_TRUE(holds(error_of(unknown, "other"), "No child processes")) << unknown.out;
}

// Such a process holds the agent's output open when the agent has ended.
TEST_F(SshHvdrun, AProcessThatStartFilesLeaveBehindHoldsUpNoEndAndLosesNoOutput) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "echo 'sleep 1000000 &' >.bashrc");
  const auto job =
      hvdrun(bed, {"-wd", "/", "-H", "h1:1", "sh", "-c", "yes 123456789 | head -n 300000"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_EQ(std::count(job.out.begin(), job.out.end(), '\n'), 300'000);
  EXPECT_FALSE(holds(job.err, "no sign of life")) << job.err;
}

TEST_F(SshHvdrun, NewHostsThatCannotBeRememberedAreAcceptedWithOneWarning) {
  HostBed bed({.hosts = 2, .head_knows_hosts = false});
  bash(bed.head(),
       "rm -f .ssh/known_hosts && mount --bind .ssh .ssh && mount -o remount,bind,ro .ssh");
  const std::vector<std::string> words{"-wd", "/", "-H", "h1,h2", "hostname"};
  const auto job = hvdrun(bed, words);
  EXPECT_EQ(job.code, 0) << job.err;
  const auto warning = job.err.find("/root/.ssh/known_hosts: Read-only file system");
  ASSERT_NE(warning, std::string::npos) << job.err;
  EXPECT_EQ(job.err.find("Read-only", warning + 30), std::string::npos) << job.err;
  EXPECT_TRUE(holds(job.err, "--ssh-known-hosts")) << job.err;

  auto elsewhere = words;
  elsewhere.insert(elsewhere.begin(), {"--ssh-known-hosts", "/root/known"});
  const auto quiet = hvdrun(bed, elsewhere);
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_FALSE(holds(quiet.err, "known")) << quiet.err;
}

TEST_F(SshHvdrun, ACacheThatCannotBeUsedNamesTheFlagThatHelps) {
  HostBed bed({.hosts = 2});
  bash(bed.host(1), "mkdir -p .cache && mount -t tmpfs -o size=300k tmpfs .cache");
  bash(bed.host(2), "mkdir -p .cache && mount -t tmpfs -o noexec tmpfs .cache");
  const auto job = hvdrun(bed, {"-wd", "/", "-H", "h1,h2", "hostname"});
  EXPECT_EQ(job.code, 1);
  EXPECT_TRUE(holds(line_of(job, "h1"), "No space left on device")) << job.err;
  EXPECT_TRUE(holds(line_of(job, "h2"), "noexec")) << job.err;
  EXPECT_TRUE(holds(job.err, "--agent-cache")) << job.err;
  const auto helped =
      hvdrun(bed, {"--agent-cache", "/var/tmp", "-wd", "/", "-H", "h1,h2", "hostname"});
  EXPECT_EQ(helped.code, 0) << helped.err;
}

}  // namespace
}  // namespace hvd::test
