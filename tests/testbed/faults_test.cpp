// Faults that a test may inject into the hosts of a bed.
#include <chrono>
#include <csignal>
#include <stdexcept>

#include "base/text.h"
#include "tests/testbed/bed_test.h"

namespace hvd::test {
namespace {

using FaultsTest = BedTest;
using Clock = std::chrono::steady_clock;

TEST_F(FaultsTest, ACutOffHostIsSilentAndConnectionsGoOnAfterHealing) {
  HostBed bed({.hosts = 2});
  Host& host = bed.host(1);
  const auto open = bed.head().start(
      ssh("h1", "echo begin; until test -e go; do sleep 0.01; done; echo end; touch said"));
  ASSERT_TRUE(open->wait_for_output("begin"));
  bed.cut_off(host);
  EXPECT_EQ(connect_from(bed.head(), host.ipv4()), Answer::silence);
  EXPECT_EQ(connect_from(bed.head(), host.ipv6()), Answer::silence);
  EXPECT_EQ(connect_from(host, bed.host(2).ipv4()), Answer::silence);
  EXPECT_EQ(connect_from(bed.head(), bed.host(2).ipv4()), Answer::connected);
  EXPECT_EQ(host.shell("touch go").code, 0);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(host.files() / "root/said"); }));
  EXPECT_FALSE(open->wait_for_output("end", std::chrono::milliseconds(300)));
  bed.heal();
  EXPECT_TRUE(open->wait_for_output("end"));
  EXPECT_EQ(open->wait().code, 0);
  EXPECT_EQ(connect_from(host, bed.host(2).ipv6()), Answer::connected);
}

TEST_F(FaultsTest, ACutBetweenTwoHostsIsOnlyBetweenThem) {
  HostBed bed({.hosts = 3});
  bed.cut(bed.host(1), bed.host(2));
  EXPECT_EQ(connect_from(bed.host(1), bed.host(2).ipv4()), Answer::silence);
  EXPECT_EQ(connect_from(bed.host(2), bed.host(1).ipv6()), Answer::silence);
  EXPECT_EQ(connect_from(bed.host(1), bed.host(3).ipv4()), Answer::connected);
  EXPECT_EQ(connect_from(bed.head(), bed.host(1).ipv6()), Answer::connected);
  EXPECT_EQ(connect_from(bed.head(), bed.host(2).ipv4()), Answer::connected);
  bed.heal();
  EXPECT_EQ(connect_from(bed.host(1), bed.host(2).ipv4()), Answer::connected);
  bed.cut(bed.head(), bed.host(3));
  EXPECT_EQ(connect_from(bed.head(), bed.host(3).ipv4()), Answer::silence);
}

TEST_F(FaultsTest, ACrashTellsNobody) {
  HostBed bed({.hosts = 2, .ipv6 = false});
  Host& host = bed.host(1);
  const TemporaryDirectory directory;
  const auto file = directory.path() / "wire.pcap";
  const auto open = bed.head().start(ssh("h1", "echo begin; sleep 1000"));
  ASSERT_TRUE(open->wait_for_output("begin"));
  bed.capture(file);
  bed.crash(host);
  EXPECT_FALSE(host.is_up());
  EXPECT_TRUE(host.processes().empty());
  EXPECT_THROW(host.run({"true"}), std::runtime_error);
  EXPECT_THROW(bed.crash(host), std::runtime_error);
  EXPECT_EQ(connect_from(bed.host(2), host.ipv4()), Answer::silence);
  EXPECT_FALSE(open->wait_for_error("closed", std::chrono::milliseconds(200)));
  bed.end_capture();
  const auto goodbyes = run({"tcpdump", "-n", "-r", file.string(),
                             "src 10.77.0.1 and tcp[tcpflags] & (tcp-fin|tcp-rst) != 0"});
  EXPECT_EQ(goodbyes.code, 0) << goodbyes.err;
  EXPECT_EQ(goodbyes.out, "");
}

TEST_F(FaultsTest, AHostThatBootsHasItsRootAndItsKeyAndNothingElse) {
  HostBed bed({.hosts = 1});
  Host& host = bed.host(1);
  ASSERT_EQ(host.shell("for place in /root /tmp /run /home/hvduser /dev/shm /srv;"
                       "do touch $place/left; done; touch /etc/left")
                .code,
            0);
  bed.crash(host);
  bed.boot(host);
  EXPECT_TRUE(host.is_up());
  EXPECT_EQ(host.shell("ls -d /*/left /home/*/left /dev/shm/left 2>/dev/null").out, "/root/left\n");
  const auto status = bed.head().run(ssh("h1", "hostname"));
  EXPECT_EQ(status.out, "h1\n") << status.err;
  EXPECT_THROW(bed.boot(host), std::runtime_error);
}

TEST_F(FaultsTest, ProcessesOnAHostThatCrashesAreKilled) {
  HostBed bed({.hosts = 2});
  const auto process = bed.host(1).start({"bash", "-c", "echo up; sleep 1000"});
  ASSERT_TRUE(process->wait_for_output("up"));
  bed.crash(bed.host(1));
  bed.boot(bed.host(1));
  EXPECT_EQ(process->wait().signal, SIGKILL);
  EXPECT_EQ(connect_from(bed.head(), "h1"), Answer::connected);
}

