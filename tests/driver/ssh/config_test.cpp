#include "driver/ssh/config.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::driver::ssh {
namespace {

HostConfig read(const std::string& text, const std::string& host = "node1",
                const std::string& user = {}) {
  HostConfig config;
  const Status status = apply_config_text(
      text, "config", "/none", {.host = host, .user = user, .local_user = "me", .home = "/home/me"},
      config);
  EXPECT_TRUE(status.ok()) << status.message();
  return config;
}

TEST(SshConfig, TheFirstValueFoundWins) {
  const auto config =
      read("User first\nHost node*\n  User second\n  Port 2222\n  port 23\nHost *\n  Port 24\n");
  EXPECT_EQ(config.user, "first");
  EXPECT_EQ(config.port, 2222);
}

TEST(SshConfig, PatternsMatchAsSshMatchesThem) {
  EXPECT_TRUE(matches_pattern("node12", "node??"));
  EXPECT_FALSE(matches_pattern("node1", "node??"));
  EXPECT_TRUE(matches_pattern("a.b.c", "*.c"));
  EXPECT_TRUE(matches_pattern("NODE", "node"));
  EXPECT_TRUE(matches_pattern("aXbXc", "a*b*c"));
  EXPECT_FALSE(matches_pattern("ab", "a*b*c"));
  EXPECT_TRUE(matches_pattern("", "*"));
  EXPECT_EQ(read("Host * !node1\n  Port 1\nHost !other node1\n  Port 2\n").port, 2);
}

TEST(SshConfig, KeywordsTakeBlanksEqualSignsAndQuotes) {
  const auto config = read(
      "  IdentityFile=~/a\nidentityfile = \"/x y/b\"\n\tIDENTITYFILE ~/c # why\n# IdentityFile "
      "d\n");
  EXPECT_EQ(config.identity_files, (std::vector<std::string>{"~/a", "/x y/b", "~/c"}));
}

TEST(SshConfig, AProxyCommandIsTheWholeRestOfItsLine) {
  EXPECT_EQ(read("ProxyCommand ssh -W %h:%p \"a b\" 2>/dev/null\n").proxy_command,
            "ssh -W %h:%p \"a b\" 2>/dev/null");
  const auto jump = read("ProxyJump a,b\nProxyCommand nc\n");
  EXPECT_EQ(jump.proxy_jump, "a,b");
  EXPECT_EQ(jump.proxy_command, "");
}

TEST(SshConfig, MatchKnowsHostUserAndAll) {
  const std::string text =
      "Match host node* user root\n  Port 1\nMatch !user root\n  Port 2\nMatch all\n  Port 3\n";
  EXPECT_EQ(read(text, "node1", "root").port, 1);
  EXPECT_EQ(read(text, "node1").port, 2);  // as "me"
  EXPECT_EQ(read("HostName real\nMatch host real\n  Port 4\n").port, 4);
  EXPECT_EQ(read("HostName real\nMatch originalhost node1\n  Port 5\n").port, 5);
  EXPECT_EQ(read("Match localuser you,me\n  Port 6\n").port, 6);
  EXPECT_EQ(read("Match canonical\n  Port 7\n").port, 0);
  EXPECT_EQ(read("Match !canonical\n  Port 8\n").port, 8);
}

TEST(SshConfig, ACommandRunsWhereTheOtherCriteriaHold) {
  std::vector<std::string> commands;
  const ConfigQuery query{.host = "nick",
                          .user = "you",
                          .local_user = "me",
                          .home = "/home/me",
                          .run_command = [&](const std::string& command) -> Result<bool> {
                            commands.push_back(command);
                            if (command == "slow") return Status(Code::deadline_exceeded, "late");
                            return command.starts_with("good");
                          }};
  HostConfig config;
  const auto apply = [&](const std::string& text) {
    return apply_config_text(text, "config", "/none", query, config).message();
  };
  EXPECT_EQ(apply("HostName real\nMatch exec \"good %h %n %r %u %p\"\n  User first\n"
                  "Match exec bad\n  Port 1\nMatch !exec bad user you\n  Port 2\n"
                  "Match user me exec good\n  Compression yes\n"),
            "");
  EXPECT_EQ(config.user, "first");
  EXPECT_EQ(config.port, 2);
  EXPECT_EQ(config.compression, "");
  EXPECT_EQ(commands, (std::vector<std::string>{"good real nick you me 22", "bad", "bad"}));
  EXPECT_EQ(apply("\nMatch exec slow\n"), "config:2: Match exec \"slow\": late");
}

TEST(SshConfig, SettingsWithoutEffectAreNamed) {
  std::vector<std::string> warnings;
  const ConfigQuery query{.host = "node1",
                          .user = {},
                          .local_user = "me",
                          .home = "/home/me",
                          .warn = [&](const std::string& text) { warnings.push_back(text); }};
  HostConfig config;
  const Status status = apply_config_text(
      "KnownHostsCommand /bin/keys %H\nVerifyHostKeyDNS no\nRevokedHostKeys none\n"
      "ControlMaster auto\nMatch final\n  Port 8\nMatch host other final\n"
      "Host other\n  Tag x\nHost node*\n  Tag y\n",
      "config", "/none", query, config);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(config.port, 0);
  EXPECT_EQ(warnings, (std::vector<std::string>{
                          "config:1: KnownHostsCommand is not supported and has no effect",
                          "config:5: Match final is not supported: the block is skipped",
                          "config:11: Tag is not supported and has no effect"}));
}

TEST(SshConfig, IncludedFilesAreReadInTheirPlace) {
  const test::TemporaryDirectory directory;
  directory.file("one.conf", "Host node1\n  Port 11\nHost other\n  User nobody\n");
  directory.file("two.conf", "User two\n");
  directory.file("main", "Host x\n  Include two.conf\nHost node1\n  Include *.conf\n  User main\n");
  const auto config =
      read_host_config({.host = "node1", .user = {}, .local_user = "me", .home = directory.path()},
                       directory.path() / "main");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->port, 0);  // relative names are those of ~/.ssh
  std::filesystem::create_directory(directory.path() / ".ssh");
  for (const char* const name : {"one.conf", "two.conf"}) {
    std::filesystem::rename(directory.path() / name, directory.path() / ".ssh" / name);
  }
  const auto again =
      read_host_config({.host = "node1", .user = {}, .local_user = "me", .home = directory.path()},
                       directory.path() / "main");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->port, 11);
  EXPECT_EQ(again->user, "two");
}

