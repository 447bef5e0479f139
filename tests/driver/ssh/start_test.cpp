// From a session to a running agent, and the ends of both.
#include <algorithm>
#include <csignal>
#include <sys/stat.h>

#include "tests/driver/ssh/ssh_test.h"

namespace hvd::test {
namespace {

using SshStart = BedTest;

// Without EXPECT_EQ, whose failure message would be unreadable for texts of this size.
bool is_our_agent(const std::filesystem::path& file) {
  return read_file(file) == read_file(binary("hvd-agent"));
}

std::string error(HostBed& bed, const std::vector<std::string>& words = {"h1"}) {
  return error_of(launch(bed, words), "h1");
}

TEST_F(SshStart, TheAgentIsCopiedOnceAndFoundAgain) {
  HostBed bed({.hosts = 1});
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  ASSERT_EQ(cached(bed.host(1)).size(), 1U);
  const auto file = bed.host(1).files() / "root" / kCache / cached(bed.host(1)).front();
  struct stat first {};
  ASSERT_EQ(::stat(file.c_str(), &first), 0);
  EXPECT_EQ(first.st_mode & 0777U, 0700U);
  EXPECT_EQ(std::filesystem::status(file.parent_path()).permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_TRUE(is_our_agent(file));
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  struct stat second {};
  ASSERT_EQ(::stat(file.c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
}

TEST_F(SshStart, ADamagedAgentInTheCacheIsReplaced) {
  HostBed bed({.hosts = 1});
  ASSERT_EQ(launch(bed, {"h1"}).code, 0);
  const auto file = bed.host(1).files() / "root" / kCache / cached(bed.host(1)).front();
  // The file of a running program cannot be written to.
  const auto ended = [&] { return !runs_agent(bed.host(1)); };
  ASSERT_TRUE(eventually(ended));
  bash(bed.host(1), cat("printf damaged | dd of=/root/", kCache, "/$(ls /root/", kCache,
                        ") bs=1 seek=4000 conv=notrunc 2>/dev/null"));
  EXPECT_FALSE(is_our_agent(file));
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  EXPECT_TRUE(is_our_agent(file));
  ASSERT_TRUE(eventually(ended));
  bash(bed.host(1), cat("truncate -s 1000 /root/", kCache, "/hvd-agent-*"));
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  EXPECT_TRUE(is_our_agent(file));
}

TEST_F(SshStart, AgentsOfOtherBuildsStayUntilNobodyUsedThemForLong) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), cat("mkdir -p ", kCache, " && cd ", kCache,
                        " && touch hvd-agent-new hvd-agent-used && "
                        "touch -d '60 days ago' hvd-agent-old && "
                        "touch -m -d '60 days ago' hvd-agent-used && "
                        "touch -d '3 days ago' hvd-agent-x.1.part && touch hvd-agent-x.2.part"));
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  const auto names = cached(bed.host(1));
  const auto has = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_TRUE(has("hvd-agent-new"));
  EXPECT_TRUE(has("hvd-agent-used"));
  EXPECT_FALSE(has("hvd-agent-old"));
  EXPECT_FALSE(has("hvd-agent-x.1.part"));
  EXPECT_TRUE(has("hvd-agent-x.2.part"));
}

TEST_F(SshStart, ManyAtOnceShareACacheThatWasEmpty) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxStartups 100"}});
  const auto status = launch(bed, {"root@h1", "h1", bed.host(1).ipv4(), bed.host(1).ipv6(),
                                   "root@" + bed.host(1).ipv4(), "h1#22", "root@h1#22"});
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_EQ(cached(bed.host(1)).size(), 1U);
}

TEST_F(SshStart, TheCacheMayBeElsewhere) {
  HostBed bed({.hosts = 1});
  bash(bed.head(), "true");
  const std::string odd = "/srv/it's \"odd\" $HOME \\n!";
  for (const std::string& place : {odd, std::string("~/deep/down"), std::string("/tmp")}) {
    const auto status = launch(bed, {"--cache", place, "h1"});
    EXPECT_EQ(status.code, 0) << place << ": " << status.out;
  }
  EXPECT_EQ(bed.host(1).run({"sh", "-c", "ls \"$1\"/agents", "sh", odd}).code, 0);
  EXPECT_EQ(bed.host(1).shell("ls /root/deep/down/agents/hvd-agent-*").code, 0);
  EXPECT_EQ(bash(bed.host(1), "stat -c %a /tmp"), "1777\n");
  EXPECT_TRUE(cached(bed.host(1)).empty());
}

TEST_F(SshStart, XdgCacheHomeIsHonoured) {
  HostBed bed({.hosts = 1, .sshd_settings = {"SetEnv XDG_CACHE_HOME=/srv/cache"}});
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  EXPECT_EQ(bed.host(1).shell("ls /srv/cache/hvd/agents/hvd-agent-*").code, 0);
}

TEST_F(SshStart, NoPermissionForTheCacheIsSaidWithItsPlace) {
  HostBed bed({.hosts = 1});
  const auto status = launch(bed, {"--cache", "/usr/lib", "hvduser@h1"});
  const auto text = error_of(status, "hvduser@h1");
  EXPECT_TRUE(text.starts_with("start agent: cannot make the directory for the agent: ")) << text;
  EXPECT_TRUE(holds(text, "/usr/lib/agents")) << text;
  EXPECT_TRUE(holds(text, "--agent-cache")) << text;
}

TEST_F(SshStart, ACacheOfSomebodyElseIsRefused) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mkdir -p /srv/agents && chown hvduser /srv/agents");
  const auto text = error(bed, {"--cache", "/srv", "h1"});
  EXPECT_TRUE(holds(text, "/srv/agents, belongs to another user")) << text;
}

