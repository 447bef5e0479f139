// `hvdrun top` on a real terminal.
#include <csignal>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"
#include "tests/e2e/terminal.h"

namespace hvd::test {
namespace {

class TopTest : public AskedJobTest {
 protected:
  static void expect(Terminal& terminal, const std::string& text) {
    EXPECT_TRUE(terminal.wait_for(text)) << text << "\n" << terminal.screen();
    terminal.forget();
  }
};

TEST_F(TopTest, ShowsTheJobUntilTheUserQuits) {
  Process& job = start_training({"-np", "3", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();

  Terminal terminal({{"HVD_RUNTIME_DIR", sockets().string()}});
  terminal.resize(40, 100);
  terminal.type(cat(binary("hvdrun"), " top; echo code-$?\n"));
  expect(terminal, "RANK  WORKER");
  expect(terminal, "q or Ctrl-C: quit");
  kill_rank(1);
  expect(terminal, "SIGKILL (signal 9)");
  terminal.resize(5, 40);
  expect(terminal, "more lines; q or Ctrl-C: quit)");

  terminal.type("q");
  EXPECT_TRUE(terminal.wait_for("\033[?1049l")) << terminal.screen();
  expect(terminal, "code-0");
  finish(job);
}

TEST_F(TopTest, StopsAndGoesOnAndEndsWithTheJob) {
  Process& job = start_training({"-np", "2", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();

  Terminal terminal({{"HVD_RUNTIME_DIR", sockets().string()}});
  terminal.type(cat(binary("hvdrun"), " top\n"));
  expect(terminal, "RANK  WORKER");
  terminal.type("\x1a");
  EXPECT_TRUE(terminal.wait_for("\033[?1049l")) << terminal.screen();
  expect(terminal, "Stopped");
  terminal.type("fg\n");
  expect(terminal, "RANK  WORKER");
  finish(job);
  expect(terminal, " is over");
}

TEST_F(TopTest, NeedsATerminal) {
  Process& job = start_training({"-np", "1", "--min-np", "1"});
  ASSERT_TRUE(step_logs().wait_for_step(2)) << job.err();
  const ExitStatus end = run_job({"top"});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("needs a terminal"), std::string::npos) << end.err;
  finish(job);
}

}  // namespace
}  // namespace hvd::test
