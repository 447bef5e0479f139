// The file of a job that goes on: when its state is written, which one, and what becomes of a
// writing when the disk fails, the world changes or the work is done.
#include "worker/elastic/state_saver.h"

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/log.h"
#include "tests/support/process.h"
#include "tests/worker/elastic/progress_worlds.h"

namespace hvd::worker {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr TimePoint kStart{hours(1)};

std::string text_of(const Copy& copy) {
  const auto bytes = copy.bytes.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A disk that is done when the test says so, or when what is written was given up.
class SlowDisk {
 public:
  StateSaver::Write write() {
    return [this](const StateToSave& state, const std::atomic<bool>& is_given_up) {
      std::unique_lock lock(mutex_);
      written_.push_back(text_of(state.copy));
      changed_.notify_all();
      const auto is_over = [&] { return answer_.has_value() || is_given_up; };
      while (!changed_.wait_for(lock, std::chrono::milliseconds(1), is_over)) continue;
      if (!is_given_up) return *std::exchange(answer_, std::nullopt);
      ++given_up_;
      return Status(Code::aborted, "it was given up");
    };
  }
  // What has begun to be written so far.
  std::vector<std::string> written() const {
    const std::lock_guard lock(mutex_);
    return written_;
  }
  int given_up() const {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }
  bool has_begun(std::size_t times) const {
    return test::eventually([&] { return written().size() >= times; });
  }
  void answer(const Status& status) {
    const std::lock_guard lock(mutex_);
    answer_ = status;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> written_;
  std::optional<Status> answer_;
  int given_up_ = 0;
};

class StateSaverTest : public ::testing::TestWithParam<CommitMode> {
 protected:
  StateSaverTest() {
    EXPECT_TRUE(store_.add("weights", handler_of(weights_)).ok());
    store_.entered(1, 0);
  }
  void commit(const std::string& weights) {
    store_.mutate([&] { weights_ = weights; });
    if (GetParam() == CommitMode::copy) store_.keep(store_.next());
  }
  void begin(TimePoint now) { saver_.begin(store_, 0, now); }
  void finish(const Status& status = {}) {
    disk_.answer(status);
    saver_.wait();
  }

  std::string weights_;
  Store store_{GetParam()};
  SlowDisk disk_;
  StateSaver saver_{seconds(10), disk_.write()};
};

TEST_P(StateSaverTest, IsDueWhenTheTimeHasPassedAndNotBefore) {
  EXPECT_TRUE(saver_.is_due(kStart)) << "nobody knows when it was written last";
  saver_.count_from(kStart);
  EXPECT_FALSE(saver_.is_due(kStart + seconds(9)));
  EXPECT_TRUE(saver_.is_due(kStart + seconds(10)));
  commit("a");
  begin(kStart + seconds(12));
  finish();
  EXPECT_FALSE(saver_.is_due(kStart + seconds(21)));
  EXPECT_TRUE(saver_.is_due(kStart + seconds(22)));
  EXPECT_FALSE(StateSaver({}, disk_.write()).is_due(kStart + hours(100)));
}

TEST_P(StateSaverTest, NoOtherBeginsWhileOneIsBeingWritten) {
  commit("a");
  begin(kStart);
  ASSERT_TRUE(disk_.has_begun(1));
  EXPECT_TRUE(saver_.is_writing());
  EXPECT_FALSE(saver_.is_due(kStart + hours(1)));
  finish();
  EXPECT_FALSE(saver_.is_writing());
  EXPECT_TRUE(saver_.is_due(kStart + hours(1)));
}

TEST_P(StateSaverTest, WritesACopyWhileTheProgramGoesOn) {
  commit("the committed one");
  saver_.begin(store_, 0, kStart);
  for (const char* const weights : {"later", "later again", "latest"}) commit(weights);
  ASSERT_TRUE(disk_.has_begun(1));
  EXPECT_EQ(disk_.written(), std::vector<std::string>{"the committed one"});
  finish();
  begin(kStart + seconds(10));
  ASSERT_TRUE(disk_.has_begun(2));
  EXPECT_EQ(disk_.written().back(), "latest");
  finish();
}

TEST_P(StateSaverTest, AnErrorIsOneWarningAndTheNextTimeIsAnother) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_sink([&](std::string line) {
    const std::lock_guard lock(mutex);
    lines.push_back(std::move(line));
  });
  const Status full(Code::internal, "keep the state in FILE: write: No space left on device");
  commit("a");
  TimePoint now = kStart;
  const auto write = [&](const Status& status) {
    EXPECT_TRUE(saver_.is_due(now));
    begin(now);
    finish(status);
    EXPECT_FALSE(saver_.is_due(now + seconds(9))) << "not before it is due";
    now += seconds(10);
  };
  write(full);
  write(full);
  EXPECT_EQ(lines.size(), 1U);
  write({});
  write(full);
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 2U) << "there was a success in between";
  EXPECT_NE(lines[0].find("cannot keep the state in FILE: write: No space left on device; the "
                          "training goes on"),
            std::string::npos)
      << lines[0];
}

TEST_P(StateSaverTest, IsDueAtOnceWhenAWritingWasGivenUp) {
  commit("a");
  begin(kStart);
  ASSERT_TRUE(disk_.has_begun(1));
  saver_.give_up();
  saver_.wait();
  EXPECT_EQ(disk_.given_up(), 1);
  EXPECT_TRUE(saver_.is_due(kStart));
  saver_.clear();
  begin(kStart);
  ASSERT_TRUE(disk_.has_begun(2)) << "and the next one is not";
  EXPECT_EQ(disk_.given_up(), 1);
  finish();
}

TEST_P(StateSaverTest, ItsEndGivesUpWhatIsBeingWritten) {
  commit("a");
  {
    StateSaver saver(seconds(1), disk_.write());
    saver.begin(store_, 0, kStart);
    ASSERT_TRUE(disk_.has_begun(1));
  }
  EXPECT_EQ(disk_.given_up(), 1);
}

// ---- in worlds ----

class SavingInWorlds : public ElasticProgress, public ::testing::WithParamInterface<CommitMode> {
 protected:
  void SetUp() override {
    options_.mode = GetParam();
    state_file_ = {.name = (directory_.path() / "state").string(),
                   .job = "job1",
                   .every = std::chrono::nanoseconds(1)};
  }
  // To the disk of the machine, and only once it was given up.
  StateSaver::Write write_when_given_up() {
    return [this](const StateToSave& state, const std::atomic<bool>& is_given_up) {
      const Status status = disk_.write()(state, is_given_up);
      SaveMeter meter;
      const Status saved = save_copy(state_file_.name, state, meter, is_given_up);
      EXPECT_EQ(saved.code(), Code::aborted) << saved.to_string();
      return status;
    };
  }
  static void commit_weights(Worker& worker, CommitProtocol& protocol, const std::string& weights) {
    worker.progress.mutate([&] { worker.weights = weights; });
    const auto committed = commit(worker, protocol);
    EXPECT_TRUE(committed.ok()) << committed.status.to_string();
  }
  // The weights with which the next job begins.
  std::string weights_in_file() {
    Worker next("", options_);
    if (!read_saved_state(state_file_.name, next.progress.store()).ok()) return "";
    next.progress.store().take_over({9, 0});
    return next.weights;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  bool has_weights(const std::string& weights) {
    return test::eventually([&] { return weights_in_file() == weights; });
  }

  test::TemporaryDirectory directory_;
  StateOptions options_;
  SlowDisk disk_;
};

TEST_P(SavingInWorlds, WhatWasCommittedIsInTheFileAndTheNextJobHasIt) {
  add(2, options_);
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    if (rank == 0) {
      EXPECT_FALSE(std::filesystem::exists(state_file_.name));
    }
    commit_weights(worker, protocol, "committed");
    if (rank == 0) {
      EXPECT_TRUE(has_weights("committed"));
    }
  });
  // All are lost, with the rendezvous.
  workers_.clear();
  number_ = 0;
  EXPECT_TRUE(mark_.write({}).ok());
  add(3, options_);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.weights, "committed");
    EXPECT_TRUE(worker.progress.finish(protocol).ok());
  });
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_P(SavingInWorlds, NothingIsWrittenBeforeItIsDueNorWhatIsOnlyPrepared) {
  state_file_.write = disk_.write();
  add(1, options_);  // it is due at once
  state_file_.every = hours(1);
  Worker& patient = add("weights", options_);
  generation({&patient}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    for (int i = 0; i < 3; ++i) commit_weights(worker, protocol, "a");
  });
  EXPECT_TRUE(disk_.written().empty());

  number_ = 0;
  EXPECT_TRUE(mark_.write({}).ok());
  generation({workers_[0].get()}, [this](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    mark_.refuse({Code::unavailable, "it is lost"});
    EXPECT_FALSE(commit(worker, protocol).ok());
  });
  EXPECT_TRUE(disk_.written().empty());
}