TEST_F(SshStart, AFullDiskIsSaidAndNothingHalfIsLeft) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mkdir -p .cache && mount -t tmpfs -o size=300k tmpfs .cache");
  const auto text = error(bed);
  EXPECT_TRUE(text.starts_with("start agent: cannot write the agent there: ")) << text;
  EXPECT_TRUE(holds(text, "No space left on device")) << text;
  EXPECT_EQ(bash(bed.host(1), cat("ls -A ", kCache)), "");
}

TEST_F(SshStart, AFileSystemThatForbidsProgramsIsSaid) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mkdir -p .cache && mount -t tmpfs -o noexec tmpfs .cache");
  for (int time = 0; time < 2; ++time) {  // the second finds it in the cache
    const auto text = error(bed);
    EXPECT_TRUE(holds(text, "the agent cannot be executed there: ")) << text;
    EXPECT_TRUE(holds(text, "Permission denied")) << text;
    EXPECT_TRUE(holds(text, "noexec")) << text;
  }
}

TEST_F(SshStart, OneSessionPerConnectionIsEnough) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxSessions 1"}});
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
}

TEST_F(SshStart, AHostThatOpensNoSessionIsReportedAsSuch) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxSessions 0"}});
  const auto text = error(bed);
  EXPECT_TRUE(text.starts_with("start agent: the host opens no channel for a command: ")) << text;
}

TEST_F(SshStart, ABannerOnBothStreamsDoesNotMatterHoweverLong) {
  HostBed bed({.hosts = 1, .sshd_settings = {"Banner /etc/passwd"}});
  // bash reads it for commands of sshd, too.
  bash(bed.host(1),
       "printf 'echo Welcome; echo warning >&2; seq 300000; printf unfinished\\n' >.bashrc");
  const auto status = launch(bed, {"--run", "echo clean", "h1"});
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_TRUE(holds(status.out, "h1 printed 6\n")) << status.out;
}

