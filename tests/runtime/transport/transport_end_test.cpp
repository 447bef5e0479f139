// How what is under way on our transport ends before its time: aborts from any thread, ranks that
// are killed, and that nothing is left of it.
#include <csignal>
#include <dirent.h>
#include <fstream>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;
using Sum = void (*)(void*, const void*, const void*, std::size_t);

double milliseconds_since(TimePoint begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::size_t entries_of(const char* path) {
  std::size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path), &::closedir);
  while (::readdir(directory.get()) != nullptr) ++count;
  return count;
}
std::size_t descriptors() { return entries_of("/proc/self/fd"); }
std::size_t threads() { return entries_of("/proc/self/task"); }
std::size_t resident_megabytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) >> 20;
}

void allreduce(const std::shared_ptr<gloo::Context>& context, std::vector<float>& data) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
  gloo::allreduce(options);
}

class ManyAborts {
 public:
  static constexpr int kSize = 8;
  static constexpr std::size_t kElements = 1 << 20;

  // Eight ranks reduce 4 MB again and again, until a random one is aborted from outside; returns
  // how long its own call took to end.
  double round(unsigned seed) {
    std::mt19937 random(seed);
    const int victim = static_cast<int>(random() % kSize);
    const int after = static_cast<int>(random() % 3) + 1;
    const auto pause = std::chrono::microseconds(random() % 5000);
    Hub addresses(kSize);
    Hub end(kSize);
    std::atomic<int> rounds = 0;
    std::atomic<TimePoint> aborted{TimePoint{}};
    double victim_took = 0;
    std::vector<std::thread> ranks;
    ranks.reserve(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto mesh = make_tcp_mesh(mesh_options(rank, kSize, seed));
        connect_through(addresses, rank, *mesh);
        const auto context = gloo_on(*mesh);
        std::thread aborter;
        if (rank == victim) {
          aborter = std::thread([&] {
            while (rounds < after * kSize) std::this_thread::yield();
            std::this_thread::sleep_for(pause);  // anywhere in it
            aborted = Clock::now();
            mesh->abort({Code::aborted, "the test has had enough"});
          });
        }
        auto& data = data_.at(static_cast<std::size_t>(rank));
        std::string error;
        while (error.empty()) {
          try {
            allreduce(context, data);
            ++rounds;
          } catch (const gloo::IoException& caught) {
            error = caught.what();
          }
        }
        if (rank == victim) {
          victim_took = milliseconds_since(aborted);
          EXPECT_EQ(error, "the test has had enough");
        } else {
          EXPECT_NE(error.find("rank "), std::string::npos) << error;
        }
        if (aborter.joinable()) aborter.join();
        EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
      });
    }
    for (auto& rank : ranks) rank.join();
    return victim_took;
  }

 private:
  std::array<std::vector<float>, kSize> data_ = [] {
    std::array<std::vector<float>, kSize> data;
    data.fill(std::vector<float>(kElements, 1));
    return data;
  }();
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kAborts = 20;
constexpr std::size_t kMegabytesMore = 1024;  // what was freed is kept aside; leaks show otherwise
#else
constexpr int kAborts = 200;
constexpr std::size_t kMegabytesMore = 64;
#endif

// With one socket for each pair, and several.
class TransportAbort : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sockets, TransportAbort, ::testing::Values(1, 3));

TEST_P(TransportAbort, NightlyTwoHundredDuringAllreducesLeaveNothingBehind) {
  ManyAborts aborts;
  for (unsigned seed = 0; seed < 5; ++seed) aborts.round(seed);  // whatever is kept for ever
  const auto descriptors_before = descriptors();
  const auto threads_before = threads();
  const auto memory_before = resident_megabytes();
  std::vector<double> took;
  const int count = GetParam() == 1 ? kAborts : kAborts / 10;
  for (int i = 0; i < count; ++i) took.push_back(aborts.round(static_cast<unsigned>(100 + i)));
  EXPECT_EQ(descriptors(), descriptors_before);
  EXPECT_EQ(threads(), threads_before);
  EXPECT_LT(resident_megabytes(), memory_before + kMegabytesMore);
  std::sort(took.begin(), took.end());
  std::printf(
      "%d aborts: the aborted rank's call ended within %.2f ms (median), %.2f (95 %%), %.2f "
      "(worst)\n",
      count, took[took.size() / 2], took[took.size() * 95 / 100], took.back());
}

