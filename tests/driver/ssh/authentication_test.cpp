// The keys that are tried, and the error messages when the host accepts none of them.
#include "tests/driver/ssh/ssh_test.h"

namespace hvd::test {
namespace {

class SshAuthentication : public BedTest {
 protected:
  // A key in the head's /root that h1 does not know.
  static std::string make_key(HostBed& bed, const std::string& name,
                              const std::string& type = "ed25519",
                              const std::string& passphrase = {}) {
    bash(bed.head(), cat("ssh-keygen -q -t ", type, " -N '", passphrase, "' -f ", name));
    return name;
  }
  static void allow(HostBed& bed, const std::string& name) {
    const std::string key = read_file(bed.head().files() / "root" / (name + ".pub"));
    bash(bed.host(1), "echo " + shell_quote(trim(key)) + " >>/root/.ssh/authorized_keys");
  }

  // An SSH agent on the head, which is there once it names its SSH_AUTH_SOCK.
  static std::unique_ptr<Process> start_agent(HostBed& bed) {
    return bed.head().start({"ssh-agent", "-D", "-a", "/root/socket"});
  }
  // Its passphrase, if it has one, is "secret".
  static void add_to_agent(HostBed& bed, const std::string& key) {
    bash(bed.head(),
         cat("printf '#!/bin/sh\\necho secret\\n' >ask && chmod +x ask && "
             "SSH_AUTH_SOCK=/root/socket SSH_ASKPASS=/root/ask SSH_ASKPASS_REQUIRE=force "
             "ssh-add -q ",
             key, " </dev/null"));
  }
  const ProcessOptions kWithAgent{.environment = {{"SSH_AUTH_SOCK", "/root/socket"}}};
};

TEST_F(SshAuthentication, EveryKindOfKeyIsAccepted) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  for (const std::string type : {"ed25519", "ecdsa", "rsa"}) {
    const std::string name = ".ssh/id_" + type;
    make_key(bed, name, type);
    allow(bed, name);
    const auto status = launch(bed, {"h1"});
    EXPECT_EQ(status.code, 0) << type << ": " << status.out;
    bash(bed.head(), "rm .ssh/id_*");
  }
}

TEST_F(SshAuthentication, AnIdentityFileThatIsNamedIsTriedFirst) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxAuthTries 1"}, .head_may_log_in = false});
  make_key(bed, ".ssh/id_ed25519");
  make_key(bed, "good");
  allow(bed, "good");
  EXPECT_EQ(launch(bed, {"-i", "/root/good", "h1"}).code, 0);
}

TEST_F(SshAuthentication, AWrongKeyIsNamedAndWhatTheHostWants) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  make_key(bed, ".ssh/id_rsa", "rsa");
  make_key(bed, "bad");
  const auto error = error_of(launch(bed, {"-i", "/root/bad", "h1"}), "h1");
  EXPECT_EQ(error,
            "authenticate: user root is refused with /root/bad, /root/.ssh/id_rsa; the host "
            "accepts public keys");
}

TEST_F(SshAuthentication, WithoutAnyKeyThatIsSaid) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  EXPECT_EQ(error_of(launch(bed, {"h1"}), "h1"),
            "authenticate: no key could be offered for user root; the host accepts public keys");
}

TEST_F(SshAuthentication, KerberosIsTriedWhereTheConfigurationSaysSo) {
  HostBed bed({.hosts = 1,
               .sshd_settings = {"GSSAPIAuthentication yes", "HostbasedAuthentication yes"},
               .head_may_log_in = false});
  bash(bed.head(), "echo 'GSSAPIAuthentication no' >.ssh/config");
  const auto without = error_of(launch(bed, {"h1"}), "h1");
  EXPECT_TRUE(holds(without,
                    "Kerberos (GSSAPIAuthentication yes in the configuration of SSH has "
                    "hvdrun try it)"))
      << without;
  EXPECT_TRUE(holds(without, "trusted hosts (HostbasedAuthentication, which libssh cannot do)"))
      << without;

  bash(bed.head(), "echo 'GSSAPIAuthentication yes' >.ssh/config");
  const auto tried = error_of(launch(bed, {"h1"}), "h1");
  EXPECT_TRUE(holds(tried, "Kerberos: no ticket for the host")) << tried;

  // The session goes on, and a key still works.
  make_key(bed, ".ssh/id_ed25519");
  allow(bed, ".ssh/id_ed25519");
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
}

TEST_F(SshAuthentication, AKeyWithAPassphraseIsPassedOverAndNamed) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  make_key(bed, ".ssh/id_ed25519", "ed25519", "secret");
  allow(bed, ".ssh/id_ed25519");
  const auto status = launch(bed, {"h1"});
  EXPECT_EQ(error_of(status, "h1"),
            "authenticate: no key could be offered for user root; /root/.ssh/id_ed25519 is "
            "protected by a passphrase: ssh-add it; the host accepts public keys");
  make_key(bed, ".ssh/id_rsa", "rsa");
  allow(bed, ".ssh/id_rsa");
  EXPECT_EQ(launch(bed, {"h1"}).code, 0);
}

