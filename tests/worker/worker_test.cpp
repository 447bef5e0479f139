// Real workers against a real rendezvous server. The test plays the agent: it holds the other end
// of each worker's descriptor.
#include <array>
#include <csignal>
#include <cstdlib>
#include <future>
#include <gtest/gtest.h>

#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/text.h"
#include "tests/runtime/trace/trace_check.h"
#include "tests/support/process.h"
#include "tests/worker/workers.h"

namespace hvd {
namespace {

using test::ExitStatus;
using test::Process;
using test::Workers;

// Resources after a hundred worlds. Allocators keep some memory, and those of sanitizers much.
void expect_nothing_more(const ExitStatus& status) {
  int descriptors = -1;
  int threads = -1;
  long kilobytes = -1;
  ASSERT_EQ(std::sscanf(status.out.c_str(), "%d descriptors and %d threads more\n%ld KB more",
                        &descriptors, &threads, &kilobytes),
            3)
      << status.out << status.err;
  EXPECT_EQ(descriptors, 0);
  EXPECT_EQ(threads, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(kilobytes, 4096);
#endif
}

using Kinds = std::vector<worker_link::Kind>;
const Kinds initialised_and_done{worker_link::Kind::initialised, worker_link::Kind::done};

TEST_F(Workers, KnowTheirPlaceAndReduceTogether) {
  start_all(3, "place");
  const auto ended = wait_all();
  const std::array expected{"rank 0 of 3, local 0 of 2, cross 0 of 2, heterogeneous, sum 6\n",
                            "rank 1 of 3, local 1 of 2, cross 0 of 1, heterogeneous, sum 6\n",
                            "rank 2 of 3, local 0 of 1, cross 1 of 2, heterogeneous, sum 6\n"};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].err;
    EXPECT_EQ(ended[rank].out, expected[rank]);
    EXPECT_EQ(ended[rank].err, "");
    EXPECT_EQ(told(rank), initialised_and_done);
  }
}

TEST_F(Workers, RunTheirThreadsOnTheCoreThatTheListNamesForTheirLocalRank) {
  // Ranks 0 and 1 are the first two of host a, rank 2 the first of host b.
  environment_["HVD_THREAD_AFFINITY"] = "0,1";
  start_all(3, "threads");
  const auto ended = wait_all();
  const std::array cores{0, 1, 0};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].err;
    for (const auto* const name : {"hvd-control", "hvd-executor"}) {
      EXPECT_NE(ended[rank].out.find(cat(name, " on ", cores[rank], "\n")), std::string::npos)
          << name << " of rank " << rank << " in: " << ended[rank].out;
    }
  }
}

// Ranks 0 and 1 are on host a, rank 2 is alone on host b.
TEST_F(Workers, ShareMemoryWithTheOthersOfTheirHost) {
  start_all(3, "memory");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].out, "shares memory, sum 6\n") << ended[0].err;
  EXPECT_EQ(ended[1].out, "shares memory, sum 6\n") << ended[1].err;
  EXPECT_EQ(ended[2].out, "shares none, sum 6\n") << ended[2].err;
}

TEST_F(Workers, ShareNoMemoryWhereThatIsTurnedOff) {
  environment_["HVD_SHARED_MEMORY"] = "0";
  start_all(3, "memory");
  for (const auto& ended : wait_all()) {
    EXPECT_EQ(ended.out, "shares none, sum 6\n") << ended.err;
    EXPECT_EQ(ended.err, "");
  }
}

TEST_F(Workers, RefuseSeveralSocketsOnATransportThatHasOne) {
  environment_["HVD_TRANSPORT"] = "gloo-tcp";
  environment_["HVD_SOCKETS_PER_PAIR"] = "2";
  const auto document = document_of(2);
  start(greeting_of(document.members[0], frame_of(document, 100)), "threads");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].code, 1);
  EXPECT_NE(ended[0].err.find("HVD_SOCKETS_PER_PAIR=2 is for HVD_TRANSPORT=hvd: gloo-tcp has one "
                              "connection for each pair"),
            std::string::npos)
      << ended[0].err;
}