TEST_P(SavingInWorlds, ARankThatIsNotRank0AnyMoreGivesUpAndTheNextOneWritesAtOnce) {
  state_file_.write = write_when_given_up();
  add(2, options_);
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    commit_weights(worker, protocol, "a");
    if (rank == 0) {
      EXPECT_TRUE(disk_.has_begun(1));
    }
  });
  EXPECT_EQ(disk_.given_up(), 0);
  generation({workers_[1].get(), workers_[0].get()},
             [this](int rank, Worker& worker, CommitProtocol& protocol) {
               begin(worker, protocol);
               if (rank == 1) {
                 EXPECT_TRUE(test::eventually([&] { return disk_.given_up() == 1; }));
               }
               (void)protocol.channel().barrier("it was given up");
               EXPECT_EQ(disk_.written().size(), 1U);
               (void)protocol.channel().barrier("none has begun");
               commit_weights(worker, protocol, "b");
               if (rank == 0) {
                 EXPECT_TRUE(disk_.has_begun(2));
               }
             });
  EXPECT_NE(disk_.written().back().find('b'), std::string::npos);
  workers_.clear();
  EXPECT_EQ(disk_.given_up(), 2);
  for (const auto& name : names()) EXPECT_EQ(name, "state.lock");
}

TEST_P(SavingInWorlds, TheWritingIsOverWhenTheWorkIsDone) {
  state_file_.write = write_when_given_up();
  add(2, options_);
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    commit_weights(worker, protocol, "a");
    if (rank == 0) {
      EXPECT_TRUE(disk_.has_begun(1));
    }
    EXPECT_TRUE(worker.progress.finish(protocol).ok());
    if (rank == 0) {
      EXPECT_EQ(disk_.given_up(), 1);
    }
  });
  EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_P(SavingInWorlds, TheWritingIsOverBeforeTheJobIsSuspended) {
  state_file_.write = write_when_given_up();
  add(2, options_);
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    commit_weights(worker, protocol, "older");
    if (rank == 0) {
      EXPECT_TRUE(disk_.has_begun(1));
    }
    commit_weights(worker, protocol, "newest");
    SaveMeter meter;
    const auto suspended = worker.progress.suspend(protocol, meter, [&](const Status&) {});
    EXPECT_TRUE(suspended.ok()) << suspended.status.to_string();
    if (rank == 0) {
      EXPECT_EQ(disk_.given_up(), 1);
    }
  });
  EXPECT_EQ(disk_.written().size(), 1U) << "not twice at a time";
  EXPECT_EQ(names(), std::vector<std::string>{"state"});
  EXPECT_EQ(weights_in_file(), "newest");
}

// The directory is gone, and comes again.
TEST_P(SavingInWorlds, TrainingGoesOnWhileTheFileCannotBeWritten) {
  const auto folder = directory_.path() / "folder";
  std::filesystem::create_directory(folder);
  state_file_.name = (folder / "state").string();
  add(1, options_);
  generation(all(), [&](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    std::filesystem::remove_all(folder);
    for (int i = 0; i < 3; ++i) commit_weights(worker, protocol, "lost");
    std::filesystem::create_directory(folder);
    EXPECT_TRUE(test::eventually([&] {
      commit_weights(worker, protocol, "kept");
      return weights_in_file() == "kept";
    }));
  });
}

INSTANTIATE_TEST_SUITE_P(Modes, StateSaverTest,
                         ::testing::Values(CommitMode::copy, CommitMode::mark),
                         [](const auto& info) {
                           return info.param == CommitMode::copy ? "Copy" : "Mark";
                         });
INSTANTIATE_TEST_SUITE_P(Modes, SavingInWorlds,
                         ::testing::Values(CommitMode::copy, CommitMode::mark),
                         [](const auto& info) {
                           return info.param == CommitMode::copy ? "Copy" : "Mark";
                         });

}  // namespace
}  // namespace hvd::worker
