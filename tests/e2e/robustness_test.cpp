// Disturbances from outside while a job runs: rubbish on its ports, a full disk, a reader that
// stopped reading.
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

using namespace std::chrono_literals;

// As much as the other side takes of it; whether it answers or hangs up, or no longer accepts
// anybody, is its own affair.
void send_rubbish(std::uint16_t port, const std::string& bytes) {
  const auto deadline = Clock::now() + 200ms;
  const auto connection = connect_tcp({"127.0.0.1", port}, deadline);
  if (connection.ok()) static_cast<void>(send_all(connection->get(), bytes, deadline));
}

class RobustnessTest : public JobTest {
 protected:
  static std::vector<std::string> rubbish() {
    return {"",
            "\n",
            "GET / HTTP/1.1\r\n\r\n",
            "PUT /global/0 HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
            std::string(64, '\0'),
            std::string(64, '\xff'),
            random_bytes(200),
            random_bytes(5000)};
  }
};

TEST_F(RobustnessTest, RubbishOnHvdrunsPortsChangesNothing) {
  const std::string go = directory() / "go";
  Process& job = start({"-np", "2", binary("e2e_stays"), "--until", go});
  wait_for_workers(job, "up", 2);
  const auto ports = listening_ports({job.pid()});
  EXPECT_GE(ports.size(), 1U) << "the rendezvous listens";
  for (const auto port : ports) {
    for (const auto& bytes : rubbish()) send_rubbish(port, bytes);
  }
  directory_file("go");
  EXPECT_EQ(job.wait().code, 0);
}

TEST_F(RobustnessTest, RubbishOnAWorkersPortsNeverHangsTheJob) {
  Process& job = start({"-np", "3", binary("e2e_works")});
  const auto workers = wait_for_workers(job, "working", 3);
  for (const auto& [rank, pid] : workers) {
    for (const auto port : listening_ports({pid})) {
      for (const auto& bytes : rubbish()) send_rubbish(port, bytes);
    }
  }
  // Stock Gloo may end a worker that hears rubbish; then the job has ended and says so. Else it
  // still runs, and ends when it is told to.
  job.signal(SIGTERM);
  const ExitStatus end = job.wait();
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(end.signal, 0) << "hvdrun itself is unharmed";
  EXPECT_FALSE(end.err.empty());
}

TEST_F(RobustnessTest, ASmallStackIsEnoughForTheAgent) {
  const ExitStatus end = run({"sh", "-c", "ulimit -s 64; exec \"$0\" -np 2 true", binary("hvdrun")},
                             {.environment = {{"HVD_E2E_MARK", mark()}}});
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(RobustnessTest, AFullDiskIsAWarningThatNamesTheFile) {
  const auto folder = directory() / "logs";
  std::filesystem::create_directories(folder / "rank.0");
  std::filesystem::create_symlink("/dev/full", folder / "rank.0" / "stdout");
  const ExitStatus end = run_job({"--output-filename", folder, "-np", "1", "sh", "-c", "echo one"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find((folder / "rank.0" / "stdout").string()), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("No space left on device"), std::string::npos) << end.err;
}

TEST_F(RobustnessTest, AFolderThatCannotBeMadeIsAnErrorBeforeAnythingStarts) {
  const std::string file = directory_file("taken");
  const ExitStatus end = run_job({"--output-filename", file, "-np", "1", "echo", "started"});
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find(file), std::string::npos) << end.err;
}

TEST_F(RobustnessTest, AClosedStdoutDoesNotHangTheJob) {
  // `hvdrun ... | head -1`: the reader goes while the workers still write.
  const ExitStatus end =
      run({"sh", "-c",
           binary("hvdrun") + " -np 2 sh -c 'i=0; while [ $i -lt 3000 ]; do echo line $i; "
                              "i=$((i+1)); done' | head -n 1"},
          {.environment = {{"HVD_E2E_MARK", mark()}}, .working_directory = directory()});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of(end.out).size(), 1U);
}

TEST_F(RobustnessTest, AStdoutThatWasNeverOpenIsAnErrorNotSilence) {
  const ExitStatus end = run({"sh", "-c", binary("hvdrun") + " -np 2 echo hello >&-"},
                             {.environment = {{"HVD_E2E_MARK", mark()}}});
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("standard output"), std::string::npos) << end.err;
}

TEST_F(RobustnessTest, TooFewDescriptorsAreAnErrorNotACrash) {
  // From far too few to enough: each in another place of the program.
  for (int limit = 6; limit < 20; ++limit) {
    const ExitStatus end = run({"sh", "-c",
                                "ulimit -n " + std::to_string(limit) + "; exec " +
                                    binary("hvdrun") + " -np 1 sh -c 'exit 3'"},
                               {.environment = {{"HVD_E2E_MARK", mark()}}});
    EXPECT_EQ(end.signal, 0) << limit << ": " << end.err;
    EXPECT_NE(end.code, 0) << limit;
    EXPECT_FALSE(end.err.empty()) << limit;
  }
}

TEST_F(RobustnessTest, ADeletedDirectoryMattersOnlyToWorkersThatStartThere) {
  const std::string in_deleted =
      "mkdir gone && cd gone && rmdir ../gone && exec " + binary("hvdrun");
  const ProcessOptions options{.environment = {{"HVD_E2E_MARK", mark()}},
                               .working_directory = directory()};
  const ExitStatus here = run({"sh", "-c", in_deleted + " -np 1 pwd"}, options);
  EXPECT_EQ(here.code, 1);
  EXPECT_NE(here.err.find("the current directory"), std::string::npos) << here.err;
  const ExitStatus elsewhere =
      run({"sh", "-c", in_deleted + " --working-directory / -np 1 pwd"}, options);
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_EQ(elsewhere.out, "[0]<stdout>:/\n");
}

}  // namespace
}  // namespace hvd::test