TEST_F(SshStart, AnyLoginShellWillDo) {
  HostBed bed({.hosts = 1});
  int found = 0;
  for (const std::string shell :
       {"/bin/dash", "/bin/bash", "/bin/zsh", "/bin/csh", "/bin/tcsh", "/usr/bin/fish"}) {
    if (bed.host(1).run({"test", "-x", shell}).code != 0) continue;
    ++found;
    bash(bed.host(1), cat("sed -i 's#^root:.*#root:x:0:0:root:/root:", shell, "#' /etc/passwd"));
    const auto status = launch(bed, {"h1"});
    EXPECT_EQ(status.code, 0) << shell << ": " << status.out;
    EXPECT_EQ(launch(bed, {"h1"}).code, 0) << shell;
    bash(bed.host(1), "rm -rf .cache");
  }
  EXPECT_GE(found, 2);
}

TEST_F(SshStart, ACacheUnderSomebodyElsesDirectoryIsRefusedStickyOrNot) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mkdir -m 777 /srv/theirs && chown hvduser /srv/theirs");
  for (const char* const mode : {"777", "1777", "755"}) {
    bash(bed.host(1), cat("chmod ", mode, " /srv/theirs && mkdir -p /srv/theirs/below"));
    for (const char* const cache : {"/srv/theirs", "/srv/theirs/below", "/srv/theirs/new/one"}) {
      const auto text = error(bed, {"--cache", cache, "h1"});
      EXPECT_TRUE(holds(text, "/srv/theirs, belongs to another user")) << mode << ": " << text;
    }
  }
  bash(bed.host(1), "mkdir -m 755 /srv/fine && ln -s /srv/fine /srv/theirs/link");
  EXPECT_TRUE(holds(error(bed, {"--cache", "/srv/theirs/link", "h1"}), "another user"));
}

TEST_F(SshStart, ACacheInADirectoryThatEverybodyMayWriteHasToBeSticky) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mkdir -m 777 /srv/open && mkdir -m 1777 /srv/sticky");
  EXPECT_TRUE(holds(error(bed, {"--cache", "/srv/open", "h1"}), "/srv/open, belongs"));
  EXPECT_EQ(launch(bed, {"--cache", "/srv/sticky", "h1"}).code, 0);
  EXPECT_EQ(launch(bed, {"--cache", "/srv/sticky/own", "h1"}).code, 0);
}

TEST_F(SshStart, AShellThatRefusesEveryLoginIsQuoted) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "sed -i 's#^root:.*#root:x:0:0:root:/root:/usr/sbin/nologin#' /etc/passwd");
  const auto text = error(bed);
  // The exit code may arrive after the message was made.
  EXPECT_TRUE(
      text.starts_with("start agent: the command that starts the agent was not run to its end"))
      << text;
  EXPECT_TRUE(holds(text, "This account is currently not available.")) << text;
}

TEST_F(SshStart, ARestrictedShellIsQuoted) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1),
       "ln -s /bin/bash /srv/rbash && "
       "sed -i 's#^root:.*#root:x:0:0:root:/root:/srv/rbash#' /etc/passwd");
  EXPECT_TRUE(holds(error(bed), "restricted"));
}

TEST_F(SshStart, ACommandThatTheHostForcesIsNotTakenForTheAgent) {
  {
    HostBed bed({.hosts = 1, .sshd_settings = {"ForceCommand echo only this"}});
    const auto text = error(bed);
    EXPECT_TRUE(holds(text, "It said: only this")) << text;
  }
  {
    HostBed bed({.hosts = 1, .sshd_settings = {"ForceCommand internal-sftp"}});
    EXPECT_TRUE(holds(error(bed), "was not run to its end"));
  }
  {
    HostBed bed({.hosts = 1, .sshd_settings = {"ForceCommand echo wait; sleep 1000"}});
    const auto text = error(bed, {"--step-timeout", "700", "h1"});
    EXPECT_TRUE(holds(text, "did not answer in time. It said: wait.")) << text;
  }
}

TEST_F(SshStart, WithoutAShellAtItsPlaceTheLoginShellIsQuoted) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "mount --bind /dev/null /bin/sh");
  const auto text = error(bed);
  EXPECT_TRUE(holds(text, "/bin/sh")) << text;
}