TEST_P(TransportAbort, EndsEveryWaitOfTheRankAndAllThatComesLater) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    if (rank == 1) return;
    constexpr int kWaits = 6;
    std::atomic<int> begun = 0;
    std::vector<std::thread> waits;
    waits.reserve(kWaits);
    for (int i = 0; i < kWaits; ++i) {
      waits.emplace_back([&, i] {
        Bytes bytes(mesh, i % 2 == 0 ? 100 : 64 << 20);
        const auto error = error_of([&] {
          if (i % 2 == 0) {
            bytes.receive(1, static_cast<std::uint64_t>(i));
          } else {
            bytes.send(1, static_cast<std::uint64_t>(i));
          }
          ++begun;
          i % 2 == 0 ? (void)bytes.wait_received() : bytes.wait_sent();
        });
        EXPECT_EQ(error, "a new world is coming");
      });
    }
    while (begun < kWaits) std::this_thread::yield();
    EXPECT_FALSE(mesh.aborted());
    mesh.abort({Code::aborted, "a new world is coming"});
    mesh.abort({Code::aborted, "too late"});
    EXPECT_TRUE(mesh.aborted());
    for (auto& wait : waits) wait.join();
    Bytes late(mesh, 1);
    EXPECT_EQ(error_of([&] { late.send(1, 1); }), "a new world is coming");
    EXPECT_EQ(error_of([&] { late.receive(1, 1); }), "a new world is coming");
    EXPECT_EQ(error_of([&] { late.wait_received(); }), "a new world is coming");
  });
}

TEST_P(TransportAbort, ABufferMayOutliveItsMesh) {
  auto mesh = make_tcp_mesh(mesh_options(0, 2));
  auto bytes = std::make_unique<Bytes>(*mesh, 10);
  bytes->receive(1, 1);
  mesh.reset();
  EXPECT_EQ(error_of([&] { bytes->wait_received(); }), "the data connections were closed");
  bytes.reset();
}

TEST_P(TransportAbort, BeforeAnythingWasConnectedIsFine) {
  for (int i = 0; i < 20; ++i) {
    const auto mesh = make_tcp_mesh(mesh_options(0, 3));
    std::thread([&] { mesh->abort({Code::aborted, "no"}); }).join();
    EXPECT_FALSE(mesh->connect({"", "", ""}).ok());
    EXPECT_FALSE(mesh->connect({mesh->address(), mesh->address(), mesh->address()}).ok());
  }
}

// --- ranks as processes -------------------------------------------------------------------------

struct Board {
  static constexpr int kSize = 8;
  std::array<std::array<char, 256>, kSize> addresses = {};
  std::array<std::atomic<int>, kSize> published = {};
  std::array<std::atomic<int>, kSize> rounds = {};
  std::array<std::atomic<std::int64_t>, kSize> failed_at = {};  // nanoseconds of Clock
  std::array<std::array<char, 256>, kSize> error = {};
};

std::int64_t now_in_nanoseconds() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

