// From a host's name to a session with a checked host key.
#include <csignal>

#include "tests/driver/ssh/ssh_test.h"

namespace hvd::test {
namespace {

using SshConnection = BedTest;

TEST_F(SshConnection, AnAgentIsBroughtToEveryHostAndGreets) {
  HostBed bed({.hosts = 3});
  const auto status = launch(bed, {"h1", "h2", "h3"});
  EXPECT_EQ(status.code, 0) << status.out << status.err;
  for (int number = 1; number <= 3; ++number) {
    Host& host = bed.host(number);
    EXPECT_TRUE(holds(status.out, host.name() + " ready as " + host.name())) << status.out;
  }
  for (const char* const step : {"resolve", "connect", "host key", "authenticate", "start agent"}) {
    EXPECT_TRUE(holds(status.out, cat("h1 step ", step, "\n"))) << status.out;
  }
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(1)) && !runs_agent(bed.host(3)); }));
}

TEST_F(SshConnection, BothAddressesAreKnownAndIpv6StandsInBracketsOrNot) {
  HostBed bed({.hosts = 1});
  const auto four = launch(bed, {bed.host(1).ipv4()});
  EXPECT_TRUE(holds(four.out, cat("from ", bed.head().ipv4(), " to ", bed.host(1).ipv4(), "\n")))
      << four.out;
  const auto six = launch(bed, {"[" + bed.host(1).ipv6() + "]"});
  EXPECT_TRUE(holds(six.out, cat("from ", bed.head().ipv6(), " to ", bed.host(1).ipv6(), "\n")))
      << six.out;
  EXPECT_EQ(launch(bed, {bed.host(1).ipv6()}).code, 0);
}

TEST_F(SshConnection, ALinkLocalAddressIsReachedThroughItsInterface) {
  HostBed bed({.hosts = 1});
  const std::string address = std::string(trim(bash(
      bed.host(1), "ip -6 -o address show scope link | awk '{print $4}' | cut -d/ -f1 | head -1")));
  const std::string interface =
      std::string(trim(bash(bed.head(), "ip -6 route | awk '/^fd77::/ {print $3}' | head -1")));
  ASSERT_FALSE(address.empty());
  const auto status = launch(bed, {address + "%" + interface});
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshConnection, AHostWithOneKindOfAddressWillDo) {
  HostBed only_six({.hosts = 1, .ipv4 = false});
  EXPECT_EQ(launch(only_six, {"h1"}).code, 0);
  HostBed only_four({.hosts = 1, .ipv6 = false});
  EXPECT_EQ(launch(only_four, {"h1"}).code, 0);
}

TEST_F(SshConnection, AnAddressThatIsSilentDoesNotKeepTheNextOneWaiting) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1), "ip6tables -A INPUT -p tcp --dport 22 -j DROP || ip -6 address flush dev eth0");
  // Names with both addresses are tried in the order that the resolver gives, IPv6 first.
  const auto status = launch(bed, {"--connect-timeout", "60000", "h1"});
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshConnection, AnUnknownNameFailsWhereItIsResolved) {
  HostBed bed({.hosts = 1});
  const auto status = launch(bed, {"nowhere"});
  EXPECT_EQ(status.code, 1);
  EXPECT_TRUE(error_of(status, "nowhere").starts_with("resolve: look up nowhere: ")) << status.out;
}

TEST_F(SshConnection, ARefusedConnectionNamesAddressAndPort) {
  HostBed bed({.hosts = 1, .ipv6 = false});
  const auto status = launch(bed, {"h1#2222"});
  EXPECT_EQ(error_of(status, "h1#2222"),
            "connect: connect to h1 port 2222: 10.77.0.1: Connection refused");
}

TEST_F(SshConnection, SilenceEndsAtTheDeadline) {
  HostBed bed({.hosts = 1});
  bed.cut_off(bed.host(1));
  const auto status = launch(bed, {"--connect-timeout", "700", "h1"});
  const auto error = error_of(status, "h1");
  EXPECT_TRUE(error.starts_with("connect: connect to h1 port 22: ")) << error;
  EXPECT_TRUE(holds(error, "10.77.0.1: no answer")) << error;
  EXPECT_TRUE(holds(error, "gave up at --ssh-connect-timeout")) << error;
}