TEST_F(SshAuthentication, AnOldEncryptedKeyAsksNobodyEither) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  bash(bed.head(), "ssh-keygen -q -t rsa -m PEM -N secret -f old");
  const auto status = launch(bed, {"-i", "/root/old", "h1"});
  EXPECT_TRUE(holds(error_of(status, "h1"), "/root/old is protected by a passphrase"))
      << status.out;
}

TEST_F(SshAuthentication, TheSshAgentHasTheKey) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  make_key(bed, "locked", "ed25519", "secret");
  allow(bed, "locked");
  const auto agent = start_agent(bed);
  ASSERT_TRUE(agent->wait_for_output("SSH_AUTH_SOCK"));
  auto command = launcher({"--quit", "h1"});
  const auto empty = bed.head().run(command, kWithAgent);
  EXPECT_TRUE(holds(error_of(empty, "h1"), "the SSH agent at /root/socket holds no key"))
      << empty.out;
  add_to_agent(bed, "locked");
  const auto status = bed.head().run(command, kWithAgent);
  EXPECT_EQ(status.code, 0) << status.out;
  // Also if the configuration names the key, whose file has a passphrase.
  bash(bed.head(),
       "printf 'Host h1\\n  IdentityAgent ~/socket\\n  IdentitiesOnly yes\\n"
       "  IdentityFile ~/locked\\n' >.ssh/config");
  EXPECT_EQ(bed.head().run(command).code, 0);
}

// sshd ends a session after six keys that it does not know.
TEST_F(SshAuthentication, OfAnAgentsManyKeysTheNamedOneComesFirst) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  make_key(bed, "locked", "ed25519", "secret");
  allow(bed, "locked");
  const auto agent = start_agent(bed);
  ASSERT_TRUE(agent->wait_for_output("SSH_AUTH_SOCK"));
  for (int i = 1; i <= 7; ++i) add_to_agent(bed, make_key(bed, cat("other", i)));
  add_to_agent(bed, "locked");
  const auto fails = [&](const std::vector<std::string>& words) {
    auto command = launcher({"--quit", "h1"});
    command.insert(command.end(), words.begin(), words.end());
    return error_of(bed.head().run(command, kWithAgent), "h1");
  };

  EXPECT_TRUE(holds(fails({}), "Too many authentication failures"));
  EXPECT_EQ(fails({"-i", "/root/locked"}), "");
  EXPECT_EQ(fails({"-i", "/root/locked.pub"}), "");
  for (const char* const file : {"locked", "locked.pub"}) {
    for (const char* const only : {"yes", "no"}) {
      bash(bed.head(),
           cat("printf 'IdentitiesOnly ", only, "\nIdentityFile ~/", file, "\n' >.ssh/config"));
      EXPECT_EQ(fails({}), "") << file << " " << only;
    }
  }
  bash(bed.head(), "mv locked away");  // its public half is left
  EXPECT_EQ(fails({}), "");
  EXPECT_EQ(fails({"-i", "/root/locked"}), "");
}

TEST_F(SshAuthentication, WithIdentitiesOnlyNoOtherKeyOfTheAgentIsOffered) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  make_key(bed, "known");
  allow(bed, "known");
  make_key(bed, "unknown");
  const auto agent = start_agent(bed);
  ASSERT_TRUE(agent->wait_for_output("SSH_AUTH_SOCK"));
  add_to_agent(bed, "known");
  const auto command = launcher({"--quit", "h1"});
  EXPECT_EQ(bed.head().run(command, kWithAgent).code, 0);
  for (const char* const file : {"unknown", "unknown.pub"}) {
    bash(bed.head(), cat("printf 'IdentitiesOnly yes\nIdentityFile ~/", file, "\n' >.ssh/config"));
    const auto status = bed.head().run(command, kWithAgent);
    EXPECT_TRUE(holds(error_of(status, "h1"),
                      "the SSH agent at /root/socket holds no other key to offer (IdentitiesOnly)"))
        << status.out;
    EXPECT_FALSE(holds(status.out, "chmod")) << status.out;
  }
  const auto status = bed.head().run(command, kWithAgent);
  EXPECT_TRUE(holds(status.out, "/root/unknown.pub is a public key, whose private key is not in"))
      << status.out;
}

// sshd counts a key twice that is offered from its file and by the agent.
TEST_F(SshAuthentication, AKeyIsOfferedOnce) {
  for (const char* const only : {"yes", "no"}) {
    HostBed bed({.hosts = 1, .sshd_settings = {"MaxAuthTries 2"}, .head_may_log_in = false});
    make_key(bed, "bad");
    make_key(bed, "good");
    allow(bed, "good");
    const auto agent = start_agent(bed);
    ASSERT_TRUE(agent->wait_for_output("SSH_AUTH_SOCK"));
    add_to_agent(bed, "bad");
    bash(bed.head(), cat("printf 'IdentitiesOnly ", only,
                         "\nIdentityFile ~/bad\nIdentityFile ~/good\n' >.ssh/config"));
    const auto status = bed.head().run(launcher({"--quit", "h1"}), kWithAgent);
    EXPECT_EQ(status.code, 0) << only << ": " << status.out;
  }
}