[[noreturn]] void reduce_until_it_fails(Board& board, int rank) {
  ::alarm(120);  // never outlive the test
  const auto own = static_cast<std::size_t>(rank);
  const auto mesh = make_tcp_mesh(mesh_options(rank, Board::kSize));
  const auto address = mesh->address();
  std::copy(address.begin(), address.end(), board.addresses[own].begin());
  board.published[own] = static_cast<int>(address.size());
  std::vector<std::string> all;
  for (std::size_t r = 0; r < Board::kSize; ++r) {
    while (board.published[r] == 0) ::usleep(100);
    all.emplace_back(board.addresses[r].data(), static_cast<std::size_t>(board.published[r]));
  }
  if (!mesh->connect(all).ok()) ::_exit(3);
  const auto context = gloo_on(*mesh);
  std::vector<float> data(1 << 18, 1);
  try {
    for (;;) {
      allreduce(context, data);
      ++board.rounds[own];
    }
  } catch (const gloo::IoException& error) {
    board.failed_at[own] = now_in_nanoseconds();
    const std::string_view text(error.what());
    text.copy(board.error[own].data(), 255);
  }
  ::_exit(0);
}

class KilledRankOfAMesh : public ::testing::TestWithParam<int> {};

// No control plane here: the failure is known from the data connections alone.
TEST_P(KilledRankOfAMesh, IsAnErrorOnAllOthersAtOnce) {
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& board = *new (memory) Board;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < Board::kSize; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) reduce_until_it_fails(board, rank);
    pids.push_back(pid);
  }
  const auto victim = static_cast<std::size_t>(GetParam());
  const auto deadline = Clock::now() + kLong;
  while (board.rounds[victim] < 10 && Clock::now() < deadline) ::usleep(1000);
  ASSERT_GE(board.rounds[victim], 10);
  const auto killed_at = now_in_nanoseconds();
  ::kill(pids[victim], SIGKILL);
  double last = 0;
  for (std::size_t rank = 0; rank < Board::kSize; ++rank) {
    int status = 0;
    ASSERT_EQ(::waitpid(pids[rank], &status, 0), pids[rank]);
    if (rank == victim) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": " << status;
    EXPECT_NE(board.failed_at[rank], 0) << rank;
    EXPECT_NE(std::string_view(board.error[rank].data()).find("rank "), std::string_view::npos);
    last = std::max(last, static_cast<double>(board.failed_at[rank] - killed_at) / 1e6);
  }
  std::printf("rank %zu killed: the last of the others noticed it after %.2f ms\n", victim, last);
  ::munmap(memory, sizeof(Board));
}

INSTANTIATE_TEST_SUITE_P(Victims, KilledRankOfAMesh, ::testing::Values(0, 3, 7));

TEST(Transport, SaysThatAPeerIsNotThereWhenItRefusesToConnect) {
  const auto mesh = make_tcp_mesh(mesh_options(1, 2));
  auto gone = make_tcp_mesh(mesh_options(0, 2));
  const std::vector<std::string> addresses{gone->address(), mesh->address()};
  gone.reset();
  ASSERT_TRUE(mesh->connect(addresses).ok());
  Bytes bytes(*mesh, 10);
  const auto error = error_of([&] {
    bytes.receive(0, 1);
    bytes.wait_received();
  });
  EXPECT_NE(error.find("rank 0 at 127.0.0.1:"), std::string::npos) << error;
  EXPECT_NE(error.find("Connection refused"), std::string::npos) << error;
}

TEST(Transport, KnowsWhichRanksWereMissed) {
  const auto mesh = make_tcp_mesh(mesh_options(1, 3));
  const auto idle = make_tcp_mesh(mesh_options(2, 3));
  auto gone = make_tcp_mesh(mesh_options(0, 3));
  const std::vector<std::string> addresses{gone->address(), mesh->address(), idle->address()};
  gone.reset();
  ASSERT_TRUE(mesh->connect(addresses).ok());
  EXPECT_TRUE(mesh->missed().empty());
  Bytes bytes(*mesh, 10);
  error_of([&] {
    bytes.receive(0, 1);
    bytes.wait_received();
  });
  mesh->abort({Code::aborted, "the test is over"});
  EXPECT_EQ(mesh->missed(), (std::vector{0}));
}

}  // namespace
}  // namespace hvd::test
