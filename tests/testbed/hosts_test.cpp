#include "tests/testbed/hosts.h"

#include <csignal>
#include <stdexcept>

#include "base/text.h"
#include "tests/testbed/bed_test.h"

namespace hvd::test {
namespace {

using HostsTest = BedTest;

TEST_F(HostsTest, TheHeadLogsInToEveryHostByNameAndByBothAddresses) {
  HostBed bed({.hosts = 3});
  EXPECT_EQ(bed.host_list(2), "h1:2,h2:2,h3:2");
  for (int number = 1; number <= 3; ++number) {
    Host& host = bed.host(number);
    for (const auto& where : {host.name(), host.ipv4(), host.ipv6()}) {
      const auto status = bed.head().run(ssh(where, "hostname; id -u; pwd"));
      EXPECT_EQ(status.code, 0) << where << ": " << status.err;
      EXPECT_EQ(status.out, host.name() + "\n0\n/root\n");
    }
  }
}

TEST_F(HostsTest, AnOrdinaryUserMayLogInAndHasAHome) {
  HostBed bed({.hosts = 1});
  const auto status =
      bed.head().run(ssh("hvduser@h1", "id -un; cd && pwd && touch file && stat -c %U file"));
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.out, "hvduser\n/home/hvduser\nhvduser\n");
}

TEST_F(HostsTest, HostsReachEachOtherAndTheHead) {
  HostBed bed({.hosts = 2});
  EXPECT_EQ(connect_from(bed.host(1), bed.host(2).ipv4()), Answer::connected);
  EXPECT_EQ(connect_from(bed.host(2), bed.host(1).ipv6()), Answer::connected);
  EXPECT_EQ(connect_from(bed.host(2), "head"), Answer::refused);  // it runs no sshd
}

TEST_F(HostsTest, NothingOfOursIsOnAHost) {
  HostBed bed({.hosts = 1});
  const std::string hidden = cat(
      "for path in ", HVD_SOURCE_DIR, " ", HVD_BIN_DIR, " ", binary("hvdrun"),
      " ~/.cache ~/.ccache /usr/local/bin/hvdrun /etc/hvd; do test ! -e $path || echo $path; done;"
      "find /root /tmp /home /opt /usr/local /dev/shm -not -path '*/.ssh*' -type f;"
      "type -p hvdrun hvd-agent");
  const auto on_host = bed.host(1).shell(hidden);
  EXPECT_EQ(on_host.out, "");
  const auto over_ssh = bed.head().run(ssh("h1", hidden));
  EXPECT_EQ(over_ssh.out, "");
  EXPECT_EQ(bed.host(1).shell("touch /usr/bin/new").code, 1);  // the machine's own programs
}

TEST_F(HostsTest, TheHeadSeesAllOfThisMachineButHasARootOfItsOwn) {
  HostBed bed({.hosts = 1});
  const TemporaryDirectory directory;
  directory.file("here", "arguments");
  const auto status = bed.head().run({"cat", "here"}, {.working_directory = directory.path()});
  EXPECT_EQ(status.out, "arguments") << status.err;
  EXPECT_EQ(bed.head().run({"test", "-x", binary("hvd-hosts")}).code, 0);
  EXPECT_EQ(bed.head().run({"ls", "-A", "/root"}).out, ".ssh\n");
  EXPECT_EQ(bed.head().run({"hostname"}).out, "head\n");
}

TEST_F(HostsTest, AFileThatIsPlacedRunsThere) {
  HostBed bed({.hosts = 2});
  const TemporaryDirectory directory;
  const auto file = directory.file("hello", "#!/bin/sh\necho hello from $(hostname)\n");
  std::filesystem::permissions(file, std::filesystem::perms::all);
  bed.host(1).place(file);
  bed.host(2).place(file, "/srv/deep/down/greet");
  EXPECT_EQ(bed.host(1).run({"./hello"}).out, "hello from h1\n");
  EXPECT_EQ(bed.host(2).run({"/srv/deep/down/greet"}).out, "hello from h2\n");
  EXPECT_TRUE(std::filesystem::exists(bed.host(1).files() / "root/hello"));
  const auto absent = bed.host(1).run({"/srv/deep/down/greet"});
  EXPECT_EQ(absent.code, 127);
  EXPECT_EQ(absent.err, "h1: cannot run /srv/deep/down/greet: No such file or directory\n");
  EXPECT_THROW(bed.host(1).place("/no/such/file"), std::runtime_error);
}

TEST_F(HostsTest, AProcessOnAHostHasThePidOfItsCommandAndTheEnvironmentOfALogin) {
  HostBed bed({.hosts = 1});
  Host& host = bed.host(1);
  const auto process = host.start({"sleep", "1000"}, {.environment = {{"OURS", "1"}}});
  const auto found = [&]() -> Host::Seen {
    for (auto& seen : host.processes()) {
      if (seen.pid == process->pid()) return seen;
    }
    return {};
  };
  EXPECT_TRUE(eventually([&] { return found().command_line == "sleep 1000"; }));
  EXPECT_NE(found().environment.find("OURS=1"), std::string::npos);
  EXPECT_NE(found().environment.find("HOME=/root"), std::string::npos);
  EXPECT_EQ(found().environment.find("PWD=" + std::filesystem::current_path().string()),
            std::string::npos);
  process->signal(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return found().state == 'T'; }));
  process->signal(SIGCONT);
  process->signal(SIGTERM);
  EXPECT_EQ(process->wait().signal, SIGTERM);
  EXPECT_EQ(host.run({"sh", "-c", "exit 9"}).code, 9);
}

