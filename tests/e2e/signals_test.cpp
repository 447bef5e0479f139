// Signals that ask for something, and signals that mean nothing: what each does to hvdrun and to an
// agent (the table in docs/hvdrun.md).
#include <algorithm>
#include <array>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class SignalsTest : public JobTest {
 protected:
  // The line of a table that begins with this rank.
  static std::string row_of(const std::string& text, const std::string& rank) {
    for (const auto& line : lines_of(text)) {
      if (line.starts_with(cat("  ", rank, " "))) return line;
    }
    return {};
  }
  // "gradients" and "weights" are in flight on all but the last of these ranks.
  Process& start_stalled(int ranks) {
    Process& job = start({"-np", cat(ranks), binary("e2e_waits"), "stall"});
    stalled_ = wait_for_worker(job, " stalled ", ranks - 1);
    return job;
  }
  static pid_t wait_for_worker(Process& job, const std::string& word, int rank) {
    EXPECT_TRUE(job.wait_for_output(cat(word, rank, "."))) << job.out() << job.err();
    for (const auto& line : lines_of_rank(job.out(), rank)) {
      if (line.find(word) != std::string::npos) return std::stoi(line);
    }
    return -1;
  }
  // Until that many tables are there, whole.
  static bool wait_for_tables(Process& job, int count) {
    std::size_t after = 0;
    for (int table = 0; table < count; ++table) {
      if (!job.wait_for_error("hvdrun: what the ", kGenerous, after)) return false;
      after = job.err().find("hvdrun: what the ", after) + 1;
    }
    return job.wait_for_error("\n  2 ", kGenerous, after);
  }
  pid_t agent_of(const Process& job) {
    const auto agents = children_named(job.pid(), "hvd-agent");
    EXPECT_EQ(agents.size(), 1U);
    return agents.empty() ? -1 : agents[0];
  }

  pid_t stalled_ = -1;
};

// The other ranks ask for "gradients" at different times after "first". The test asks for tables
// until both have asked and every worker has answered.
TEST_F(SignalsTest, Usr1ToHvdrunShowsWhatAllWorkersDo) {
  constexpr const char* kWaits = "\"gradients\" (400 bytes) waits for other ranks for ";
  Process& job = start_stalled(3);
  std::string table;
  int tables = 0;
  const auto whole = [&] {
    job.signal(SIGUSR1);
    if (!wait_for_tables(job, ++tables)) return true;
    table = job.err().substr(job.err().rfind("hvdrun: what the "));
    return table.find("no answer") == std::string::npos &&
           row_of(table, "0").find(kWaits) != std::string::npos &&
           row_of(table, "1").find(kWaits) != std::string::npos;
  };
  ASSERT_TRUE(eventually(whole)) << table;
  EXPECT_TRUE(table.starts_with("hvdrun: what the 3 workers do:\n")) << table;
  for (const char* const rank : {"0", "1"}) {
    const std::string row = row_of(table, rank);
    EXPECT_NE(row.find("localhost#"), std::string::npos) << table;
    EXPECT_NE(row.find(kWaits), std::string::npos) << table;
    EXPECT_NE(row.find("allreduce \"first\" (400 bytes), done "), std::string::npos) << table;
  }
  EXPECT_NE(row_of(table, "2").find(cat(" ", stalled_, "  nothing ")), std::string::npos) << table;

  ASSERT_EQ(kill_one(stalled_, SIGUSR2), 0);
  EXPECT_EQ(job.wait().code, 0);
}

TEST_F(SignalsTest, Usr1ToAWorkerOrItsAgentShowsTheSameOnce) {
  Process& job = start_stalled(3);
  ASSERT_EQ(kill_one(stalled_, SIGUSR1), 0);
  ASSERT_TRUE(wait_for_tables(job, 1)) << job.err();
  // The worker's own flight recorder speaks as well, as ever.
  EXPECT_TRUE(job.wait_for_error("flight recorder: nothing in flight")) << job.err();

  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // no table before
  ASSERT_EQ(kill_one(agent_of(job), SIGUSR1), 0);
  ASSERT_TRUE(wait_for_tables(job, 2)) << job.err();
  ASSERT_EQ(kill_one(stalled_, SIGUSR2), 0);
  EXPECT_EQ(job.wait().code, 0);
}

