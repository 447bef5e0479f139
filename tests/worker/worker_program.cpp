// A worker as users write them, for worker_test.cpp: `worker_program SCENARIO`. It prints what it
// found; anything unexpected ends it with 1.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/hvd.h>

namespace {

int entries_of(const char* directory) {
  int count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

float sum_of_ranks() {
  std::vector<float> values{static_cast<float>(hvd::rank() + 1)};
  hvd::allreduce(values, {.name = "ranks", .op = hvd::Sum});
  return values[0];
}

void place() {
  std::printf("rank %d of %d, local %d of %d, cross %d of %d, %s, sum %g\n", hvd::rank(),
              hvd::size(), hvd::local_rank(), hvd::local_size(), hvd::cross_rank(),
              hvd::cross_size(), hvd::is_homogeneous() ? "homogeneous" : "heterogeneous",
              static_cast<double>(sum_of_ranks()));
  std::fflush(stdout);
}

volatile std::sig_atomic_t signals_of_our_own = 0;

// Wants a world again while the program ends.
class Late {
 public:
  ~Late() {
    if (!wanted) return;
    try {
      hvd::init();
    } catch (const hvd::InitError& error) {
      std::printf("%s\n", error.what());
    }
  }
  bool wanted = false;
};
Late late;

// Every call after the world has failed, and after it has been left.
bool same_cause_from_now_on(const std::string& cause) {
  std::vector<float> data(3);
  const std::function<void()> calls[] = {
      [&] { hvd::allreduce(data, {.name = "later"}); },
      [&] { hvd::allgather(data); },
      [&] { hvd::broadcast_object("object"); },
      [&] { hvd::barrier(); },
      [&] {
        hvd::add_process_set({0, 2});
      },
  };
  for (const auto& call : calls) {
    try {
      call();
      return false;
    } catch (const hvd::CollectiveError& error) {
      if (error.what() != cause) return false;
    }
  }
  hvd::shutdown();
  try {
    hvd::barrier();
  } catch (const hvd::NotInitializedError& error) {
    return std::string(error.what()).find(cause) != std::string::npos;
  }
  return false;
}

long resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
  }
  return 0;
}

class NeverReady final : public hvd::ReadyEvent {
 public:
  bool ready() const override { return false; }
  void wait() override { throw std::runtime_error("the stream is lost"); }
};

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(what);
}

template <typename Error, typename Call>
void expect_throws(const char* what, Call call) {
  try {
    call();
  } catch (const Error&) {
    return;
  }
  throw std::runtime_error(what);
}

// One membership from init() to shutdown(), with every kind of call; some calls fail.
void one_round(int round) {
  hvd::init({.dynamic_process_sets = true});
  const int sum = hvd::size() * (hvd::size() + 1) / 2;
  expect(sum_of_ranks() == static_cast<float>(sum), "a wrong sum");
  std::vector<std::vector<float>> parts(3, std::vector<float>(1000, 1.0F));
  std::vector<hvd::TensorView> views(parts.begin(), parts.end());
  hvd::grouped_allreduce(views, {.name = "group", .op = hvd::Sum});
  expect(parts[2][999] == static_cast<float>(hvd::size()), "a wrong sum of a group");
  if (hvd::size() > 1) {
    const auto set = hvd::add_process_set({hvd::size() - 1});
    if (hvd::rank() == hvd::size() - 1) {
      std::vector<float> values(10, 2.0F);
      hvd::allreduce(values, {.name = "of the set", .op = hvd::Sum, .process_set = set});
      expect(values[9] == 2.0F, "a wrong sum of a set");
    }
    if (round % 2 == 0) hvd::remove_process_set(set);
  }
  if (round % 5 == 1 && hvd::size() > 1) {
    expect_throws<hvd::InvalidArgumentError>("a mismatch was not seen", [] {
      std::vector<float> values(static_cast<std::size_t>(1 + hvd::rank()));
      hvd::allreduce(values, {.name = "of different shapes"});
    });
    sum_of_ranks();
  }
  if (round % 20 == 3 && hvd::size() > 1) {
    // The data of one rank never come: that is the end of the world, on all ranks.
    expect_throws<hvd::CollectiveError>("the world goes on", [] {
      std::vector<float> values(100);
      hvd::adapter::Submission work;
      work.collective = hvd::Collective::allreduce;
      work.name = "never ready";
      work.input = hvd::TensorView(values);
      work.output = hvd::TensorView(values);
      if (hvd::rank() == 0) work.ready = std::make_shared<NeverReady>();
      std::promise<std::exception_ptr> ended;
      work.done = [&ended](const hvd::adapter::Completion& done) { ended.set_value(done.error); };
      hvd::adapter::submit(std::move(work));
      if (const auto error = ended.get_future().get()) std::rethrow_exception(error);
    });
  }
  hvd::shutdown();
}

int protocol() {
  constexpr int kKinds = 10;  // of protocol
  for (int round = 0; round < kKinds; ++round) one_round(round);
  const int descriptors = entries_of("/proc/self/fd");
  const int threads = entries_of("/proc/self/task");
  const long memory = resident_kilobytes();
  for (int round = 0; round < 100; ++round) one_round(round);
  std::printf("%d descriptors and %d threads more\n", entries_of("/proc/self/fd") - descriptors,
              entries_of("/proc/self/task") - threads);
  std::printf("%ld KB more\n", resident_kilobytes() - memory);
  return 0;
}