// It is the clock of the machine. Bit 25 of a process's capabilities is CAP_SYS_TIME; a test that
// tried to set the clock would set it where this fails.
TEST_F(HostsTest, NoProcessOfABedMaySetTheClock) {
  HostBed bed({.hosts = 1});
  for (Host* const host : {&bed.head(), &bed.host(1)}) {
    const auto seen = host->run({"sed", "-n", "s/^CapEff:[[:space:]]*//p", "/proc/self/status"});
    const auto bits = std::stoull(seen.out, nullptr, 16);
    EXPECT_NE(bits, 0U);
    EXPECT_EQ(bits & (1ULL << 25U), 0U) << seen.out;
  }
}

TEST_F(HostsTest, TheProcessesOfAHostAreItsOwnAndThoseInNamespacesBelow) {
  HostBed bed({.hosts = 2});
  const auto process =
      bed.host(1).start({"unshare", "--pid", "--fork", "bash", "-c", "echo up; sleep 1001"});
  ASSERT_TRUE(process->wait_for_output("up"));
  const auto runs = [](Host& host, const std::string& arguments) {
    for (const auto& seen : host.processes()) {
      if (seen.command_line.find(arguments) == 0) return true;
    }
    return false;
  };
  EXPECT_TRUE(eventually([&] { return runs(bed.host(1), "sleep 1001"); }));
  EXPECT_TRUE(runs(bed.host(1), "sshd: /usr/sbin/sshd"));
  EXPECT_TRUE(runs(bed.host(2), "sshd: /usr/sbin/sshd"));
  EXPECT_FALSE(runs(bed.host(2), "sleep 1001"));
  EXPECT_FALSE(runs(bed.head(), "sleep 1001"));
  EXPECT_FALSE(runs(bed.head(), "sshd: /usr/sbin/sshd"));
}

TEST_F(HostsTest, AProcessEndsWithItsBed) {
  std::unique_ptr<Process> process;
  {
    HostBed bed({.hosts = 1});
    process = bed.host(1).start({"bash", "-c", "echo up; sleep 1000"});
    ASSERT_TRUE(process->wait_for_output("up"));
  }
  EXPECT_EQ(process->wait().signal, SIGKILL);
}

TEST_F(HostsTest, WithoutIpv4NoHostHasAnIpv4Address) {
  HostBed bed({.hosts = 2, .ipv4 = false});
  EXPECT_EQ(bed.host(1).ipv4(), "");
  for (Host* host : {&bed.host(1), &bed.host(2), &bed.head()}) {
    EXPECT_EQ(host->run({"ip", "-4", "address"}).out, "");
  }
  EXPECT_EQ(bed.host(1).shell("exec 3<>/dev/tcp/localhost/22").code, 0);  // ::1
  const auto status = bed.head().run(ssh("h2", "hostname"));
  EXPECT_EQ(status.out, "h2\n") << status.err;
}

TEST_F(HostsTest, WithoutIpv6NoHostHasAnIpv6Address) {
  HostBed bed({.hosts = 2, .ipv6 = false});
  EXPECT_EQ(bed.host(1).ipv6(), "");
  for (Host* host : {&bed.host(1), &bed.host(2), &bed.head()}) {
    EXPECT_EQ(host->run({"ip", "-6", "address"}).out, "");
  }
  const auto status = bed.head().run(ssh("h2", "hostname"));
  EXPECT_EQ(status.out, "h2\n") << status.err;
}

TEST_F(HostsTest, SettingsOfSshdHold) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxSessions 1", "Banner /etc/hostname"}});
  EXPECT_NE(bed.host(1).shell("sshd -T").out.find("\nmaxsessions 1\n"), std::string::npos);
  EXPECT_NE(bed.head().run(ssh("h1", "true")).err.find("h1"), std::string::npos);
}

TEST_F(HostsTest, ASettingThatSshdDoesNotKnowIsAnErrorWithItsMessage) {
  try {
    HostBed bed({.hosts = 2, .sshd_settings = {"Nonsense 1"}});
    FAIL() << "the bed came up";
  } catch (const std::runtime_error& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.find("test bed: h"), 0U) << said;
    EXPECT_NE(said.find("Bad configuration option: Nonsense"), std::string::npos) << said;
  }
}

TEST_F(HostsTest, AHeadThatKnowsNoHostAndHasNoKeyIsRefusedEverywhere) {
  HostBed bed({.hosts = 1, .head_knows_hosts = false, .head_may_log_in = false});
  const auto unknown = bed.head().run(ssh("h1", "true"));
  EXPECT_NE(unknown.err.find("Host key verification failed"), std::string::npos) << unknown.err;
  const std::vector<std::string> trusting{"ssh", "-o", "BatchMode=yes", "-o",
                                          "StrictHostKeyChecking=accept-new"};
  auto without_key = trusting;
  without_key.insert(without_key.end(), {"h1", "true"});
  const auto refused = bed.head().run(without_key);
  EXPECT_NE(refused.err.find("Permission denied"), std::string::npos) << refused.err;
  auto with_key = trusting;
  with_key.insert(with_key.end(), {"-i", bed.key().string(), "h1", "hostname"});
  const auto status = bed.head().run(with_key);
  EXPECT_EQ(status.out, "h1\n") << status.err;
}

}  // namespace
}  // namespace hvd::test