TEST_F(SshStart, WithoutASumToCheckTheAgentIsCopiedAnew) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1),
       "mkdir /srv/bin && for p in uname mkdir chmod find rm head wc mv; do "
       "ln -s $(command -v $p) /srv/bin/$p; done && echo 'PATH=/srv/bin' >.bashrc");
  for (int time = 0; time < 2; ++time) {
    const auto status = launch(bed, {"h1"});
    EXPECT_EQ(status.code, 0) << status.out;
  }
  EXPECT_EQ(cached(bed.host(1)).size(), 1U);
}

TEST_F(SshStart, AMachineOfAnotherArchitectureIsReportedAsSuch) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1),
       "mkdir /srv/bin && printf '#!/bin/sh\\necho Linux riscv64\\n' >/srv/bin/uname && "
       "chmod +x /srv/bin/uname && echo 'PATH=/srv/bin:$PATH' >.bashrc");
  EXPECT_TRUE(holds(error(bed), "the host has another platform, Linux riscv64"));
}

TEST_F(SshStart, AnAgentThatCannotBeReadHereIsSaidOfEveryHost) {
  HostBed bed({.hosts = 1});
  const auto status =
      bed.head().run({binary("hvd_ssh_launcher"), "--agent", "/no/agent", "--quit", "h1"});
  EXPECT_EQ(error_of(status, "h1"),
            "start agent: read the agent /no/agent: No such file or directory");
}

TEST_F(SshStart, ACopyThatIsCutShortLeavesNothing) {
  HostBed bed({.hosts = 1});
  bed.shape(bed.host(1), {.rate = "2mbit"});
  const auto job = bed.head().start(launcher({"h1"}));
  ASSERT_TRUE(eventually([&] {
    const auto names = cached(bed.host(1));
    return !names.empty() &&
           std::filesystem::file_size(bed.host(1).files() / "root" / kCache / names.front()) > 0;
  }));
  job->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return cached(bed.host(1)).empty(); }));
}

TEST_F(SshStart, ASlowCopyTakesLongerThanTheDeadlineOfAStepAsLongAsItGoesOn) {
  HostBed bed({.hosts = 1});
  bed.shape(bed.host(1), {.rate = "5mbit"});  // some seconds
  const auto status = launch(bed, {"--step-timeout", "1500", "h1"});
  EXPECT_EQ(status.code, 0) << status.out;
  // The step is reported again, so that the job's timeout starts anew.
  EXPECT_TRUE(holds(status.out, "h1 step copy agent\nh1 step copy agent\n")) << status.out;
}

TEST_F(SshStart, AHostThatIsCutOffWhileCopyingIsGivenUpAtTheDeadline) {
  HostBed bed({.hosts = 1});
  bed.shape(bed.host(1), {.rate = "2mbit"});
  auto command = launcher({"--quit", "--step-timeout", "1500", "h1"});
  const auto job = bed.head().start(command);
  ASSERT_TRUE(eventually([&] { return !cached(bed.host(1)).empty(); }));
  bed.cut_off(bed.host(1));
  const auto status = job->wait();
  EXPECT_TRUE(holds(error_of(status, "h1"), "start agent: ")) << status.out;
  EXPECT_TRUE(holds(error_of(status, "h1"), "did not answer in time")) << status.out;
}

TEST_F(SshStart, MuchPassesBothWays) {
  HostBed bed({.hosts = 2});
  const auto status =
      launch(bed, {"--run", "head -c 40000000 /dev/zero; head -c 3000000 /dev/zero >&2", "--worlds",
                   "30", "h1", "h2"});
  EXPECT_EQ(status.code, 0) << status.out;
  for (const char* const host : {"h1", "h2"}) {
    EXPECT_TRUE(holds(status.out, cat(host, " printed 43000000\n"))) << status.out;
    EXPECT_TRUE(holds(status.out, cat(host, " took 3145"))) << status.out;
  }
}