TEST_F(SshConnection, AServerThatIsNoSshServerIsReportedAsSuch) {
  HostBed bed({.hosts = 1, .ipv6 = false});
  const auto serve = [&](const std::string& port, const std::string& body) {
    return bed.host(1).start({"python3", "-uc",
                              cat("import socket,time\ns=socket.create_server(('',", port,
                                  "))\nprint('up')\nwhile 1:\n c,_=s.accept()\n ", body, "\n")});
  };
  const auto web = serve("80", "c.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n');c.close()");
  const auto closes = serve("81", "c.close()");
  const auto mute = serve("82", "globals().setdefault('kept',[]).append(c)");
  for (const auto& server : {web.get(), closes.get(), mute.get()}) {
    ASSERT_TRUE(server->wait_for_output("up"));
  }
  const auto status = launch(bed, {"--connect-timeout", "4000", "h1#80", "h1#81", "h1#82"});
  EXPECT_EQ(error_of(status, "h1#80"),
            "connect: connect to h1 port 80: 10.77.0.1: the server there is not an SSH server: it "
            "says \"HTTP/1.1 400 Bad Request\"");
  EXPECT_TRUE(error_of(status, "h1#81")
                  .starts_with("connect: connect to h1 port 81: 10.77.0.1: it closed the "
                               "connection at once"))
      << status.out;
  EXPECT_EQ(error_of(status, "h1#82"),
            "connect: connect to h1 port 82: 10.77.0.1: it accepted the connection but did not "
            "send an SSH banner (gave up at --ssh-connect-timeout)");
}

TEST_F(SshConnection, AnSshdThatIsTooBusyIsTriedAgain) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxStartups 1:100:1", "LoginGraceTime 120"}});
  // A connection that sends nothing takes the only place.
  const auto idler = bed.head().start(
      {"bash", "-c", "exec 3<>/dev/tcp/h1/22; read -u 3 line; echo up; exec sleep 1000"});
  ASSERT_TRUE(idler->wait_for_output("up"));
  auto command = launcher({"--connect-timeout", "60000", "--quit", "h1"});
  const auto job = bed.head().start(command);
  ASSERT_TRUE(job->wait_for_output("h1 step connect"));
  idler->signal(SIGKILL);
  const auto status = job->wait();
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshConnection, OneBadHostHidesNeitherTheOtherBadOnesNorTheGood) {
  HostBed bed({.hosts = 1});
  const auto status = launch(bed, {"nowhere", "h1", "h1#2222"});
  EXPECT_EQ(status.code, 1);
  EXPECT_TRUE(holds(status.out, "h1 ready")) << status.out;
  EXPECT_TRUE(holds(error_of(status, "nowhere"), "resolve: ")) << status.out;
  EXPECT_TRUE(holds(error_of(status, "h1#2222"), "refused")) << status.out;
}

TEST_F(SshConnection, MoreHostsThanThreadsTakeTurns) {
  HostBed bed({.hosts = 6});
  const auto status = launch(bed, {"--parallel", "2", "h1", "h2", "h3", "h4", "h5", "h6"});
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshConnection, AnUnknownHostIsNotedAndAcceptedNextTime) {
  HostBed bed({.hosts = 2, .head_knows_hosts = false});
  const auto first = launch(bed, {"h1", "h2", bed.host(1).ipv4()});
  EXPECT_EQ(first.code, 0) << first.out;
  const std::string known = read_file(bed.head().files() / "root/.ssh/known_hosts");
  EXPECT_EQ(split(known, '\n').size(), 4U) << known;  // three lines and the end of the last
  const auto second = launch(bed, {"--strict", "h1", "h2", bed.host(1).ipv4()});
  EXPECT_EQ(second.code, 0) << second.out;
  EXPECT_EQ(read_file(bed.head().files() / "root/.ssh/known_hosts"), known);
  EXPECT_EQ(bed.head().run(ssh("h1", "true")).code, 0);  // ssh reads it, too
}

TEST_F(SshConnection, AnUnknownHostIsRefusedWhereThatIsWanted) {
  HostBed bed({.hosts = 1, .head_knows_hosts = false});
  const auto error = error_of(launch(bed, {"--strict", "h1"}), "h1");
  EXPECT_TRUE(error.starts_with("host key: the host is unknown")) << error;
  EXPECT_TRUE(holds(error, "/root/.ssh/known_hosts")) << error;
  EXPECT_TRUE(holds(error, "SHA256:")) << error;
}