TEST_F(SshAuthentication, AnAgentsCertificateIsAnIdentityToo) {
  HostBed bed({.hosts = 1,
               .sshd_settings = {"TrustedUserCAKeys /etc/ssh/ca.pub"},
               .head_may_log_in = false});
  make_key(bed, "ca");
  make_key(bed, "locked", "ed25519", "secret");
  bash(bed.head(), "ssh-keygen -q -s ca -I me -n root locked.pub");
  const std::string ca = read_file(bed.head().files() / "root/ca.pub");
  bash(bed.host(1), "echo " + shell_quote(trim(ca)) + " >/etc/ssh/ca.pub");
  const auto agent = start_agent(bed);
  ASSERT_TRUE(agent->wait_for_output("SSH_AUTH_SOCK"));
  add_to_agent(bed, "locked");
  bash(bed.head(), "printf 'IdentitiesOnly yes\nIdentityFile ~/locked\n' >.ssh/config");
  const auto status = bed.head().run(launcher({"--quit", "h1"}), kWithAgent);
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshAuthentication, AnSshAgentThatNeverAnswersIsLeftAtTheDeadline) {
  HostBed bed({.hosts = 1, .head_may_log_in = false});
  const auto agent = bed.head().start(
      {"python3", "-uc",
       "import socket\ns=socket.socket(socket.AF_UNIX)\ns.bind('/root/socket')\ns.listen()\n"
       "print('up')\nc=s.accept()\nwhile 1: s.accept()"});
  ASSERT_TRUE(agent->wait_for_output("up"));
  auto command = launcher({"--quit", "--step-timeout", "700", "h1"});
  const auto status = bed.head().run(command, {.environment = {{"SSH_AUTH_SOCK", "/root/socket"}}});
  EXPECT_EQ(error_of(status, "h1"),
            "authenticate: authentication as user root did not end in time");
}

TEST_F(SshAuthentication, AnIdentityFileThatCannotBeUsedIsAnErrorThatNamesIt) {
  HostBed bed({.hosts = 1});
  bash(bed.head(), "echo rubbish >rubbish && chmod 600 rubbish");
  EXPECT_EQ(
      error_of(launch(bed, {"-i", "/root/none", "h1"}), "h1"),
      "authenticate: the identity file cannot be used: open key file /root/none: No such file or "
      "directory");
  EXPECT_TRUE(error_of(launch(bed, {"-i", "/root/rubbish", "h1"}), "h1")
                  .starts_with("authenticate: the identity file cannot be used: /root/rubbish: not "
                               "a private key"));
  bash(bed.head(), "mv .ssh/id_ed25519 theirs && chown 5077 theirs");
  EXPECT_TRUE(holds(error_of(launch(bed, {"-i", "/root/theirs", "h1"}), "h1"),
                    "key file /root/theirs belongs to user"));
  bash(bed.head(), "chown root theirs && chmod 640 theirs");
  EXPECT_TRUE(holds(error_of(launch(bed, {"-i", "/root/theirs", "h1"}), "h1"),
                    "run: chmod 600 /root/theirs"));
  bash(bed.head(), "chmod 600 theirs");
  EXPECT_EQ(launch(bed, {"-i", "/root/theirs", "h1"}).code, 0);
}

TEST_F(SshAuthentication, ACertificateBesideItsKeyIsUsed) {
  HostBed bed({.hosts = 1,
               .sshd_settings = {"TrustedUserCAKeys /etc/ssh/ca.pub"},
               .head_may_log_in = false});
  make_key(bed, "ca");
  make_key(bed, ".ssh/id_ed25519");
  EXPECT_NE(launch(bed, {"h1"}).code, 0);
  bash(bed.head(), "ssh-keygen -q -s ca -I me -n root .ssh/id_ed25519.pub");
  const std::string ca = read_file(bed.head().files() / "root/ca.pub");
  bash(bed.host(1), "echo " + shell_quote(trim(ca)) + " >/etc/ssh/ca.pub");
  const auto status = launch(bed, {"h1"});
  EXPECT_EQ(status.code, 0) << status.out;
}

TEST_F(SshAuthentication, AnUnknownUserIsRefused) {
  HostBed bed({.hosts = 1});
  const auto status = launch(bed, {"nobody-at-all@h1"});
  EXPECT_TRUE(holds(error_of(status, "nobody-at-all@h1"), "authenticate: user nobody-at-all"))
      << status.out;
}

TEST_F(SshAuthentication, TooManyKeysEndWithTheHostsMessage) {
  HostBed bed({.hosts = 1, .sshd_settings = {"MaxAuthTries 2"}, .head_may_log_in = false});
  std::vector<std::string> words{"h1"};
  for (const char* const name : {"one", "two", "three"}) {
    make_key(bed, name);
    words.insert(words.begin(), {"-i", cat("/root/", name)});
  }
  const auto error = error_of(launch(bed, words), "h1");
  EXPECT_TRUE(error.starts_with("authenticate: user root is refused with ")) << error;
  EXPECT_TRUE(holds(error, "Too many authentication failures")) << error;
}

}  // namespace
}  // namespace hvd::test