TEST_F(SignalsTest, AWorkerThatCannotAnswerHasARowThatSaysWhy) {
  Process& job = start_stalled(3);
  ASSERT_EQ(kill_one(stalled_, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return is_stopped(stalled_); }));
  job.signal(SIGUSR1);
  ASSERT_TRUE(wait_for_tables(job, 1)) << job.err();
  EXPECT_NE(job.err().find("what the 3 workers do (1 did not answer):"), std::string::npos)
      << job.err();
  EXPECT_NE(row_of(job.err(), "2").find("no answer; its process is stopped"), std::string::npos)
      << job.err();
  ASSERT_EQ(kill_one(stalled_, SIGCONT), 0);
  ASSERT_EQ(kill_one(stalled_, SIGUSR2), 0);
  EXPECT_EQ(job.wait().code, 0);
}

TEST_F(SignalsTest, APlainProgramHasARowToo) {
  Process& job = start({"-np", "3", binary("e2e_stays")});
  wait_for_workers(job, "up", 3);
  job.signal(SIGUSR1);
  ASSERT_TRUE(wait_for_tables(job, 1)) << job.err();
  EXPECT_NE(row_of(job.err(), "1").find("no hvd::init() yet; its process "), std::string::npos)
      << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 128 + SIGTERM);
}

// ---- signals without effect, and signals that end the job ----

struct Harmless {
  bool to_agent;
  int number;
};

// The shell around the program has none, and would die of it; a child of the program has the same
// handler.
TEST_F(SignalsTest, SignalsOfTheUserReachTheProgramThatHandlesThem) {
  const std::string program = directory_file("program.py", R"(
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda number, frame: print("one", flush=True))
signal.signal(signal.SIGUSR2, lambda number, frame: (print("two", flush=True), sys.exit(0)))
child = os.fork()
if child == 0:
    while True:
        signal.pause()
print("up", os.environ["HVD_RANK"], flush=True)
try:
    while True:
        signal.pause()
finally:
    os.kill(child, signal.SIGKILL)
)");
  Process& job = start({"-np", "2", "sh", "-c", "python3 " + program + "; echo shell"});
  ASSERT_TRUE(job.wait_for_output("[0]<stdout>:up"));
  ASSERT_TRUE(job.wait_for_output("[1]<stdout>:up"));
  job.signal(SIGUSR1);
  ASSERT_TRUE(job.wait_for_output("[0]<stdout>:one"));
  ASSERT_TRUE(job.wait_for_output("[1]<stdout>:one"));
  ASSERT_TRUE(job.wait_for_error("what the 2 workers do"));
  job.signal(SIGUSR2);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  for (const int rank : {0, 1}) {
    EXPECT_EQ(lines_of_rank(end.out, rank), (Words{cat("up ", rank), "one", "two", "shell"}));
  }
}

// As a shell makes it for what a script starts in the background.
TEST_F(SignalsTest, ASignalThatWasIgnoredAtTheStartStaysIgnored) {
  for (const auto& [name, number] :
       {std::pair{"INT", SIGINT}, std::pair{"QUIT", SIGQUIT}, std::pair{"HUP", SIGHUP}}) {
    const auto job = std::make_unique<Process>(
        Words{"sh", "-c", cat("trap '' ", name, "; exec \"$@\""), "sh", binary("hvdrun"), "-np",
              "1", "sh", "-c", "echo up; exec sleep 1000"});
    ASSERT_TRUE(job->wait_for_output("up"));
    job->signal(number);
    // It is handled after that signal, if that is handled at all.
    job->signal(SIGUSR2);
    ASSERT_TRUE(job->wait_for_error("is passed on")) << name;
    job->signal(SIGTERM);
    const ExitStatus end = job->wait();
    EXPECT_EQ(end.code, 128 + SIGTERM) << name << ": " << end.err;
    EXPECT_EQ(end.err.find(cat("SIG", name)), std::string::npos) << end.err;
  }
}

