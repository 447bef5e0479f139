// The status page in a real Chromium (page_browser.py), which watches real jobs. The screenshots go
// to the build's folder artefacts/page.
#include <filesystem>

#include "tests/e2e/page_job.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScript = HVD_SOURCE_DIR "/tests/e2e/page_browser.py";
constexpr const char* kPython = "/usr/bin/python3";  // the distribution's, which has Selenium

// Why there is no browser here; empty: there is one.
const std::string& why_no_browser() {
  static const std::string why = [] {
    for (const char* const program : {"chromium", "chromedriver"}) {
      if (run({"sh", "-c", cat("command -v ", program)}).code != 0) return cat("no ", program);
    }
    return std::string(run({kPython, "-c", "import selenium"}).code == 0 ? "" : "no Selenium");
  }();
  return why;
}

class NightlyPageBrowserTest : public PageJobTest {
 protected:
  void SetUp() override {
    PageJobTest::SetUp();
    if (!why_no_browser().empty()) {
      GTEST_SKIP() << why_no_browser() << " here: scripts/setup --browser installs it";
    }
  }

  // A browser that opens the link and does what this case of page_browser.py says. It prints a line
  // for each step that it has seen.
  std::unique_ptr<Process> browse(const std::string& which, const std::string& link) const {
    const fs::path artefacts = fs::path(HVD_ARTEFACTS) / "page";
    fs::create_directories(artefacts);
    ProcessOptions options;
    options.environment = {{"HOME", directory()}, {"TMPDIR", directory()}};
    return std::make_unique<Process>(Words{kPython, kScript, which, link,
                                           (directory() / "profile").string(), artefacts.string()},
                                     options);
  }
  static void expect_step(Process& browser, const std::string& step) {
    ASSERT_TRUE(browser.wait_for_output(step + "\n", 2 * kGenerous))
        << step << "\n"
        << browser.out() << browser.err();
  }
  static void expect_well(Process& browser) {
    const ExitStatus end = browser.wait(2 * kGenerous);
    EXPECT_EQ(end.code, 0) << end.out << end.err;
  }
};

TEST_F(NightlyPageBrowserTest, ShowsALossWithItsCauseAndTheEnd) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--status-page"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const auto browser = browse("loss", link_of(job));
  expect_step(*browser, "three workers are shown");
  kill_rank(1);
  expect_step(*browser, "the loss is shown");
  finish(job);
  expect_step(*browser, "the end is shown");
  expect_well(*browser);
}

TEST_F(NightlyPageBrowserTest, ShowsHostsThatComeOnEveryScreen) {
  const std::string script = discovery_script("localhost:2\n");
  Process& job = start_training({"--host-discovery-script", script, "-np", "2", "--min-np", "1",
                                 "--max-np", "5", "--status-page"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const auto browser = browse("hosts", link_of(job));
  expect_step(*browser, "two workers are shown");
  discover("localhost:2\n127.0.0.1:3\n");
  expect_step(*browser, "the new host is shown");
  expect_well(*browser);
  finish(job);
}

TEST_F(NightlyPageBrowserTest, IsUsedByTheKeyboardAlone) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--status-page"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const auto browser = browse("keyboard", link_of(job));
  expect_well(*browser);
  finish(job);
}

TEST_F(NightlyPageBrowserTest, ShowsTextOfTheJobAsText) {
  Process& job = start({"-np", "1", "--status-page", "sh", "-c",
                        "exec sleep 1000 # <img src=x onerror=\"document.title=1\">"});
  const auto browser = browse("text", link_of(job));
  expect_well(*browser);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 143);
}

// A browser sends cookies to all ports of an address, and another user may listen at one.
TEST_F(NightlyPageBrowserTest, AnotherPortOfTheMachineLearnsNoSecret) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--status-page"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const auto browser = browse("ports", link_of(job));
  expect_well(*browser);
  finish(job);
}

// hvdrun is stopped for a while, and is killed later. The page keeps the last numbers.
TEST_F(NightlyPageBrowserTest, SaysThatTheConnectionIsLost) {
  Process& job = start_training({"-np", "2", "--min-np", "1", "--status-page"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const auto browser = browse("lost", link_of(job));
  expect_step(*browser, "two workers are shown");
  job.signal(SIGSTOP);
  expect_step(*browser, "hvdrun is missed");
  job.signal(SIGCONT);
  expect_step(*browser, "hvdrun is back");
  crash(job);
  expect_well(*browser);
  expect_nobody_left("the crash");
}

}  // namespace
}  // namespace hvd::test