TEST_F(SshConnection, AChangedHostKeyNamesBothKeysThePlaceAndTheRemedy) {
  HostBed bed({.hosts = 1});
  bash(bed.head(),
       "ssh-keygen -q -t ed25519 -N '' -f other && echo '# mine' >.ssh/known_hosts && "
       "echo h1 $(cut -d' ' -f1,2 other.pub) >>.ssh/known_hosts");
  const auto print_of = [&](const std::string& file) {
    return std::string(split(bash(bed.head(), "ssh-keygen -lf " + file), ' ').at(1));
  };
  const auto old_key = print_of("other.pub");
  bash(bed.head(), "ssh-keyscan -t ed25519 h1 2>/dev/null | cut -d' ' -f2- >now.pub");
  const auto error = error_of(launch(bed, {"h1"}), "h1");
  EXPECT_TRUE(error.starts_with("host key: the host showed another key than last time")) << error;
  EXPECT_TRUE(holds(error, print_of("now.pub"))) << error;
  EXPECT_TRUE(holds(error, old_key)) << error;
  EXPECT_TRUE(holds(error, "/root/.ssh/known_hosts:2 ")) << error;
  const auto remedy = error.find("ssh-keygen -f ");
  ASSERT_NE(remedy, std::string::npos) << error;
  bash(bed.head(), error.substr(remedy));
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
}

TEST_F(SshConnection, WithoutTheCheckAChangedKeyPassesAndNothingIsWritten) {
  HostBed bed({.hosts = 1});
  bash(bed.head(),
       "ssh-keygen -q -t ed25519 -N '' -f other && "
       "echo h1 $(cut -d' ' -f1,2 other.pub) >.ssh/known_hosts");
  const auto before = read_file(bed.head().files() / "root/.ssh/known_hosts");
  EXPECT_EQ(launch(bed, {"--off", "h1", bed.host(1).ipv4()}).code, 0);
  EXPECT_EQ(read_file(bed.head().files() / "root/.ssh/known_hosts"), before);
}

TEST_F(SshConnection, OfAHostWithSeveralKeysTheKnownOneIsAskedFor) {
  HostBed bed({.hosts = 1});
  bash(bed.host(1),
       "ssh-keygen -q -t ecdsa -N '' -f /etc/ssh/other && "
       "echo HostKey /etc/ssh/other >>/etc/ssh/sshd_config && "
       "kill -HUP $(cat /run/sshd.pid 2>/dev/null || pidof -s sshd) && "
       "until ssh-keyscan -t ecdsa 127.0.0.1 2>/dev/null | grep -q ecdsa; do "
       "sleep 0.01; done");
  bash(bed.head(), "ssh-keyscan -t ecdsa h1 2>/dev/null >.ssh/known_hosts");
  const auto status = launch(bed, {"--strict", "h1"});
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshConnection, TheConfigurationGivesNameUserPortAndKnownHosts) {
  HostBed bed({.hosts = 2, .sshd_settings = {"Port 22", "Port 2222"}, .head_knows_hosts = false});
  bash(bed.head(),
       "cat >.ssh/config <<'E'\n"
       "Host nick\n  HostName h2\n  Port 2222\n  User hvduser\n"
       "  UserKnownHostsFile ~/mine\n"
       "Host *\n  User root\n  HashKnownHosts no\nE");
  const auto status = launch(bed, {"--run", "id -un", "nick"});
  EXPECT_TRUE(holds(status.out, "nick ready as h2")) << status.out;
  EXPECT_TRUE(holds(status.out, "nick printed 8\n")) << status.out;  // "hvduser" and a line end
  EXPECT_TRUE(read_file(bed.head().files() / "root/mine").starts_with("[h2]:2222 ssh-ed25519 "));
  // The command line has precedence.
  const auto said = launch(bed, {"--run", "id -un", "root@nick#22"});
  EXPECT_TRUE(holds(said.out, "root@nick#22 printed 5\n")) << said.out;
}

TEST_F(SshConnection, TheConfigurationMayChangeTheListsOfAlgorithms) {
  HostBed bed({.hosts = 1});
  for (const char* const line :
       {"KexAlgorithms +diffie-hellman-group14-sha1", "HostKeyAlgorithms +ssh-rsa",
        "HostKeyAlgorithms ^ssh-ed25519", "PubkeyAcceptedAlgorithms +ssh-rsa",
        "Ciphers ^aes256-ctr,no-such-cipher", "Ciphers -aes*,no-such-cipher", "MACs -hmac-sha1"}) {
    bash(bed.head(), cat("echo '", line, "' >.ssh/config"));
    const auto status = launch(bed, {"h1"});
    EXPECT_EQ(status.code, 0) << line << ": " << status.out;
  }
  bash(bed.head(), "echo 'Ciphers -*' >.ssh/config");
  EXPECT_TRUE(holds(error_of(launch(bed, {"h1"}), "h1"), "Ciphers -* cannot be used"));
}