TEST_F(Workers, RefuseAListOfCoresThatIsShorterThanTheirHostHasRanks) {
  environment_["HVD_THREAD_AFFINITY"] = "0,1";
  const auto document = document_of(6);
  start(greeting_of(document.members[0], frame_of(document, 100)), "threads");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].code, 1);
  EXPECT_NE(ended[0].err.find("HVD_THREAD_AFFINITY=0,1 names 2 cores for 3 workers on this host. "
                              "Name one core for all, or one for each."),
            std::string::npos)
      << ended[0].err;
}

TEST_F(Workers, RefuseACoreThatDoesNotExist) {
  environment_["HVD_THREAD_AFFINITY"] = "9999";
  const auto document = document_of(1);
  start(greeting_of(document.members[0], frame_of(document, 100)), "threads");
  const auto ended = wait_all();
  EXPECT_EQ(ended[0].code, 1);
  EXPECT_NE(ended[0].err.find("cannot run on core 9999; the cores that it may use are"),
            std::string::npos)
      << ended[0].err;
}

TEST_F(Workers, AreDoneWhenTheyReturnFromMainWithoutShutdown) {
  start_all(2, "no-shutdown");
  const auto ended = wait_all();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].err;
    EXPECT_EQ(told(rank), initialised_and_done);
  }
}

class WorkersInShutdown : public Workers, public ::testing::WithParamInterface<int> {};

TEST_P(WorkersInShutdown, HearThatNoOtherRankMakesTheirCalls) {
  start_all(GetParam(), "own-call");
  const auto ended = wait_all();
  // A rank whose call is refused before it calls shutdown() hears that from the call alone. The
  // first one in shutdown() is there by then.
  int warnings = 0;
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].err;
    const auto call = cat("allreduce \"own ", rank, "\" cannot complete: rank ");
    EXPECT_EQ(ended[rank].out.find(call), 0U) << ended[rank].out;
    EXPECT_NE(ended[rank].out.find("has already called shutdown()"), std::string::npos);
    if (ended[rank].err.find(cat("shutdown: ", call)) != std::string::npos) ++warnings;
    EXPECT_EQ(told(rank), initialised_and_done);
  }
  EXPECT_GE(warnings, 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks, WorkersInShutdown, ::testing::Values(2, 3));

TEST_F(Workers, CanLeaveAndJoinAHundredTimesWithoutLeaking) {
  start_all(2, "protocol");
  // An agent reads what its workers say.
  std::vector<std::future<std::vector<worker_link::Kind>>> all_told;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    all_told.push_back(std::async(std::launch::async, [this, rank] { return told(rank); }));
  }
  for (const auto& status : wait_all()) {
    EXPECT_EQ(status.code, 0) << status.err;
    expect_nothing_more(status);
  }
  // Six worlds of the protocol fail; the program goes on, and ends each of them with shutdown().
  for (auto& one : all_told) EXPECT_EQ(one.get().size(), 2 * 111U);
}

TEST_F(Workers, EndIfTheirAgentDoesNotTellThemTheWorld) {
  start(greeting_of(document_of(2).members.front(), ""), "place");
  const auto status = wait_all().front();
  EXPECT_NE(status.code, 0);
  EXPECT_NE(status.err.find("the agent's welcome came without the world"), std::string::npos)
      << status.err;
}

TEST_F(Workers, AreToldWhichRankWasLostAndAreDoneIfTheyHandleIt) {
  start_all(4, "loss");
  const auto ended = wait_all();
  for (const std::size_t rank : {0U, 2U, 3U}) {
    EXPECT_EQ(ended[rank].code, 0) << ended[rank].err;
    EXPECT_NE(ended[rank].out.find("lost rank 1 on host a: rank 1 on a#1 is gone"),
              std::string::npos)
        << ended[rank].out << ended[rank].err;
    EXPECT_EQ(told(rank), initialised_and_done);
  }
  EXPECT_EQ(ended[1].code, 9);
}

TEST_F(Workers, EndAtOnceWhenTheirAgentIsGone) {
  start_all(2, "wait");
  for (auto& process : processes_) ASSERT_TRUE(process->wait_for_output("sum 3\n"));
  links_.clear();
  for (const auto& status : wait_all()) {
    EXPECT_EQ(status.code, 1);
    EXPECT_EQ(status.err,
              "hvd: the agent of this host is gone, and with it the job; this worker ends\n");
  }
}

