// The file that keeps the state of a suspended job: it is read whole, as it was written, or not at
// all, whatever became of it on the way.
#include "worker/elastic/saved_state.h"

#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/text.h"
#include "base/wire.h"
#include "tests/support/process.h"

namespace hvd::worker {
namespace {

using elastic::CommitMode;
using elastic::detail::handler_of;
using test::read_file;

constexpr std::uint64_t kStep = 17;  // in the ledger

// By nobody who gives up.
Status save_state(const std::string& file, Store& store) {
  SaveMeter meter;
  return worker::save_state(file, store, kStep, meter, false);
}

// The state of a small program.
struct Program {
  std::string weights;
  std::int64_t step = 0;
  Store store;

  explicit Program(CommitMode mode = CommitMode::copy) : store(mode) {
    EXPECT_TRUE(store.add("weights", handler_of(weights)).ok());
    EXPECT_TRUE(store.add("step", handler_of(step)).ok());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

class SavedState : public testing::Test {
 protected:
  // Writes `weights` and `step` into file().
  void save(const std::string& weights, std::int64_t step, CommitMode mode = CommitMode::copy) {
    Program program(mode);
    program.weights = weights;
    program.step = step;
    program.store.keep({1, 1});
    const Status saved = save_state(file(), program.store);
    ASSERT_TRUE(saved.ok()) << saved.to_string();
  }
  void write(const std::string& bytes) { std::ofstream(file()) << bytes; }
  // The result of reading; checks that nothing has changed if that is an error.
  Status read() {
    Program program;
    program.weights = "as before";
    program.step = -1;
    Status status = read_saved_state(file(), program.store).status();
    EXPECT_EQ(program.weights, "as before");
    EXPECT_EQ(program.step, -1);
    return status;
  }
  void expect_refused(Code code, const std::string& word) {
    const Status status = read();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find(file()), std::string::npos) << status.to_string();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      found.push_back(entry.path().filename());
    }
    return found;
  }
  std::string file() const { return (directory_.path() / "state").string(); }

  const test::TemporaryDirectory directory_;
};

TEST_F(SavedState, IsTakenUpAsItWasInEitherMode) {
  for (const CommitMode mode : {CommitMode::copy, CommitMode::mark}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5'000'000}}) {
      const std::string weights(size, 'w');
      save(weights, 42, mode);
      EXPECT_EQ(names(), std::vector<std::string>{"state"});
      struct stat about {};
      ASSERT_EQ(::stat(file().c_str(), &about), 0);
      EXPECT_EQ(about.st_mode & 0777, 0600U);

      Program next(mode);
      next.weights = "another";
      const auto step = read_saved_state(file(), next.store);
      ASSERT_TRUE(step.ok()) << step.status().to_string();
      EXPECT_EQ(*step, kStep);
      next.store.take_over({5, 0});
      EXPECT_EQ(next.weights, weights);
      EXPECT_EQ(next.step, 42);
      EXPECT_EQ(next.store.holds(), (CommitId{5, 0}));
    }
  }
}

TEST_F(SavedState, ANewOneTakesThePlaceOfTheOld) {
  save("old", 1);
  save("newer", 2);
  EXPECT_EQ(names(), std::vector<std::string>{"state"});
  Program program;
  ASSERT_TRUE(read_saved_state(file(), program.store).ok());
  program.store.take_over({1, 0});
  EXPECT_EQ(program.weights, "newer");

  EXPECT_TRUE(remove_saved_state(file()).ok());
  EXPECT_TRUE(remove_saved_state(file()).ok()) << "it is gone already";
  EXPECT_EQ(read().code(), Code::not_found);
}

TEST_F(SavedState, IsRefusedWhereverItIsCutOff) {
  save("0123456789", 7);
  const std::string whole = read_file(file());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    const Status status = read();
    EXPECT_EQ(status.code(), Code::data_loss) << size << " bytes: " << status.to_string();
  }
  write(whole + "x");
  expect_refused(Code::data_loss, "its size is not the one that it names");
}

TEST_F(SavedState, OfWhichAnyBitHasChangedIsRefused) {
  save("0123456789", 7);
  const std::string whole = read_file(file());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(static_cast<unsigned char>(damaged[at]) ^ (1U << bit));
      write(damaged);
      EXPECT_FALSE(read().ok()) << "bit " << bit << " of byte " << at;
    }
  }
  write(whole);
  Program program;
  EXPECT_TRUE(read_saved_state(file(), program.store).ok()) << "the file itself was good";
}

TEST_F(SavedState, TellsHowFarItIsAndIsLeftWhenItIsGivenUp) {
  Program program;
  program.weights = std::string(50 << 20, 'w');
  program.store.keep({1, 1});
  SaveMeter meter;
  const Status given_up = worker::save_state(file(), program.store, kStep, meter, true);
  EXPECT_EQ(given_up.code(), Code::aborted);
  EXPECT_EQ(names(), std::vector<std::string>{});
  EXPECT_FALSE(meter.read().is_in_place);

  ASSERT_TRUE(worker::save_state(file(), program.store, kStep, meter, false).ok());
  EXPECT_GT(meter.read().total_bytes, program.weights.size());
  EXPECT_EQ(meter.read().written_bytes, meter.read().total_bytes);
  EXPECT_TRUE(meter.read().is_in_place);
  Program again;
  ASSERT_TRUE(read_saved_state(file(), again.store).ok()) << "all pieces are there";
}