TEST_F(SshConnection, ACommandOfTheConfigurationMayDecideAndMustEnd) {
  HostBed bed({.hosts = 1});
  bash(bed.head(),
       "printf 'Match exec \"test %%n = gpu1\"\n  HostName h1\n"
       "Match originalhost slow exec \"sleep 1000000\"\n  HostName h1\n' >.ssh/config");
  const auto status = launch(bed, {"gpu1", "gpu2"});
  EXPECT_TRUE(holds(status.out, "gpu1 ready as h1")) << status.out;
  EXPECT_TRUE(holds(error_of(status, "gpu2"), "resolve: look up gpu2")) << status.out;

  const auto late = launch(bed, {"--connect-timeout", "500", "slow"});
  EXPECT_TRUE(error_of(late, "slow")
                  .starts_with("resolve: /root/.ssh/config:3: Match exec \"sleep 1000000\": "))
      << late.out;
  for (const auto& seen : bed.head().processes()) {
    EXPECT_FALSE(holds(seen.command_line, "sleep 1000000")) << seen.command_line;
  }
}

TEST_F(SshConnection, AKeyThatIsKnownWithoutThePortWillDo) {
  HostBed bed({.hosts = 2, .sshd_settings = {"Port 22", "Port 2222"}});
  EXPECT_EQ(launch(bed, {"--strict", "h1#2222"}).code, 0);
  // Another key without the port is no reason to refuse, and none to accept.
  bash(bed.head(), "sed -i 's/^h2 /h1 /' .ssh/known_hosts && sed -i 1d .ssh/known_hosts");
  EXPECT_TRUE(holds(error_of(launch(bed, {"--strict", "h1#2222"}), "h1#2222"), "is unknown"));
  EXPECT_EQ(launch(bed, {"h1#2222"}).code, 0);
  bash(bed.head(), "ssh-keygen -F '[h1]:2222'");
}

TEST_F(SshConnection, HashKnownHostsHidesTheNames) {
  HostBed bed({.hosts = 1, .head_knows_hosts = false});
  bash(bed.head(), "echo 'HashKnownHosts yes' >.ssh/config");
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
  EXPECT_TRUE(read_file(bed.head().files() / "root/.ssh/known_hosts").starts_with("|1|"));
  EXPECT_EQ(launch(bed, {"--strict", "h1"}).code, 0);
  EXPECT_EQ(bed.head().run(ssh("h1", "true")).code, 0);
}

TEST_F(SshConnection, ACertificateAuthorityOfHostsIsSaidToHaveNoEffect) {
  HostBed bed({.hosts = 2, .head_knows_hosts = false});
  bash(bed.head(),
       "ssh-keygen -q -t ed25519 -N '' -f ca && echo \"@cert-authority h* $(cat ca.pub)\" "
       ">.ssh/known_hosts");
  const auto strict = error_of(launch(bed, {"--strict", "h1"}), "h1");
  EXPECT_TRUE(holds(strict, "(@cert-authority, /root/.ssh/known_hosts:1, is not supported)"))
      << strict;
  const auto status = launch(bed, {"h1", "h2"});
  EXPECT_EQ(status.code, 0) << status.out;
  const auto warning = status.out.find(
      " warning /root/.ssh/known_hosts:1: @cert-authority is not supported; the keys of new hosts "
      "are accepted without it\n");
  ASSERT_NE(warning, std::string::npos) << status.out;
  EXPECT_EQ(status.out.find(" warning ", warning + 1), std::string::npos) << status.out;
}

// As useradd makes users, and their umask 002 the file.
TEST_F(SshConnection, AGroupWithoutOtherMembersMayWriteTheConfiguration) {
  HostBed bed({.hosts = 1});
  const auto users = [&](int group_of_other, const std::string& group) {
    bash(bed.head(), cat("printf 'root:x:0:0::/root:/bin/bash\\nother:x:77:", group_of_other,
                         "::/:/bin/sh\\n' >users; printf '", group, "\\nother:x:77:\\n' >groups"));
  };
  users(77, "root:x:0:");
  // The head has the files of this machine, which stay as they are.
  bash(bed.head(),
       "mount --bind users /etc/passwd && mount --bind groups /etc/group && "
       "printf 'Host x1\n  HostName h1\n' >.ssh/config && chmod 664 .ssh/config");
  const auto refused = [&] {
    return holds(error_of(launch(bed, {"x1"}), "x1"), "can be written by others than its owner");
  };
  EXPECT_EQ(launch(bed, {"x1"}).code, 0);
  users(77, "root:x:0:root");
  EXPECT_EQ(launch(bed, {"x1"}).code, 0);
  users(77, "root:x:0:root,other");
  EXPECT_TRUE(refused());
  users(0, "root:x:0:");
  EXPECT_TRUE(refused());
  users(77, "root:x:0:");
  bash(bed.head(), "chgrp 77 .ssh/config");
  EXPECT_TRUE(refused());
}

