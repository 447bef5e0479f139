#include "discovery/watch.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::discovery {
namespace {

class WatchTest : public testing::Test {
 protected:
  // The changes that follow, in a line.
  std::string prints(const std::string& output) { return shown(watch_.take({"", output, ""})); }
  std::string fails(const std::string& error, const std::string& errors = "") {
    return shown(watch_.take({error, "", errors}));
  }

 private:
  static std::string shown(const Update& update) {
    std::vector<std::string> parts;
    if (!update.fatal.ok()) parts.push_back("fatal: " + update.fatal.message());
    if (!update.warning.empty()) parts.push_back("warning: " + update.warning);
    if (update.hosts) {
      std::string names = "hosts:";
      for (const auto& host : *update.hosts) names += cat(" ", host.name, "=", host.slots);
      parts.push_back(names);
    }
    return join(parts, "; ");
  }
  Watch watch_{"find.sh", 2};
};

TEST_F(WatchTest, tells_the_first_answer_and_then_only_changes) {
  EXPECT_EQ(prints("a\nb:4\n"), "hosts: a=2 b=4");
  EXPECT_EQ(prints("a\nb:4\n"), "");
  EXPECT_EQ(prints("# other words, the same hosts\na:2\nb:4\n"), "");
  EXPECT_EQ(prints("a\nb:5\n"), "hosts: a=2 b=5");
  EXPECT_EQ(prints("b:5\na\n"), "hosts: b=5 a=2");
  EXPECT_EQ(prints(""), "hosts:");
  EXPECT_EQ(prints(""), "");
  EXPECT_EQ(prints("a\n"), "hosts: a=2");
}

TEST_F(WatchTest, takes_an_empty_first_answer_for_an_answer) {
  EXPECT_EQ(prints(""), "hosts:");
  EXPECT_EQ(
      fails("exited with code 1"),
      "warning: the discovery script find.sh exited with code 1; its last answer stays in force");
}

TEST_F(WatchTest, ends_the_job_when_the_very_first_run_fails_and_says_what_the_script_said) {
  EXPECT_EQ(fails("exited with code 3", "no credentials\n\ngiving up\n"),
            "fatal: the discovery script find.sh exited with code 3; it said: no credentials / "
            "giving up");
}

TEST_F(WatchTest, ends_the_job_when_the_very_first_answer_is_rubbish) {
  EXPECT_EQ(prints("a:x\n"),
            "fatal: the discovery script find.sh printed an invalid list of hosts: line 1: the "
            "slots of a "
            "must be a number from 1 to 65,536, not \"x\"");
}

TEST_F(WatchTest, warns_once_for_each_kind_of_failure) {
  EXPECT_EQ(prints("a\n"), "hosts: a=2");
  EXPECT_EQ(fails("exited with code 3", "at 10:01"),
            "warning: the discovery script find.sh exited with code 3; it said: at 10:01; its last "
            "answer stays in force");
  EXPECT_EQ(fails("exited with code 3", "at 10:02"), "");
  EXPECT_EQ(fails("did not end within 10 s"),
            "warning: the discovery script find.sh did not end within 10 s; its last answer stays "
            "in force");
  EXPECT_NE(prints("?\n"), "");
  EXPECT_EQ(prints("!\n"), "");
  EXPECT_EQ(prints("a\n"), "warning: the discovery script find.sh answers again");
  EXPECT_EQ(prints("a\n"), "");
}

TEST_F(WatchTest, keeps_the_last_good_answer_through_failures) {
  EXPECT_EQ(prints("a\n"), "hosts: a=2");
  EXPECT_NE(fails("exited with code 3"), "");
  EXPECT_EQ(prints("b\n"), "warning: the discovery script find.sh answers again; hosts: b=2");
}

TEST_F(WatchTest, shows_only_the_last_lines_of_a_talkative_script) {
  EXPECT_EQ(fails("exited with code 1", "1\n2\n3\n4\n5\n6\n7\n"),
            "fatal: the discovery script find.sh exited with code 1; it said: 3 / 4 / 5 / 6 / 7");
}

TEST_F(WatchTest, lets_no_control_characters_through_to_a_terminal) {
  EXPECT_EQ(fails("exited with code 1", "\x1b[2Jgone\n"),
            "fatal: the discovery script find.sh exited with code 1; it said: \\x1b[2Jgone");
}

}  // namespace
}  // namespace hvd::discovery