TEST_F(Workers, OfAnotherIncarnationAreToldThatTheyAreNoMember) {
  auto document = document_of(1);
  auto stale = document.members.front();
  stale.incarnation = 7;
  start(greeting_of(stale, frame_of(document, stale.incarnation)), "place");
  const auto status = wait_all().front();
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("InitError: hvd::init(): this worker, a#0 of incarnation 7, is not a "
                            "member of generation 1"),
            std::string::npos)
      << status.err;
}

TEST_F(Workers, AreToldWhenAnotherProcessHasTakenTheirPlace) {
  start("", "place");  // nothing lies on the descriptor any more
  const auto status = wait_all().front();
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("another process of this worker, or another copy of hvd's library"),
            std::string::npos)
      << status.err;
}

TEST_F(Workers, RefuseAWelcomeThatIsRubbish) {
  start(encode_frame(static_cast<std::uint16_t>(worker_link::Kind::welcome), "rubbish"), "place");
  const auto status = wait_all().front();
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("welcome"), std::string::npos) << status.err;
}

// The C library takes clone() where the kernel lacks clone3(), but not where that is forbidden.
TEST(WorkerThread, IsNamedInAnInitErrorWithItsLimitsIfItCannotBeStarted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer needs a thread of its own";
#endif
  const auto status = test::run({test::binary("hvd_without_calls"), "clone3=EPERM",
                                 test::binary("hvd_worker_program"), "place"});
  if (status.code == 77) GTEST_SKIP() << "no system call can be forbidden here";
  EXPECT_EQ(status.code, 1);
  for (const char* const said :
       {"InitError: hvd::init(): start thread hvd-", "ulimit -u", "Operation not permitted"}) {
    EXPECT_NE(status.err.find(said), std::string::npos) << status.err;
  }
}