class HarmlessSignal : public SignalsTest, public testing::WithParamInterface<Harmless> {};

TEST_P(HarmlessSignal, LeavesTheJobAsItIs) {
  const auto [to_agent, number] = GetParam();
  Process& job = start({"-np", "2", binary("e2e_works"), "--steps", "30", "--pause", "10"});
  wait_for_workers(job, "working", 2);
  ASSERT_EQ(kill_one(to_agent ? agent_of(job) : job.pid(), number), 0);
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  if (!to_agent && number == SIGUSR2) {
    EXPECT_NE(end.err.find("SIGUSR2 (signal 12) is passed on"), std::string::npos) << end.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, HarmlessSignal,
                         testing::Values(Harmless{false, SIGUSR1}, Harmless{false, SIGUSR2},
                                         Harmless{false, SIGPIPE}, Harmless{true, SIGUSR1},
                                         Harmless{true, SIGUSR2}, Harmless{true, SIGPIPE},
                                         Harmless{true, SIGHUP}, Harmless{true, SIGTSTP}),
                         [](const auto& one) {
                           return cat(one.param.to_agent ? "agent_" : "hvdrun_",
                                      ::sigabbrev_np(one.param.number));
                         });

TEST_F(SignalsTest, SignalsThatTheParentHasBlockedAreTaken) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process job({"env", cat("--block-signal=", ::sigabbrev_np(number)), binary("hvdrun"), "-np",
                 "2", binary("e2e_stays")});
    wait_for_workers(job, "up", 2);
    job.signal(number);
    EXPECT_EQ(job.wait(std::chrono::seconds(30)).code, 128 + number) << job.err();
  }
  expect_nobody_left("a blocked signal");
}

TEST_F(SignalsTest, QuitKillsAtOnce) {
  Process& job = start({"-np", "2", "--grace", "60", binary("e2e_stays"), "--ignore-term"});
  wait_for_workers(job, "up", 2);
  job.signal(SIGQUIT);
  const ExitStatus end = job.wait(std::chrono::seconds(30));
  EXPECT_EQ(end.code, 128 + SIGQUIT) << end.err;
  EXPECT_EQ(end.signal, 0);  // it ended by itself, and had cleaned up
  EXPECT_NE(end.err.find("interrupted by SIGQUIT (signal 3): killing 2 workers\n"),
            std::string::npos)
      << end.err;
  expect_nobody_left("SIGQUIT");
}

TEST_F(SignalsTest, HangupEndsTheJobUnlessItIsIgnored) {
  Process& job = start({"-np", "2", binary("e2e_stays")});
  wait_for_workers(job, "up", 2);
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait().code, 128 + SIGHUP);

  ProcessOptions options;
  options.environment["HVD_E2E_MARK"] = mark();
  Process under_nohup({"nohup", binary("hvdrun"), "-np", "2", binary("e2e_works"), "--steps", "30",
                       "--pause", "10"},
                      options);
  wait_for_workers(under_nohup, "working", 2);
  under_nohup.signal(SIGHUP);
  EXPECT_EQ(under_nohup.wait().code, 0);
}

// ---- ends that are no signals ----

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

// Programs that the test starts inherit only `inherited`.
Pipe make_pipe(UniqueFd Pipe::*inherited) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  Pipe made{UniqueFd(ends[0]), UniqueFd(ends[1])};
  EXPECT_EQ(::fcntl((made.*inherited).get(), F_SETFD, 0), 0);
  return made;
}