TEST_F(SshConnection, AMistakeInTheConfigurationNamesFileAndLine) {
  HostBed bed({.hosts = 1});
  bash(bed.head(), "printf 'Host h1\\n  Port high\\n' >other");
  EXPECT_TRUE(holds(error_of(launch(bed, {"-F", "/root/other", "h1"}), "h1"), "/root/other:2: "));
  EXPECT_TRUE(holds(error_of(launch(bed, {"-F", "/root/none", "h1"}), "h1"), "/root/none"));
  bash(bed.head(), "mv other .ssh/config");
  EXPECT_TRUE(holds(error_of(launch(bed, {"h1"}), "h1"), "/root/.ssh/config:2: "));
  EXPECT_EQ(launch(bed, {"-F", "none", "h1"}).code, 0);
}

TEST_F(SshConnection, AJumpHostIsPassedAndNothingOfItStays) {
  HostBed bed({.hosts = 2});
  bed.cut(bed.head(), bed.host(2));
  bash(bed.head(), "printf 'Host h2\\n  ProxyJump h1\\n' >.ssh/config");
  const auto job = bed.head().start(launcher({"--run", "head -c 3000000 /dev/zero", "h2"}));
  ASSERT_TRUE(job->wait_for_output("h2 printed 3000000")) << job->out();
  EXPECT_TRUE(holds(job->out(), " from  to \n")) << job->out();
  EXPECT_TRUE(runs_agent(bed.host(2)));
  job->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !runs_agent(bed.host(2)); }));
  EXPECT_TRUE(eventually([&] {
    for (const auto& seen : bed.head().processes()) {
      if (holds(seen.command_line, "ssh -o")) return false;
    }
    return true;
  }));
  EXPECT_EQ(launch(bed, {"h2"}).code, 0);
}

// A connection that sends nothing takes the only place of the sshd on h1.
class SshBehindABusySshd : public BedTest {
 protected:
  // `proxy` leads from the head to a host by way of h1, and is tried again until there is a place.
  void expect_reached_in_the_end(const std::string& target, const std::string& proxy) {
    HostBed bed({.hosts = 2, .sshd_settings = {"MaxStartups 1:100:1", "LoginGraceTime 120"}});
    const auto idler = bed.head().start(
        {"bash", "-c", "exec 3<>/dev/tcp/h1/22; read -u 3 line; echo up; exec sleep 1000"});
    ASSERT_TRUE(idler->wait_for_output("up"));
    bash(bed.head(), cat("touch tries; cat >.ssh/config <<'E'\nHost ", target,
                         "\n  ProxyCommand bash -c 'echo >>/root/tries; ", proxy, "'\nE"));
    const auto job = bed.head().start(launcher({"--connect-timeout", "60000", "--quit", target}));
    const auto tries = bed.head().files() / "root/tries";
    ASSERT_TRUE(eventually([&] { return std::filesystem::file_size(tries) > 1; })) << job->out();
    idler->signal(SIGKILL);
    const auto status = job->wait();
    EXPECT_EQ(status.code, 0) << status.out;
  }
};

TEST_F(SshBehindABusySshd, AJumpHostIsTriedAgain) {
  expect_reached_in_the_end("h2", "exec ssh -o BatchMode=yes -W %h:%p h1");
}

TEST_F(SshBehindABusySshd, AHostBehindAProxyIsTriedAgain) {
  expect_reached_in_the_end("h1", "exec 3<>/dev/tcp/h1/22; cat <&3 & exec cat >&3");
}

TEST_F(SshConnection, AProxyThatFailsIsQuoted) {
  HostBed bed({.hosts = 1});
  bash(bed.head(),
       "cat >.ssh/config <<'E'\nHost h1\n  ProxyCommand sh -c 'echo >>/root/tries; "
       "echo no way to %h %p >&2; exit 3'\nHost h2\n  ProxyJump nowhere\nE");
  const auto status = launch(bed, {"h1", "h2"});
  EXPECT_TRUE(holds(error_of(status, "h1"), "the proxy command reports: no way to h1 22"))
      << status.out;
  EXPECT_EQ(read_file(bed.head().files() / "root/tries"), "\n") << "it was tried again";
  EXPECT_TRUE(error_of(status, "h2").starts_with("connect: ")) << status.out;
  EXPECT_TRUE(holds(error_of(status, "h2"), "nowhere")) << status.out;
}

}  // namespace
}  // namespace hvd::test
