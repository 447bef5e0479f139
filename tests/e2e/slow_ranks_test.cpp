// Slow ranks are named, and nobody else is.
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

using Json = nlohmann::json;

// Lets a process run for a third of the time.
class Throttle {
 public:
  explicit Throttle(pid_t pid) : pid_(pid), thread_([this] { run(); }) {}
  ~Throttle() {
    ends_ = true;
    thread_.join();
  }
  Throttle(const Throttle&) = delete;
  Throttle& operator=(const Throttle&) = delete;

 private:
  void run() const {
    constexpr std::chrono::milliseconds kSlice{15};
    while (!ends_) {
      kill_one(pid_, SIGSTOP);
      std::this_thread::sleep_for(2 * kSlice);
      kill_one(pid_, SIGCONT);
      std::this_thread::sleep_for(kSlice);
    }
  }

  pid_t pid_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

// Threads that want a processor all the time.
class Load {
 public:
  explicit Load(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (!ends_) {
        }
      });
    }
  }
  ~Load() {
    ends_ = true;
    for (auto& thread : threads_) thread.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::atomic<bool> ends_ = false;
  std::vector<std::thread> threads_;
};

class SlowRanksTest : public AskedJobTest {
 protected:
  // The process of this rank, as hvdrun knows it.
  Json member(int rank) {
    const Json status = Json::parse(run_job({"status", "--json"}).out);
    return status.at("world").at("members").at(static_cast<std::size_t>(rank));
  }
};

TEST_F(SlowRanksTest, NightlyARankWithAThirdOfItsProcessorIsNamed) {
  Process& job = start_training({"-np", "3", "--min-np", "3"}, {"--step", "0", "--work", "200000"});
  ASSERT_TRUE(step_logs().wait_for_step(3)) << job.err();
  const pid_t slow = member(1).at("pid").get<pid_t>();
  {
    const Throttle throttle(slow);
    ASSERT_TRUE(job.wait_for_error("is slow: ")) << job.err() << run_job({"status"}).out;
    EXPECT_NE(job.err().find("rank 1 on localhost#1 is slow: the other ranks "
                             "wait for it for "),
              std::string::npos)
        << job.err();

    const Json work = member(1).at("work");
    EXPECT_EQ(work.at("slow"), true) << work;
    EXPECT_GT(work.at("late").get<double>(), 0.25) << work;
    EXPECT_EQ(member(0).at("work").at("slow"), false);
    const std::string words = run_job({"status"}).out;
    EXPECT_NE(words.find("slow: rank 1 on localhost#1"), std::string::npos) << words;
  }

  EXPECT_TRUE(job.wait_for_error("is slow no longer")) << job.err();
  finish(job);
}

TEST_F(SlowRanksTest, NightlyNobodyIsNamedOnABusyMachine) {
  const Load load(20);
  Process& job = start_training({"-np", "3", "--min-np", "3"}, {"--step", "0", "--work", "20000"});
  ASSERT_TRUE(step_logs().wait_for_step(3)) << job.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(60)) << job.err();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(eventually([&] {
      const Json work = member(rank).at("work");
      return work.is_object() && work.at("waited").is_number() && work.at("steps") > 30;
    })) << member(rank);
  }
  const ExitStatus end = finish(job);
  EXPECT_EQ(end.err.find("slow"), std::string::npos) << end.err;
}

}  // namespace
}  // namespace hvd::test