TEST(SshConfig, AFileThatIncludesItselfIsAnError) {
  const test::TemporaryDirectory directory;
  const auto file = directory.file("loop", cat("Include ", directory.path().string(), "/loop\n"));
  const auto config =
      read_host_config({.host = "h", .user = {}, .local_user = {}, .home = "/none"}, file);
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("too many nested Include"), std::string::npos);
}

TEST(SshConfig, MistakesNameTheirLine) {
  const auto error = [](const std::string& text) {
    HostConfig config;
    return apply_config_text(text, "/x/config", "/none",
                             {.host = "h", .user = {}, .local_user = {}, .home = {}}, config)
        .message();
  };
  EXPECT_EQ(error("User a\nPort 70000\n"), "/x/config:2: invalid port 70000");
  EXPECT_EQ(error("User\n"), "/x/config:1: user has no value");
  EXPECT_EQ(error("User \"a\n"), "/x/config:1: a quotation mark is not closed");
  EXPECT_EQ(error("Match host\n"), "/x/config:1: Match host has no value");
  EXPECT_EQ(error("NoSuchThing yes\nHost h\n"), "");
}

TEST(SshConfig, HostNameMayHoldTheNameGiven) {
  const test::TemporaryDirectory directory;
  const auto file = directory.file("config", "HostName %h.cluster\n");
  const auto config =
      read_host_config({.host = "a", .user = {}, .local_user = {}, .home = "/none"}, file);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->host_name, "a.cluster");
}

TEST(SshConfig, PathsAreExpanded) {
  const Tokens tokens{.home = "/home/me",
                      .local_user = "me",
                      .host = "real",
                      .original_host = "nick",
                      .user = "you",
                      .port = 23};
  EXPECT_EQ(expand_path("~/.ssh/%h-%n-%r-%u-%p%%", tokens), "/home/me/.ssh/real-nick-you-me-23%");
  EXPECT_EQ(expand_path("%d/x~", tokens), "/home/me/x~");
  EXPECT_EQ(expand_path("${NO_SUCH_NAME}/x${", tokens), "/x${");
}

}  // namespace
}  // namespace hvd::driver::ssh