TEST_F(FaultsTest, ACutOutlivesABoot) {
  HostBed bed({.hosts = 2});
  bed.cut_off(bed.host(1));
  bed.cut(bed.host(2), bed.head());
  bed.crash(bed.host(1));
  bed.crash(bed.host(2));
  bed.boot(bed.host(1));
  bed.boot(bed.host(2));
  EXPECT_EQ(connect_from(bed.head(), bed.host(1).ipv4()), Answer::silence);
  EXPECT_EQ(connect_from(bed.head(), bed.host(2).ipv4()), Answer::silence);
  bed.heal();
  EXPECT_EQ(connect_from(bed.head(), bed.host(1).ipv4()), Answer::connected);
  EXPECT_EQ(connect_from(bed.head(), bed.host(2).ipv4()), Answer::connected);
}

std::chrono::duration<double> time_of(Host& from, const std::string& script) {
  const auto begin = Clock::now();
  const auto status = from.run({"bash", "-c", "set -e; " + script});
  EXPECT_EQ(status.code, 0) << status.err;
  return Clock::now() - begin;
}

TEST_F(FaultsTest, PacketsToADelayedHostArriveLater) {
  HostBed bed({.hosts = 2});
  bed.shape(bed.host(1), {.delay = "150ms"});
  for (const auto& to : {bed.host(1).ipv4(), bed.host(1).ipv6()}) {
    // Connecting and the first words: each goes there once.
    const auto took = time_of(bed.host(2), "exec 3<>/dev/tcp/" + to + "/22; read -u 3 line");
    EXPECT_GE(took.count(), 0.15);
  }
  bed.unshape(bed.host(1));
  EXPECT_EQ(connect_from(bed.host(2), "h1"), Answer::connected);
}

TEST_F(FaultsTest, ALimitedHostSendsAndReceivesNoFaster) {
  HostBed bed({.hosts = 2});
  bed.shape(bed.host(1), {.rate = "8mbit"});
  // A megabyte is a second's worth; the bucket lets a little through at once.
  EXPECT_GE(time_of(bed.head(), "head -c 1000000 /dev/zero | ssh h1 'cat >/dev/null'").count(),
            0.7);
  EXPECT_GE(time_of(bed.head(), "ssh h1 'head -c 1000000 /dev/zero' >/dev/null").count(), 0.7);
  bed.shape(bed.host(1), {.rate = "1gbit", .delay = "1ms"});
  time_of(bed.head(), "head -c 1000000 /dev/zero | ssh h1 'cat >/dev/null'");
}

TEST_F(FaultsTest, PacketsAreLostBothWays) {
  HostBed bed({.hosts = 2});
  const auto sent_again = [](Host& host) {
    const auto text = host.shell("awk '/^Tcp: [0-9]/ { print $13 }' /proc/net/snmp").out;
    return parse_number<long>(trim(text)).value_or(-1);
  };
  // Little, so that what is sent again is not often lost again: TCP then waits twice as long.
  bed.shape(bed.host(1), {.loss = 0.05});
  for (int i = 0; i < 20 && (sent_again(bed.head()) <= 0 || sent_again(bed.host(1)) <= 0); ++i) {
    time_of(bed.head(),
            "head -c 300000 /dev/zero | ssh h1 'cat >/dev/null; head -c 300000 /dev/zero' "
            ">/dev/null");
  }
  EXPECT_GT(sent_again(bed.head()), 0);
  EXPECT_GT(sent_again(bed.host(1)), 0);
  bed.shape(bed.host(1), {.loss = 1});
  EXPECT_EQ(connect_from(bed.host(2), bed.host(1).ipv6()), Answer::silence);
  bed.unshape(bed.host(1));
  EXPECT_EQ(connect_from(bed.host(2), bed.host(1).ipv6()), Answer::connected);
}

TEST_F(FaultsTest, AShapeThatCannotBeIsAnErrorThatSaysWhy) {
  HostBed bed({.hosts = 1});
  const auto error_of = [&](const Shape& shape) -> std::string {
    try {
      bed.shape(bed.host(1), shape);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(error_of({.rate = "fast"}),
            "test bed: rate \"fast\" is no number with a unit such as kbit or gbit");
  EXPECT_EQ(error_of({.delay = "3"}),
            "test bed: delay \"3\" is no number with a unit such as us or s");
  EXPECT_EQ(error_of({.loss = 2}), "test bed: loss 2 is not between 0 and 1");
}

TEST_F(FaultsTest, FiltersThatATestSetsItselfStay) {
  HostBed bed({.hosts = 2});
  Host& host = bed.host(1);
  ASSERT_EQ(
      host.shell("iptables -A INPUT -p tcp --dport 22 -j REJECT --reject-with tcp-reset").code, 0);
  bed.cut(host, bed.host(2));
  bed.heal();
  EXPECT_EQ(connect_from(bed.head(), host.ipv4()), Answer::refused);
  EXPECT_EQ(connect_from(bed.head(), host.ipv6()), Answer::connected);
}

TEST_F(FaultsTest, ACaptureHoldsWhatCrossedTheBridge) {
  HostBed bed({.hosts = 2});
  const TemporaryDirectory directory;
  const auto file = directory.path() / "wire.pcap";
  bed.capture(file);
  EXPECT_EQ(connect_from(bed.host(2), bed.host(1).ipv4()), Answer::connected);
  bed.end_capture();
  EXPECT_NE(read_file(file).find("SSH-2.0-OpenSSH"), std::string::npos);
}

}  // namespace
}  // namespace hvd::test