TEST(WorkerEnd, AWorldThatAStaticDestructorWantsIsRefused) {
  const auto status = test::run({test::binary("hvd_worker_program"), "init-at-the-end"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_NE(status.out.find("hvd::init(): the program is ending"), std::string::npos) << status.out;
}

struct BadDescriptor {
  const char* value;
  const char* said;
};

TEST(WorkerDescriptor, IsAnInitErrorThatNamesTheVariableIfItIsInvalid) {
  for (const auto& [value, said] : {BadDescriptor{"three", "that is not a descriptor"},
                                    BadDescriptor{"-1", "that is not a descriptor"},
                                    BadDescriptor{"999", "is closed in this process"},
                                    BadDescriptor{"0", "is closed in this process"}}) {
    test::ProcessOptions options;
    options.environment[worker_link::kDescriptorVariable] = value;
    const auto status = test::run({test::binary("hvd_worker_program"), "place"}, options);
    EXPECT_EQ(status.code, 1) << value;
    EXPECT_NE(status.err.find(cat("HVD_WORKER_FD=", value, ": ")), std::string::npos) << status.err;
    EXPECT_NE(status.err.find(said), std::string::npos) << status.err;
  }
}

TEST(WorkerAlone, IsAWorldOfOne) {
  test::ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  for (const auto* scenario : {"place", "no-shutdown"}) {
    const auto status = test::run({test::binary("hvd_worker_program"), scenario}, options);
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_EQ(status.out, "rank 0 of 1, local 0 of 1, cross 0 of 1, homogeneous, sum 1\n");
  }
  const auto protocol = test::run({test::binary("hvd_worker_program"), "protocol"}, options);
  EXPECT_EQ(protocol.code, 0) << protocol.err;
  expect_nothing_more(protocol);
}

TEST(WorkerSettings, AreAnInitErrorThatNamesTheVariableIfTheyAreInvalid) {
  for (const auto* const variable : {"HVD_FUSION_THRESHOLD", "HVD_DETERMINISTIC", "HVD_TRANSPORT",
                                     "HOROVOD_DYNAMIC_PROCESS_SETS"}) {
    test::ProcessOptions options;
    options.environment[worker_link::kDescriptorVariable] = "";
    options.environment[variable] = "lots";
    const auto status = test::run({test::binary("hvd_worker_program"), "place"}, options);
    EXPECT_EQ(status.code, 1) << variable;
    EXPECT_NE(status.err.find(variable), std::string::npos) << status.err;
    EXPECT_NE(status.err.find("lots"), std::string::npos) << status.err;
  }
}

TEST(WorkerSettings, ATraceThatCannotBeWrittenIsAnInitErrorThatNamesThePath) {
  const test::TemporaryDirectory directory;
  const auto text = directory.file("text", "no directory").string();
  for (const auto& [variable, value] : std::map<std::string, std::string>{
           {"HVD_TIMELINE", text + "/t.json"}, {"HVD_FLIGHT_RECORDER", text}}) {
    test::ProcessOptions options;
    options.environment[worker_link::kDescriptorVariable] = "";
    options.environment[variable] = value;
    const auto status = test::run({test::binary("hvd_worker_program"), "place"}, options);
    EXPECT_EQ(status.code, 1) << variable;
    EXPECT_NE(status.err.find("InitError"), std::string::npos) << status.err;
    EXPECT_NE(status.err.find(value), std::string::npos) << status.err;
  }
}

TEST_F(Workers, RecordATimelineBetweenStartAndStop) {
  const test::TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  ::setenv("TIMELINE_OF_TEST", path.c_str(), 1);
  start_all(3, "timeline");
  ::unsetenv("TIMELINE_OF_TEST");
  const auto all = wait_all();
  for (const auto& status : all) EXPECT_EQ(status.code, 0) << status.out << status.err;
  EXPECT_NE(all[0].out.find("/dev/null: it is not a regular file"), std::string::npos);
  EXPECT_NE(all[0].out.find("/no/such/directory/t.json"), std::string::npos) << all[0].out;
  EXPECT_NE(all[0].err.find("no timeline is being recorded; the call has no effect"),
            std::string::npos)
      << all[0].err;
  EXPECT_NE(all[0].err.find("a timeline is already being recorded; the call has no effect"),
            std::string::npos)
      << all[0].err;
  const auto timeline = test::expect_right_timeline(path);
  EXPECT_EQ(timeline.ranks_with("ALLREDUCE"), (std::set<int>{0, 1, 2}));
  EXPECT_EQ(timeline.ranks_with("CYCLE_START"), (std::set<int>{0}));
  EXPECT_GE(timeline.count(0, "ALLREDUCE"), 20);
  EXPECT_LE(timeline.count(0, "ALLREDUCE"), 21) << "what came before and after is not in it";
}

TEST_F(Workers, RecordFromInitToShutdownWithTheVariable) {
  const test::TemporaryDirectory directory;
  const auto path = (directory.path() / "t.json").string();
  ::setenv("HVD_TIMELINE", path.c_str(), 1);
  start_all(4, "no-shutdown");
  ::unsetenv("HVD_TIMELINE");
  for (const auto& status : wait_all()) EXPECT_EQ(status.code, 0) << status.err;
  const auto timeline = test::expect_right_timeline(path);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(timeline.count(rank, "ALLREDUCE"), 1) << rank;
  EXPECT_EQ(timeline.processes.at(3), "rank 3 on b#1");
}

TEST(WorkerAlone, ArmedTimelineRecordsNothingBeforeItIsStarted) {
  const test::TemporaryDirectory directory;
  test::ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  options.environment["HOROVOD_TIMELINE"] = "DYNAMIC";
  options.working_directory = directory.path();
  EXPECT_EQ(test::run({test::binary("hvd_worker_program"), "place"}, options).code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(WorkerAlone, ASignalMakesItWriteItsFlightRecorderAndItLivesOn) {
  const test::TemporaryDirectory directory;
  const auto into = directory.path() / "made" / "by it";
  test::ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  options.environment["HVD_FLIGHT_RECORDER"] = into.string();
  Process process({test::binary("hvd_worker_program"), "wait"}, options);
  ASSERT_TRUE(process.wait_for_output("sum 1"));
  for (int time = 0; time < 2; ++time) {
    process.signal(SIGUSR1);
    ASSERT_TRUE(test::eventually(
        [&] { return std::filesystem::exists(into / "flight-recorder.rank-0.0.json"); }));
    std::filesystem::remove(into / "flight-recorder.rank-0.0.json");
  }
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().signal, SIGTERM);
}

TEST(WorkerAlone, AProgramsOwnHandlerOfTheSignalStands) {
  test::ProcessOptions options;
  options.environment[worker_link::kDescriptorVariable] = "";
  EXPECT_EQ(test::run({test::binary("hvd_worker_program"), "own-signal"}, options).code, 0);
}

}  // namespace
}  // namespace hvd
