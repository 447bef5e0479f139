// Costs that grow with the number of hosts and workers, and liveness checks under such a load: a
// real hvdrun, and agents that only pretend to start workers.
#include <csignal>
#include <gtest/gtest.h>
#include <thread>

#include "base/text.h"
#include "rendezvous/standalone.h"
#include "tests/support/free_address.h"
#include "tests/support/pretend_agents.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

class ManyAgents : public testing::Test {
 protected:
  void start_job(int workers, const std::vector<std::string>& words) {
    std::vector<std::string> command{binary("hvdrun"), "--join-bind", where_.to_string(),
                                     "--token-file",   token_,        "-np",
                                     cat(workers)};
    command.insert(command.end(), words.begin(), words.end());
    command.emplace_back("true");
    job_ = std::make_unique<Process>(command);
    ASSERT_TRUE(job_->wait_for_error("waiting at")) << job_->err();
  }

  PretendAgentsReport run_agents(PretendAgentsOptions options) {
    options.where = where_;
    const auto token = rendezvous::load_token(token_);
    EXPECT_TRUE(token.ok()) << token.status().to_string();
    const auto report = run_pretend_agents(*token, options, Clock::now() + kGenerous);
    EXPECT_TRUE(report.ok()) << report.status().to_string() << "\n" << job_->err();
    return report.ok() ? *report : PretendAgentsReport();
  }

  // In kilobytes.
  long peak_memory() const {
    for (const auto& line : split(read_file(cat("/proc/", job_->pid(), "/status")), '\n')) {
      if (line.starts_with("VmHWM:")) return std::atol(line.c_str() + 6);
    }
    return 0;
  }

  TemporaryDirectory directory_;
  std::string token_ = directory_.path() / "token";
  const SocketAddress where_ = free_address();
  std::unique_ptr<Process> job_;
};

// 1,600 workers and a short timeout: the driver processes heartbeats even under this load.
TEST_F(ManyAgents, NoHealthyHostIsLostWhileThousandsOfWorkersAreLaunched) {
  start_job(1'600, {"--heartbeat-timeout", "2"});
  const auto report = run_agents({.where = {}, .hosts = 200, .slots = 8});
  const auto status = job_->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(status.err.find("no sign of life"), std::string::npos) << status.err;
  EXPECT_EQ(report.launched, 1'600);
  EXPECT_EQ(report.said_goodbye, 200);
}

TEST_F(ManyAgents, ADriverThatWasStoppedForLongerThanTheTimeoutGoesOnWithAll) {
  start_job(20, {"--heartbeat-timeout", "0.5"});
  std::jthread wakes;
  PretendAgentsOptions options;
  options.hosts = 20;
  options.hold = std::chrono::milliseconds(3'000);
  options.on_all_launched = [&] {
    job_->signal(SIGSTOP);
    wakes = std::jthread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1'500));  // three timeouts
      job_->signal(SIGCONT);
    });
  };
  const auto report = run_agents(options);
  const auto status = job_->wait();
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(report.said_goodbye, 20);
}

struct Size {
  std::uint64_t bytes = 0;
  long peak = 0;
};

class Growth : public ManyAgents {
 protected:
  Size with_slots(int slots) {
    start_job(8 * slots, {});
    Size size;
    PretendAgentsOptions options;
    options.hosts = 8;
    options.slots = slots;
    options.on_all_launched = [&] { size.peak = peak_memory(); };
    size.bytes = run_agents(options).bytes;
    EXPECT_EQ(job_->wait().code, 0) << job_->err();
    return size;
  }
};

// The world is sent once to each host, and a worker's own frame contains only its own data.
TEST_F(Growth, TrafficAndMemoryOfHvdrunAreLinearInTheWorkers) {
  const Size some = with_slots(8);
  const Size twice = with_slots(16);
  const Size four_times = with_slots(32);
  EXPECT_LT(static_cast<double>(twice.bytes), 2.5 * static_cast<double>(some.bytes));
  EXPECT_LT(static_cast<double>(four_times.bytes), 2.5 * static_cast<double>(twice.bytes));
  EXPECT_GT(some.peak, 0);
  EXPECT_LT(four_times.peak, some.peak + 4'000) << "kB, for 256 workers and for 64";
}

}  // namespace
}  // namespace hvd::test
