// A real script that answers from a file, which the test changes.
#include "discovery/poll.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::discovery {
namespace {

using std::chrono::milliseconds;

class PollTest : public testing::Test {
 protected:
  // Each word that is told goes into the story, and then to the next step of the test.
  void poll(std::vector<std::function<void()>> steps) {
    steps_ = std::move(steps);
    PollCallbacks callbacks;
    callbacks.on_hosts = [this](const std::vector<Host>& hosts) {
      std::string names;
      for (const auto& host : hosts) names += cat(" ", host.name, ":", host.slots);
      tell("hosts" + names);
    };
    callbacks.on_warning = [this](std::string_view text) {
      tell(cat("warning ", text.substr(text.find(".sh ") + 4)));
    };
    callbacks.on_fatal = [this](const Status& status) {
      tell(cat("fatal ", status.message().substr(status.message().find(".sh ") + 4)));
    };
    poll_ = std::make_unique<Poll>(io_, PollOptions{script_, 2, milliseconds(1), test::kGenerous},
                                   callbacks);
    io_.run_for(test::kGenerous);
    EXPECT_EQ(steps_.size(), next_) << join(story_, "\n");
  }

  void answer(const std::string& text) const {
    directory_.file("new", text);
    std::filesystem::rename(directory_.path() / "new", directory_.path() / "answer");
  }
  std::function<void()> then(const std::string& text) {
    return [this, text] { answer(text); };
  }
  std::function<void()> end() {
    return [this] { poll_.reset(); };
  }
  const std::vector<std::string>& story() const { return story_; }

 private:
  void tell(const std::string& text) {
    story_.push_back(text);
    if (next_ < steps_.size()) {
      const auto step = steps_[next_++];
      step();
    }
  }

  boost::asio::io_context io_;
  test::TemporaryDirectory directory_;
  const std::string script_ =
      directory_.file("find.sh", cat(". ", directory_.path().string(), "/answer\n")).string();
  std::unique_ptr<Poll> poll_;
  std::vector<std::function<void()>> steps_;
  std::size_t next_ = 0;
  std::vector<std::string> story_;

 protected:
  void SetUp() override {
    std::filesystem::permissions(script_, std::filesystem::perms::owner_all);
  }
};

TEST_F(PollTest, tells_every_change_and_each_failure_once) {
  answer("echo a; echo b:3");
  poll({then("echo a"), then("echo gone >&2; exit 3"), then("echo a; echo a:4"), then("echo c"),
        [] {}, end()});
  EXPECT_EQ(story(),
            (std::vector<std::string>{
                "hosts a:2 b:3", "hosts a:2",
                "warning exited with code 3; it said: gone; its last answer stays in force",
                ("warning printed an invalid list of hosts: line 2: the host a is named in line 1 "
                 "already, and otherwise; its last answer stays in force"),
                "warning answers again", "hosts c:2"}));
}

TEST_F(PollTest, ends_with_the_first_run_if_that_fails) {
  answer("echo no network >&2; exit 1");
  poll({[] {}});
  EXPECT_EQ(story(), (std::vector<std::string>{"fatal exited with code 1; it said: no network"}));
}

}  // namespace
}  // namespace hvd::discovery