TEST_F(SavedState, OfAnotherKindIsRefusedByWhatItIs) {
  write("not such a file, but long enough for a head");
  expect_refused(Code::data_loss, "it is not the state of a job");

  save("weights", 7);
  std::string later = read_file(file());
  later.replace(8, 4, WireWriter().u32(3).take());
  write(later);
  expect_refused(Code::failed_precondition, "it is of version 3; this hvd reads version 2");

  Store other(CommitMode::copy);
  std::string weights;
  ASSERT_TRUE(other.add("weights", handler_of(weights)).ok());
  save("weights", 7);
  const Status status = read_saved_state(file(), other).status();
  EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
  EXPECT_NE(status.message().find("the state of another program"), std::string::npos)
      << status.to_string();
}

TEST_F(SavedState, IsRefusedIfOthersCouldHaveWrittenIt) {
  save("weights", 7);
  ASSERT_EQ(::chmod(file().c_str(), 0666), 0);
  EXPECT_EQ(read().code(), Code::failed_precondition);
  std::filesystem::remove(file());
  std::filesystem::create_directory(file());
  EXPECT_FALSE(read().ok());
  std::filesystem::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_FALSE(read().ok());
}

TEST_F(SavedState, IsAnErrorIfItCannotBeWrittenAndLeavesNothing) {
  Program program;
  program.store.keep({1, 1});
  const std::string nowhere = (directory_.path() / "none" / "state").string();
  const Status missing = save_state(nowhere, program.store);
  EXPECT_FALSE(missing.ok());
  EXPECT_NE(missing.message().find(cat("keep the state in ", nowhere)), std::string::npos)
      << missing.to_string();

  // It is known when the job begins.
  const Status early = read_saved_state(nowhere, program.store).status();
  EXPECT_EQ(early.code(), Code::failed_precondition);
  EXPECT_TRUE(early.message().starts_with(cat("keep the state in ", nowhere, ": open directory ")))
      << early.to_string();
}

// Whether a process has a file open in this directory.
bool has_open_file_in(pid_t process, const std::filesystem::path& directory) {
  std::error_code gone;
  const std::filesystem::directory_iterator open_files(cat("/proc/", process, "/fd"), gone);
  for (const auto& entry : open_files) {
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.string().starts_with(directory.string() + "/")) return true;
  }
  return false;
}

// In a sticky directory it could be a file of another user, which only root can replace.
TEST_F(SavedState, StaysUnderAnotherNameIfItsOwnWasTaken) {
  std::filesystem::create_directory(file());
  Program program;
  program.weights = "weights";
  program.step = 3;
  program.store.keep({1, 1});
  const Status saved = save_state(file(), program.store);
  EXPECT_FALSE(saved.ok());
  const auto left = names();
  ASSERT_EQ(left.size(), 2U);
  const std::string beside = left[0] == "state" ? left[1] : left[0];
  EXPECT_NE(saved.message().find(cat("the whole state is in ", beside)), std::string::npos)
      << saved.message();

  std::filesystem::remove(file());
  std::filesystem::rename(directory_.path() / beside, file());
  Program next;
  ASSERT_TRUE(read_saved_state(file(), next.store).ok());
  next.store.take_over({1, 0});
  EXPECT_EQ(next.weights, "weights");
  EXPECT_EQ(next.step, 3);
}

// A worker with 64 MB of state is killed as soon as it has the new file open. On a busy machine it
// may have written all of it by then.
TEST_F(SavedState, OfAWorkerThatIsKilledWhileItWritesLeavesNothing) {
  if (!UniqueFd(::open(directory_.path().c_str(), O_WRONLY | O_TMPFILE, S_IRUSR))) {
    GTEST_SKIP() << "this file system has no files without names";
  }
  bool was_in_time = false;
  for (int i = 0; i < 10 && !was_in_time; ++i) {
    save("old", 1);
    const std::string old = read_file(file());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Program program;
      program.weights = std::string(64 << 20, 'w');
      program.store.keep({1, 1});
      ::_exit(save_state(file(), program.store).ok() ? 0 : 1);
    }
    siginfo_t ended{};
    while (!has_open_file_in(child, directory_.path()) && ended.si_pid == 0) {
      ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    ::kill(child, SIGKILL);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(names(), std::vector<std::string>{"state"});
    was_in_time = read_file(file()) == old;
  }
  EXPECT_TRUE(was_in_time);
}

// As a full disk: the file may not grow beyond a limit, which comes with a signal. The old state
// stays, and so does the worker.
TEST_F(SavedState, LeavesTheOldOneAsItWasIfItDoesNotFit) {
  save("old", 1);
  const std::string old = read_file(file());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr rlimit kSmall{10'000, 10'000};
    if (::setrlimit(RLIMIT_FSIZE, &kSmall) != 0) ::_exit(2);
    Program program;
    program.weights = std::string(1'000'000, 'w');
    program.store.keep({1, 1});
    const Status status = save_state(file(), program.store);
    ::_exit(!status.ok() && status.message().find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(names(), std::vector<std::string>{"state"});
  EXPECT_EQ(read_file(file()), old);
}

}  // namespace
}  // namespace hvd::worker