// A worker that says "saved" after SIGTERM, once the file is there.
Words saving_worker(const std::string& file) {
  return {"sh", "-c",
          cat("trap 'until [ -e ", file, " ]; do sleep 0.01; done; echo saved; exit' TERM; ",
              "echo $$ up $HVD_RANK.${HVD_CALLER_FD:+ with its caller}; ",
              "while :; do sleep 0.05; done")};
}

class CallerTest : public SignalsTest {
 protected:
  // hvdrun with two such workers, for a caller that lives as long as `caller_` is open.
  Process& start_called(const std::string& file) {
    Pipe pipe = make_pipe(&Pipe::read);
    ProcessOptions options;
    options.environment["HVD_CALLER_FD"] = cat(pipe.read.get());
    Words words{"-np", "2", "--grace", "60"};
    for (const auto& word : saving_worker(file)) words.push_back(word);
    Process& job = start(words, options);
    caller_ = std::move(pipe.write);
    wait_for_workers(job, "up", 2);
    EXPECT_EQ(job.out().find("with its caller"), std::string::npos) << job.out();
    return job;
  }

  UniqueFd caller_;
};

TEST_F(CallerTest, ItsEndAndASignalToBothEndTheJobOnce) {
  const std::string file = directory() / "go";
  Process& job = start_called(file);
  caller_.reset();
  ASSERT_TRUE(job.wait_for_error("the program that called hvd.run() has ended"));
  job.signal(SIGTERM);
  job.signal(SIGUSR2);
  ASSERT_TRUE(job.wait_for_error("SIGUSR2 (signal 12) is passed on"));
  directory_file("go");
  const ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 128 + SIGTERM) << end.err;
  EXPECT_EQ(end.err.find("killing what is left"), std::string::npos) << end.err;
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(lines_of_rank(end.out, rank).back(), "saved");
}

TEST_F(CallerTest, ASecondSignalAfterItsEndKillsAtOnce) {
  Process& job = start_called(directory() / "never");
  caller_.reset();
  ASSERT_TRUE(job.wait_for_error("stopping"));
  job.signal(SIGTERM);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 128 + SIGTERM) << job.err();
}

TEST_F(CallerTest, ADescriptorThatIsNotOpenIsAnError) {
  for (const char* const wrong : {"999", "caller"}) {
    ProcessOptions options;
    options.environment["HVD_CALLER_FD"] = wrong;
    const ExitStatus end = run_job({"-np", "1", "true"}, options);
    EXPECT_EQ(end.code, 1);
    EXPECT_NE(end.err.find(cat("HVD_CALLER_FD=", wrong)), std::string::npos) << end.err;
  }
}

// As in `hvdrun ... 2>&1 | tee log`, where Ctrl-C ends tee, too.
TEST_F(SignalsTest, OutputThatFailsAfterASignalIsNoSecondSignal) {
  constexpr const char* kWorker =
      "trap 'until [ -e go ]; do sleep 0.01; done; touch saved; exit' TERM; touch up; "
      "while :; do sleep 0.05; done";
  const std::string journal = directory() / "events";
  Pipe pipe = make_pipe(&Pipe::write);
  const std::string streams = cat(" >&", pipe.write.get(), " 2>&1");
  Process job({"bash", "-c", cat("exec \"$0\" \"$@\"", streams), binary("hvdrun"), "--grace", "60",
               "--events", journal, "-np", "1", "sh", "-c", kWorker},
              {.environment = {{"HVD_E2E_MARK", mark()}}, .working_directory = directory()});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory() / "up"); }));
  job.signal(SIGINT);
  ASSERT_TRUE(
      eventually([&] { return read_file(journal).find("stop_requested") != std::string::npos; }));
  pipe = {};
  directory_file("go");
  // The code tells of the pipe if hvdrun had a line to write after it broke.
  const int code = job.wait().code;
  EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGPIPE) << code;
  EXPECT_TRUE(std::filesystem::exists(directory() / "saved"));
  const auto events = lines_of(read_file(journal));
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const std::string& line) {
                            return line.find("stop_requested") != std::string::npos;
                          }),
            1);
}

}  // namespace
}  // namespace hvd::test
