#include "discovery/hosts.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "base/text.h"

namespace hvd::discovery {
namespace {

std::string shown(const Result<std::vector<Host>>& hosts) {
  if (!hosts) return "error: " + hosts.status().message();
  std::vector<std::string> parts;
  for (const auto& host : *hosts) {
    parts.push_back(cat(host.name, "=", host.slots));
    if (!host.user.empty()) parts.back() += " user " + host.user;
    if (!host.destination.empty()) parts.back() += " at " + host.destination;
    if (host.port != 0) parts.back() += cat(" port ", host.port);
    if (!host.address.empty()) parts.back() += " reached by " + host.address;
  }
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
  EXPECT_EQ(list("[::1]:4,[fd00::2]"), "::1=4 fd00::2=0");
  EXPECT_EQ(list("[::ffff:10.0.0.1]:4"), "::ffff:10.0.0.1=4");
}

TEST(HostList, reads_a_link_local_address_with_its_interface) {
  EXPECT_EQ(list("[fe80::1%eth0]:4,[fe80::1%eth1.5]"), "fe80::1%eth0=4 fe80::1%eth1.5=0");
  EXPECT_EQ(list("[fe80::1%eth0]:4:port=22"), "[fe80::1%eth0]:22=4 at fe80::1%eth0 port 22");
}

TEST(HostList, reads_users_ports_and_addresses) {
  EXPECT_EQ(list("me@a:4,you@[::1]:2,c"), "a=4 user me ::1=2 user you c=0");
  EXPECT_EQ(list("CORP\\me@a,me@corp.example@b"), "a=0 user CORP\\me b=0 user me@corp.example");
  EXPECT_EQ(list("a:4:port=2222,me@b:port=22:address=10.0.0.7"),
            "a:2222=4 at a port 2222 b:22=0 user me at b port 22 reached by 10.0.0.7");
  EXPECT_EQ(list("[::1]:4:port=2222"), "[::1]:2222=4 at ::1 port 2222");
  EXPECT_EQ(list("a:user=me@corp:slots=3:address=[fd00::1]"),
            "a=3 user me@corp reached by fd00::1");
}

TEST(HostList, takes_one_host_with_two_ports_for_two_hosts) {
  EXPECT_EQ(list("a:4:port=22,a:4:port=23,a:4"), "a:22=4 at a port 22 a:23=4 at a port 23 a=4");
  EXPECT_EQ(list("a:port=22,a:port=22"), invalid("item 2: the host a:22 is named twice"));
  EXPECT_EQ(list("me@a,you@a"), invalid("item 2: the host a is named twice"));
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
  EXPECT_EQ(list("a:65536"), "a=65536") << "the limit itself is allowed";
  EXPECT_EQ(list("a:65537"),
            invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"65537\""));
  EXPECT_EQ(
      list("a:99999999999"),
      invalid("item 1: the slots of a must be a number from 1 to 65,536, not \"99999999999\""));
  EXPECT_EQ(
      list("b:1,::1"),
      invalid("item 2: \"::1\" has more than one ':'; write an IPv6 address as [::1]:4, and a "
              "port of SSH as a:4:port=2222"));
  EXPECT_EQ(list("a:4:2222"),
            invalid("item 1: \"a:4:2222\" has more than one ':'; write an IPv6 address as [::1]:4, "
                    "and a port of SSH as a:4:port=2222"));
  EXPECT_EQ(list("[::1:4"), invalid("item 1: \"[::1:4\" has '[' without ']'"));
  EXPECT_EQ(list("[a]:4"), invalid("item 1: \"a\" in brackets is not an IPv6 address"));
  EXPECT_EQ(list("[::1]4"), invalid("item 1: after ']' of \"[::1]4\" only ':' may follow"));
  EXPECT_EQ(list("a:1,a:2"), invalid("item 2: the host a is named twice"));
  EXPECT_EQ(list("-oProxyCommand=x"),
            invalid("item 1: the host's name \"-oProxyCommand=x\" begins with '-'"));
  EXPECT_EQ(list("@a:1"), invalid("item 1: the user of a is missing"));
  EXPECT_EQ(list("-l@a:1"), invalid("item 1: the user \"-l\" begins with '-'"));
  EXPECT_EQ(list("m;e@a"), invalid("item 1: the user \"m;e\" may only have letters, digits and "
                                   "._-+$\\@"));
  EXPECT_EQ(list("me@a:user=you"), invalid("item 1: the user of a is given twice"));
  EXPECT_EQ(list("me@"), invalid("item 1: the host's name is missing"));
  EXPECT_EQ(list("a:port=0"), invalid("item 1: port must be a number from 1 to 65,535, not \"0\""));
  EXPECT_EQ(list("a:port=70000"),
            invalid("item 1: port must be a number from 1 to 65,535, not \"70000\""));
  EXPECT_EQ(list("a:port=1:port=2"), invalid("item 1: the port of a is given twice"));
  EXPECT_EQ(list("a:address=b"), invalid("item 1: address of a must be an IP address, not \"b\""));
  EXPECT_EQ(list("a:address=[10.0.0.1]"),
            invalid("item 1: address of a must be an IP address, not \"[10.0.0.1]\""));
  EXPECT_EQ(list("a:prot=1"),
            invalid("item 1: unknown key \"prot\"; known are slots, max_slots, port, user and "
                    "address"));
  EXPECT_EQ(list("a:port=1:4"), invalid("item 1: \"4\" after a is not of the form port=2222"));
  EXPECT_EQ(
      list("[fe80::1]:4"),
      invalid("item 1: \"fe80::1\" holds on one link only: name the interface of this machine "
              "that leads there, as in [fe80::1%eth0]"));
  EXPECT_EQ(list("[fe80::1%]"),
            invalid("item 1: \"fe80::1%\": after '%' stands no name of an interface"));
  EXPECT_EQ(list("[fd00::1%eth0]"),
            invalid("item 1: \"fd00::1%eth0\": only a link-local address (fe80::...) has an "
                    "interface"));
  EXPECT_EQ(list(std::string_view("a:1:address=127.0.0.1\0x", 23)),
            invalid("item 1: address of a must be an IP address, not \"127.0.0.1\\x00x\""));
  EXPECT_EQ(list(std::string_view("[fe80::1\0x%eth0]", 16)),
            invalid("item 1: \"fe80::1\\x00x%eth0\" in brackets is not an IPv6 address"));
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
  EXPECT_EQ(parse_hostfile("a max_slots=8", "f")->front().max_slots, 8);
}

TEST(Hostfile, reads_colons_and_brackets) {
  EXPECT_EQ(file("a:4\n[::1]:2\n[::2] slots=3"), "a=4 ::1=2 ::2=3");
}

TEST(Hostfile, reads_users_ports_and_addresses) {
  EXPECT_EQ(file("me@a:4 port=2222\nb slots=2 user=me address = fd00::7\n[::1] port=22\n"),
            "a:2222=4 user me at a port 2222 b=2 user me reached by fd00::7 "
            "[::1]:22=0 at ::1 port 22");
}

TEST(Hostfile, refuses_a_second_mention_that_says_something_else) {
  EXPECT_EQ(file("me@a\nyou@a"),
            "error: hosts.txt:2: the host a was named before without the user you");
  EXPECT_EQ(file("a\na address=10.0.0.1"),
            "error: hosts.txt:2: the host a was named before without the address 10.0.0.1");
  EXPECT_EQ(file("me@a address=10.0.0.1\na\nme@a slots=3"), "a=5 user me reached by 10.0.0.1");
}

TEST(Hostfile, ignores_comments_blank_lines_and_the_line_ends_of_windows) {
  EXPECT_EQ(file("# all of them\r\n\r\n  a slots=1 # the first\r\n\t\nb\tslots=2\r\n#"), "a=1 b=2");
}

TEST(Hostfile, ignores_a_byte_order_mark) {
  EXPECT_EQ(file("\xEF\xBB\xBF"
                 "a slots=1\r\n"),
            "a=1");
}

TEST(Hostfile, adds_up_a_name_given_twice_as_open_mpi_does) {
  EXPECT_EQ(file("a slots=2\nb\na slots=3\nb\nb\n"), "a=5 b=3");
  EXPECT_EQ(file("a\nb\na\n"), "a=2 b=1");  // a line for each slot
  EXPECT_EQ(file("a slots=2\nb\na slots=3\n"), "a=5 b=0");
}

TEST(Hostfile, names_the_line_of_every_defect) {
  EXPECT_EQ(file("a slots=1\n\nb slots=x\n"),
            "error: hosts.txt:3: slots must be a number from 1 to 65,536, not \"x\"");
  EXPECT_EQ(file("a slots="),
            "error: hosts.txt:1: slots must be a number from 1 to 65,536, not \"\"");
  EXPECT_EQ(file("a 4"),
            "error: hosts.txt:1: \"4\" after the host's name is not of the form slots=4");
  EXPECT_EQ(file("a slot=4"),
            "error: hosts.txt:1: unknown key \"slot\"; known are slots, max_slots, port, user and "
            "address");
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

// As it could have been typed.
std::string written(const Host& host) {
  const std::string& name = host.destination.empty() ? host.name : host.destination;
  std::string text = host.user.empty() ? "" : host.user + "@";
  text += name.find(':') == std::string::npos ? name : cat("[", name, "]");
  if (host.slots != 0) text += cat(":", host.slots);
  if (host.port != 0) text += cat(":port=", host.port);
  if (!host.address.empty()) text += cat(":address=[", host.address, "]");
  return text;
}

TEST(Hosts, every_list_that_is_read_is_sound_and_can_be_written_again) {
  constexpr std::array<std::string_view, 27> kPieces{
      "a",     "b.c",         "me", "@",        ":",       "4",     "0",     "[",    "]",
      "[::1]", "[fe80::1%e]", "%",  "port=",    "22",      "=",     "slots", "-",    ",",
      "#",     "\n",          " ",  "address=", "fd00::1", "user=", "\x01",  "\xff", "65536"};
  std::mt19937 random(7);
  int read = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    for (auto pieces = random() % 12; pieces > 0; --pieces) {
      text += kPieces.at(random() % kPieces.size());
    }
    for (const auto& hosts : {parse_host_list(text), parse_hostfile(text, "f")}) {
      if (!hosts) {
        const std::string message = hosts.status().message();
        EXPECT_TRUE(std::all_of(message.begin(), message.end(), [](char character) {
          return character >= 0x20 && character < 0x7f;
        })) << message;
        continue;
      }
      ++read;
      std::set<std::string> names;
      for (const auto& host : *hosts) {
        EXPECT_TRUE(names.insert(host.name).second) << text;
        EXPECT_FALSE(host.name.empty());
        EXPECT_FALSE(host.name.starts_with('-')) << text;
        EXPECT_FALSE(host.user.starts_with('-')) << text;
        // An address that is IPv4 has no brackets.
        if (host.address.find('.') != std::string::npos) continue;
        const auto again = parse_host_list(written(host));
        ASSERT_TRUE(again.ok()) << text << " -> " << written(host) << ": "
                                << again.status().message();
        EXPECT_EQ(again->at(0), host) << text;
      }
    }
  }
  EXPECT_GT(read, 1000) << "hardly anything was read";
}

}  // namespace
}  // namespace hvd::discovery