// An input that is there as soon as this rank has come to the operation. Rank 1 dies there, when
// all others have come: they are in MPI then, or about to be.
class Arrival final : public hvd::ReadyEvent {
 public:
  explicit Arrival(std::filesystem::path directory) : directory_(std::move(directory)) {}
  bool ready() const override { return false; }
  void wait() override {
    if (hvd::rank() != 1) {
      std::ofstream(directory_ / std::to_string(hvd::rank())).put('.');
      return;
    }
    for (int rank = 0; rank < hvd::size(); ++rank) {
      while (rank != 1 && !std::filesystem::exists(directory_ / std::to_string(rank))) {
        std::this_thread::yield();
      }
    }
    std::raise(SIGKILL);
  }

 private:
  const std::filesystem::path directory_;
};

void lost_in_a_call() {
  std::vector<float> values(1 << 20, 1.0F);
  for (int i = 0; i < 2; ++i) hvd::allreduce(values, {.name = "ones"});
  std::promise<std::exception_ptr> end;
  hvd::adapter::Submission work;
  work.name = "last";
  work.input = hvd::TensorView(values);
  work.output = hvd::TensorView(values);
  work.op = hvd::Sum;
  work.ready = std::make_shared<Arrival>(std::getenv("DIRECTORY_OF_TEST"));
  work.done = [&end](const hvd::adapter::Completion& completion) {
    end.set_value(completion.error);
  };
  hvd::adapter::submit(std::move(work));
  if (const auto error = end.get_future().get()) std::rethrow_exception(error);
}

int run(const std::string& scenario) {
  if (scenario == "own-signal") std::signal(SIGUSR1, [](int) { signals_of_our_own = 1; });
  hvd::init({.dynamic_process_sets = scenario == "loss"});
  if (scenario == "place") {
    place();
    hvd::shutdown();
    return 0;
  }
  if (scenario == "init-at-the-end") {
    late.wanted = true;
    hvd::shutdown();
    return 0;
  }
  if (scenario == "no-shutdown") {  // the library says goodbye by itself
    place();
    return 0;
  }
  if (scenario == "lost-in-a-call") {
    lost_in_a_call();
    return 0;
  }
  if (scenario == "own-call") {  // in flight during shutdown(), and no other rank makes it
    sum_of_ranks();
    std::vector<float> values{1};
    const auto call = hvd::allreduce_async(values, {.name = "own " + std::to_string(hvd::rank())});
    hvd::shutdown();
    try {
      call.wait();
      return 1;
    } catch (const hvd::CollectiveError& error) {
      std::printf("%s\n", error.what());
    }
    return 0;
  }
  if (scenario == "again") {  // worlds one after the other
    for (int round = 0; round < 3; ++round) {
      sum_of_ranks();
      hvd::shutdown();
      hvd::init();
    }
    place();
    hvd::shutdown();
    return 0;
  }
  if (scenario == "protocol") {
    hvd::shutdown();
    return protocol();
  }
  if (scenario == "threads") {  // which core each of the library's runs on
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      std::string name;
      for (std::string line; std::getline(status, line);) {
        if (line.rfind("Name:", 0) == 0) name = line.substr(6);
        if (line.rfind("Cpus_allowed_list:", 0) == 0 && name.rfind("hvd-", 0) == 0) {
          std::printf("%s on %s\n", name.c_str(), line.substr(19).c_str());
        }
      }
    }
    hvd::shutdown();
    return 0;
  }
  if (scenario == "timeline") {  // started and stopped by rank 0; calls of others change nothing
    sum_of_ranks();
    hvd::stop_timeline();  // there is none: no effect, on all ranks
    hvd::start_timeline(std::getenv("TIMELINE_OF_TEST"), true);
    hvd::start_timeline("/no/such/directory/t.json");  // there is one already
    for (int step = 0; step < 20; ++step) sum_of_ranks();
    hvd::stop_timeline();
    sum_of_ranks();
    if (hvd::rank() != 0) return 0;
    for (const char* const path : {"/dev/null", "/no/such/directory/t.json"}) {
      try {
        hvd::start_timeline(path);
        return 1;
      } catch (const hvd::InvalidArgumentError& error) {
        std::printf("%s\n", error.what());
      }
    }
    return 0;
  }
  if (scenario == "own-signal") {  // a program that uses SIGUSR1 itself
    std::raise(SIGUSR1);
    return signals_of_our_own == 1 ? 0 : 1;
  }
  if (scenario == "memory") {  // whether it shares some with others of its host
    std::ifstream maps("/proc/self/maps");
    bool shares = false;
    for (std::string line; std::getline(maps, line);) {
      shares = shares || line.find("/memfd:hvd ") != std::string::npos;
    }
    std::printf("%s, sum %g\n", shares ? "shares memory" : "shares none", sum_of_ranks());
    hvd::shutdown();
    return 0;
  }
  if (scenario == "wait") {  // until another process ends it
    place();
    for (;;) ::pause();
  }
  if (scenario == "loss") {  // rank 1 dies in the middle, the others say what they were told
    try {
      for (int step = 0;; ++step) {
        if (hvd::rank() == 1 && step == 10) ::_exit(9);
        sum_of_ranks();
      }
    } catch (const hvd::CollectiveError& error) {
      std::printf("lost rank %d on host %s: %s\n", error.rank(), error.host().c_str(),
                  error.what());
      return same_cause_from_now_on(error.what()) ? 0 : 1;
    }
    return 1;
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 2 ? run(argv[1]) : 2;
  } catch (const hvd::InitError& error) {
    std::fprintf(stderr, "InitError: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
