#include <gtest/gtest.h>
#include <random>

#include "base/text.h"
#include "discovery/hosts.h"

namespace hvd::discovery {
namespace {

std::string answer(std::string_view text, int slots_per_host = 1) {
  const auto hosts = parse_answer(text, slots_per_host);
  if (!hosts) return "error: " + hosts.status().message();
  std::vector<std::string> parts;
  for (const auto& host : *hosts) {
    parts.push_back(cat(host.name, "=", host.slots));
    if (host.port != 0) parts.back() += cat(" port ", host.port);
    if (!host.user.empty()) parts.back() += " user " + host.user;
  }
  return join(parts, ", ");
}

TEST(Answer, names_hosts_in_the_order_printed) {
  EXPECT_EQ(answer("worker-1:2\nworker-0:4\n"), "worker-1=2, worker-0=4");
  EXPECT_EQ(answer("z:1\na:1\nm:1"), "z=1, a=1, m=1");
}

TEST(Answer, gives_hosts_without_a_number_the_slots_per_host) {
  EXPECT_EQ(answer("a\nb:2\n", 8), "a=8, b=2");
  EXPECT_EQ(answer("a\n"), "a=1");
  EXPECT_EQ(answer("a\nb:2\n", 0), "a=0, b=2");
}

TEST(Answer, passes_over_comments_blank_lines_and_carriage_returns) {
  EXPECT_EQ(answer("# the cluster\r\n\r\na:4 # fast\r\n   \r\n\tb:2\r\n\n"), "a=4, b=2");
  EXPECT_EQ(answer("a:4\r\n"), "a=4");
}

TEST(Answer, ignores_a_byte_order_mark) {
  EXPECT_EQ(answer("\xEF\xBB\xBF"
                   "a:4\nb:2\n"),
            "a=4, b=2");
}

TEST(Answer, reads_ipv6_addresses_in_brackets) {
  EXPECT_EQ(answer("[fd00::1]:4\n[fd00::2]\n", 2), "fd00::1=4, fd00::2=2");
  EXPECT_EQ(answer("fd00::1\n"),
            "error: line 1: \"fd00::1\" has more than one ':'; write an IPv6 address as [::1]:4, "
            "and a port of SSH as a:4:port=2222");
}

TEST(Answer, understands_all_that_a_hostfile_says_of_a_host) {
  EXPECT_EQ(answer("me@a slots=4 port=2222\nb:3:port=22\n"),
            "a:2222=4 port 2222 user me, b:22=3 port 22");
}

TEST(Answer, may_name_nobody) {
  EXPECT_EQ(answer(""), "");
  EXPECT_EQ(answer("\n# nobody today\n"), "");
}

TEST(Answer, takes_the_same_line_twice_for_one_host) {
  EXPECT_EQ(answer("a:4\nb:1\na:4\n"), "a=4, b=1");
  EXPECT_EQ(answer("a\na:1\n"), "a=1");
}

TEST(Answer, refuses_a_host_that_is_named_twice_with_other_words) {
  EXPECT_EQ(answer("a:4\n\na:2\n"),
            "error: line 3: the host a is named in line 1 already, and otherwise");
}

TEST(Answer, refuses_rubbish_and_names_the_line) {
  EXPECT_EQ(answer("a:4\nb:0\n"),
            "error: line 2: the slots of b must be a number from 1 to 65,536, not \"0\"");
  EXPECT_EQ(answer("a:-1"),
            "error: line 1: the slots of a must be a number from 1 to 65,536, not \"-1\"");
  EXPECT_EQ(answer("Traceback (most recent call last):\n"),
            "error: line 1: \"(most\" after the host's name is not of the form slots=4");
  EXPECT_EQ(answer("a b\n"),
            "error: line 1: \"b\" after the host's name is not of the form slots=4");
  EXPECT_EQ(answer("-oProxyCommand=x\n"),
            "error: line 1: the host's name \"-oProxyCommand=x\" begins with '-'");
  EXPECT_EQ(
      answer(std::string("a\0b\n", 4)),
      "error: line 1: the host's name \"a\\x00b\" may only have letters, digits, '.', '-' and '_'");
}

TEST(Answer, refuses_more_hosts_than_a_job_can_have) {
  std::string text;
  for (std::size_t host = 0; host < kMaxDiscoveredHosts; ++host) text += cat("h", host, "\n");
  EXPECT_TRUE(parse_answer(text, 1).ok());
  const auto more = parse_answer(text + "one-more\n", 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().message(), "line 100001: more than 100,000 hosts are named");
}

TEST(Answer, takes_or_refuses_any_bytes_and_keeps_its_promises) {
  std::mt19937_64 random(7);  // NOLINT(cert-msc51-cpp): the same bytes each time
  const std::string_view alphabet("ab:1[]%=#@ \r\n\0\xff-.slotport", 25);
  int good = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (auto left = random() % 24; left > 0; --left) text += alphabet[random() % alphabet.size()];
    const auto hosts = parse_answer(text, 3);
    if (!hosts) {
      EXPECT_EQ(hosts.status().message().substr(0, 5), "line ");
      continue;
    }
    ++good;
    for (const auto& host : *hosts) {
      EXPECT_FALSE(host.name.empty());
      EXPECT_GE(host.slots, 1);
    }
  }
  EXPECT_GT(good, 100);
}

}  // namespace
}  // namespace hvd::discovery
