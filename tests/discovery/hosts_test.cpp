#include "discovery/hosts.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::discovery {
namespace {

std::string shown(const Result<std::vector<Host>>& hosts) {
  if (!hosts) return "error: " + hosts.status().message();
  std::vector<std::string> parts;
  for (const auto& host : *hosts) parts.push_back(cat(host.name, "=", host.slots));
  return join(parts, " ");
}

std::string list(std::string_view text) { return shown(parse_host_list(text)); }
std::string file(std::string_view text) { return shown(parse_hostfile(text, "hosts.txt")); }

constexpr std::string_view kInvalid =
    "error: Invalid host input, please make sure it has format as : worker-0:2,worker-1:2. (-H: ";
std::string invalid(std::string_view why) { return cat(kInvalid, why, ")"); }

TEST(HostList, reads_names_with_and_without_slots_in_their_order) {
  EXPECT_EQ(list("worker-1:2,worker-0:4"), "worker-1=2 worker-0=4");
  EXPECT_EQ(list("a,b:2,10.0.0.1:3"), "a=0 b=2 10.0.0.1=3");
  EXPECT_EQ(list("a:4, b_c.example:4"), "a=4 b_c.example=4");
}

TEST(HostList, reads_ipv6_addresses_in_brackets) {
  EXPECT_EQ(list("[::1]:4,[fe80::2]"), "::1=4 fe80::2=0");
}

TEST(HostList, refuses_every_defect_in_horovods_words_and_says_which) {
  EXPECT_EQ(list(""), invalid("the list is empty"));
  EXPECT_EQ(list("a:1,,b:1"), invalid("item 2 of \"a:1,,b:1\" is empty"));
  EXPECT_EQ(list("a:1,"), invalid("item 2 of \"a:1,\" is empty"));
  EXPECT_EQ(list(":4"), invalid("item 1: the host's name is missing"));
  EXPECT_EQ(list("a:"),
            invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"\""));
  EXPECT_EQ(list("a:0"),
            invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"0\""));
  EXPECT_EQ(list("a:-2"),
            invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"-2\""));
  EXPECT_EQ(list("a:2x"),
            invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"2x\""));
  EXPECT_EQ(
      list("a:99999999999"),
      invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"99999999999\""));
  EXPECT_EQ(list("b:1,::1"),
            invalid("item 2: \"::1\" has more than one ':'; write an IPv6 address as [::1]:4"));
  EXPECT_EQ(list("[::1:4"), invalid("item 1: \"[::1:4\" has '[' without ']'"));
  EXPECT_EQ(list("[a]:4"), invalid("item 1: \"a\" in brackets is not an IPv6 address"));
  EXPECT_EQ(list("[::1]4"), invalid("item 1: after ']' of \"[::1]4\" only ':' may follow"));
  EXPECT_EQ(list("a:1,a:2"), invalid("item 2: the host a is named twice"));
  EXPECT_EQ(list("-oProxyCommand=x"),
            invalid("item 1: the host's name \"-oProxyCommand=x\" begins with '-'"));
  EXPECT_EQ(list("me@a:1"), invalid("item 1: the host's name \"me@a\" may only have letters, "
                                    "digits, '.', '-' and '_'"));
  EXPECT_EQ(list("a\x1b[2J"),
            invalid("item 1: the host's name \"a\\x1b[2J\" may only have letters, "
                    "digits, '.', '-' and '_'"));
}

TEST(Hostfile, reads_horovods_form) {
  EXPECT_EQ(file("worker-1 slots=2\nworker-0 slots=4\n"), "worker-1=2 worker-0=4");
}

TEST(Hostfile, reads_open_mpis_form) {
  EXPECT_EQ(file("a slots=4 max_slots=8\nb slots = 2 max-slots= 2\nc\n"), "a=4 b=2 c=0");
  EXPECT_EQ(file("a max_slots=8"), "a=0");
}

TEST(Hostfile, reads_colons_and_brackets) {
  EXPECT_EQ(file("a:4\n[::1]:2\n[::2] slots=3"), "a=4 ::1=2 ::2=3");
}

TEST(Hostfile, ignores_comments_blank_lines_and_the_line_ends_of_windows) {
  EXPECT_EQ(file("# all of them\r\n\r\n  a slots=1 # the first\r\n\t\nb\tslots=2\r\n#"), "a=1 b=2");
}

TEST(Hostfile, adds_up_a_name_given_twice_as_open_mpi_does) {
  EXPECT_EQ(file("a slots=2\nb\na slots=3\nb\nb\n"), "a=5 b=3");
}

TEST(Hostfile, names_the_line_of_every_defect) {
  EXPECT_EQ(file("a slots=1\n\nb slots=x\n"),
            "error: hosts.txt:3: slots must be a number from 1 to 65,536, not \"x\"");
  EXPECT_EQ(file("a slots="),
            "error: hosts.txt:1: slots must be a number from 1 to 65,536, not \"\"");
  EXPECT_EQ(file("a 4"),
            "error: hosts.txt:1: \"4\" after the host's name is not of the form slots=4");
  EXPECT_EQ(file("a slot=4"),
            "error: hosts.txt:1: unknown key \"slot\"; known are slots and max_slots");
  EXPECT_EQ(file("a slots=4 slots=5"), "error: hosts.txt:1: the slots of a are given twice");
  EXPECT_EQ(file("a:4 slots=5"), "error: hosts.txt:1: the slots of a are given twice");
  EXPECT_EQ(file("a max_slots=4 max-slots=5"), "error: hosts.txt:1: max-slots of a is given twice");
  EXPECT_EQ(file("a slots=9 max_slots=4"),
            "error: hosts.txt:1: slots=9 of a is above its max_slots=4");
  EXPECT_EQ(file("slots=4"),
            "error: hosts.txt:1: the host's name \"slots=4\" may only have letters, "
            "digits, '.', '-' and '_'");
  EXPECT_EQ(file("a slots=60000\na slots=60000"),
            "error: hosts.txt:2: the slots of a add up to more than 65,536");
}

TEST(Hostfile, refuses_a_file_without_hosts) {
  const std::string error =
      "error: hosts.txt: names no host; write one a line, as in \"worker-0 slots=4\"";
  EXPECT_EQ(file(""), error);
  EXPECT_EQ(file("# later\n\n"), error);
}

TEST(Hostfile, refuses_a_binary_file_without_printing_it) {
  const auto result =
      file(std::string("\x7f"
                       "ELF\x02\x01\0\0",
                       8));
  EXPECT_EQ(result,
            "error: hosts.txt:1: the host's name \"\\x7fELF\\x02\\x01\\x00\\x00\" may only have "
            "letters, digits, '.', '-' and '_'");
}

}  // namespace
}  // namespace hvd::discovery