TEST_F(SshStart, NewKeysInTheMiddleDoNotDisturb) {
  HostBed bed({.hosts = 1, .sshd_settings = {"RekeyLimit 1M"}});
  const auto status = launch(bed, {"--run", "head -c 20000000 /dev/zero", "--worlds", "20", "h1"});
  EXPECT_TRUE(holds(status.out, "h1 printed 20000000\n")) << status.out;
  EXPECT_TRUE(holds(status.out, "h1 took 2097")) << status.out;
}

TEST_F(SshStart, ADriverThatIsKilledTakesItsAgentsAlong) {
  HostBed bed({.hosts = 2});
  const auto job = bed.head().start(launcher({"h1", "h2"}));
  ASSERT_TRUE(job->wait_for_output("h1 ready"));
  ASSERT_TRUE(job->wait_for_output("h2 ready"));
  EXPECT_TRUE(runs_agent(bed.host(1)));
  job->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(1)) && !runs_agent(bed.host(2)); }));
}

TEST_F(SshStart, AnAgentThatDiesIsReportedWithItsSignal) {
  HostBed bed({.hosts = 1});
  const auto job = bed.head().start(launcher({"h1"}));
  ASSERT_TRUE(job->wait_for_output("h1 ready"));
  bash(bed.host(1), "pkill -KILL -o hvd-agent");
  const auto status = job->wait();
  EXPECT_TRUE(holds(status.out, "h1 ended: was killed by SIGKILL")) << status.out;
}

TEST_F(SshStart, ABrokenSessionIsReported) {
  HostBed bed({.hosts = 1});
  const auto job = bed.head().start(launcher({"h1"}));
  ASSERT_TRUE(job->wait_for_output("h1 ready"));
  bash(bed.host(1), "pkill -KILL -f 'sshd: root'");
  const auto status = job->wait();
  EXPECT_TRUE(holds(status.out, "h1 ended: was lost with its SSH connection: ")) << status.out;
}

TEST_F(SshStart, AnAgentOnACutOffHostIsGivenUpAtOnceAndEndsWhenTheHostIsReachable) {
  HostBed bed({.hosts = 2});
  const auto job = bed.head().start(launcher({"--kill", "h1", "h2"}));
  ASSERT_TRUE(job->wait_for_output("h1 ready"));
  ASSERT_TRUE(job->wait_for_output("h2 ready"));
  bed.cut_off(bed.host(1));
  job->signal(SIGUSR1);
  const auto status = job->wait();
  EXPECT_TRUE(holds(status.out, "h1 ended: was given up")) << status.out;
  EXPECT_TRUE(holds(status.out, "h2 ended: was given up")) << status.out;
  EXPECT_TRUE(runs_agent(bed.host(1)));
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(2)); }));
  bed.heal();
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(1)); }));
}

TEST_F(SshStart, AShortCutIsBridged) {
  HostBed bed({.hosts = 1});
  const auto job =
      bed.head().start(launcher({"--quit", "--run",
                                 "echo some; until test -e /root/go; do sleep 0.01; done; "
                                 "head -c 1000000 /dev/zero",
                                 "h1"}));
  ASSERT_TRUE(job->wait_for_output("h1 ready"));
  bed.cut_off(bed.host(1));
  bash(bed.host(1), "touch go; sleep 1.5");  // its packets are lost meanwhile, and retransmitted
  bed.heal();
  const auto status = job->wait();
  EXPECT_TRUE(holds(status.out, "h1 printed 1000005\n")) << status.out;
}

TEST_F(SshStart, StartsThatAreUnderWayAreGivenUpAtOnce) {
  HostBed bed({.hosts = 3});
  bed.cut_off(bed.host(2));
  auto command = launcher({"--give-up", "--connect-timeout", "600000", "h2", "h2#23", "h1", "h3"});
  const auto status = bed.head().run(command);
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_TRUE(status.out.ends_with("gave up\n")) << status.out;  // nothing was said after that
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(1)) && !runs_agent(bed.host(3)); }));
}

}  // namespace
}  // namespace hvd::test
