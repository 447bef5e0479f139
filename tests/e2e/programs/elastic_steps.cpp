// A worker that trains for show, in a world that changes, and keeps a step log of what it saw, by
// which tests and benchmarks tell whether anything was lost, and how long it took.
//
// Each step takes samples, lasts a while, sums a tensor over all ranks, checks the sum, changes all
// weights by what came out, and commits. All weights are one number at each step, whatever the
// world was, so that a step that is lost, done twice, or mixed from two worlds shows in them.
//
//   --log DIR        where the step log is written, a file of its own for each process; DIR is made
//   --state BYTES    of the weights (1 MB)
//   --frozen BYTES   of weights that no step changes, and that each worker makes itself (0)
//   --step US        how long a step lasts beside what hvd does (1000)
//   --work US        how much processor time a step takes beside that (0)
//   --steps N        ends after N steps;  --until FILE: after the step in which any rank saw FILE
//   --mark           CommitMode::mark
//   --compare N      the ranks compare their states every N commits
//   --samples N, --batch N   of an epoch, and of a rank's step (4096, 4)
//   --checkpoint FILE        a loader, and a checkpoint every ten steps by rank 0
//   --verify         looks at every weight whenever a world begins
//   --orders DIR     does what files there say, see obey()
//   --grow           the state grows by a page every hundred steps
//   --closed         closes the standard streams after hvd::init(), and prints in each step
//   --gpu            the weights and the summed tensors are in the memory of a simulated GPU
//
// The step log, a line for each event, MICROSECONDS of the monotonic clock first:
//   start WORKER PID | init | world ID RANK SIZE STEP | draw STEP ID EPOCH samples... |
//   commit STEP ID | obeys POINT | left | done STEP DIGEST | error TEXT
// ID names a world: the latest time at which a member entered it.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <hvd/cuda.h>
#include <hvd/hvd.h>
#include <hvd/sampler.h>

#include "tests/e2e/programs/closed_streams.h"
#include "tests/runtime/gpu/host_gpu_program.h"

namespace {

namespace fs = std::filesystem;

struct Options {
  std::string log;
  std::string until;
  std::string orders;
  std::string checkpoint;
  std::uint64_t state = 1'000'000;
  std::uint64_t frozen = 0;
  std::int64_t steps = INT64_MAX;
  long step_us = 1000;
  long work_us = 0;
  long compare = 0;
  std::int64_t samples = 4096;
  std::int64_t batch = 4;
  bool mark = false;
  bool verify = false;
  bool grow = false;
  bool gpu = false;
  bool closed = false;
};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The processor time that this thread has had.
std::int64_t thread_time_us() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1'000;
}

std::string variable(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// "localhost#2"
std::string worker_name() { return variable("HVD_WORKER", "alone#0"); }

class StepLogWriter {
 public:
  explicit StepLogWriter(const std::string& directory) {
    if (directory.empty()) return;
    fs::create_directories(directory);
    const std::string file =
        directory + "/" + worker_name() + "." + std::to_string(now_us()) + ".log";
    file_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) throw std::runtime_error("cannot write " + file + ": " + std::strerror(errno));
  }
  // One write(), so that a worker that is killed leaves no half of a line.
  void line(const std::string& text) {
    if (file_ < 0) return;
    const std::string whole = std::to_string(now_us()) + " " + text + "\n";
    if (::write(file_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) {
      throw std::runtime_error("cannot write the step log");
    }
  }

 private:
  int file_ = -1;
};

[[noreturn]] void end_by_order(const std::string& action) {
  if (action == "kill") ::raise(SIGKILL);
  const int code = action.starts_with("exit ") ? std::atoi(action.c_str() + 5) : 99;
  for (int line = 1; line <= 3; ++line) std::fprintf(stderr, "last words %d.\n", line);
  std::fflush(stderr);
  ::_exit(code);
}

// Keeps all descriptors that this process may have, also those that come free later.
void take_all_descriptors() {
  constexpr rlim_t kFew = 128;
  struct rlimit limit {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kFew);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  std::thread([] {
    for (;;) {
      if (::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) ::usleep(1000);
    }
  }).detach();
  while (::fcntl(kFew - 1, F_GETFD) < 0) ::usleep(1000);
}

// DIR/WORKER.POINT, or DIR/any.POINT for the first worker, holds what is to be done when this
// worker is at that point. It is done once:
//   kill, exit CODE    at once, without calling hvd
//   freeze, stall      SIGSTOP; never to go on
//   end                std::exit(0);  end-elsewhere: on another thread, while this one goes on
//   shutdown           hvd::shutdown(), and goes on
//   grab               takes all descriptors
//   hold               waits until DIR/go is there
void obey(const Options& options, StepLogWriter& step_log, const char* point) {
  if (options.orders.empty()) return;
  for (const auto& who : {worker_name(), std::string("any")}) {
    const std::string file = options.orders + "/" + who + "." + point;
    std::ifstream in(file);
    std::string action;
    if (!in || !std::getline(in, action) || ::unlink(file.c_str()) != 0) continue;
    step_log.line(std::string("obeys ") + point);
    if (action == "freeze") {
      ::raise(SIGSTOP);
    } else if (action == "stall") {
      for (;;) ::pause();
    } else if (action == "end") {
      std::exit(0);  // NOLINT(concurrency-mt-unsafe)
    } else if (action == "end-elsewhere") {
      std::thread([] { std::exit(0); }).detach();  // NOLINT(concurrency-mt-unsafe)
    } else if (action == "shutdown") {
      hvd::shutdown();
    } else if (action == "grab") {
      take_all_descriptors();
    } else if (action == "hold") {
      while (!fs::exists(options.orders + "/go")) ::usleep(1000);
    } else {
      end_by_order(action);
    }
  }
}

// All of one value at each step; in the memory of the host, or of a GPU.
class Weights {
 public:
  using Elements = std::vector<std::int64_t>;

  Weights(std::size_t count, bool on_gpu) : on_host_(on_gpu ? 0 : count) {
    if (!on_gpu) return;
    gpu_.emplace();
    on_gpu_ = hvd::Tensor({static_cast<std::int64_t>(count)}, hvd::DataType::int64,
                          {hvd::cuda::device()});
    gpu_->upload(on_gpu_.data(), Elements(count));
  }
  void add_to(hvd::elastic::State& state) {
    gpu_ ? state.add("weights", on_gpu_) : state.add("weights", on_host_);
  }
  // On a GPU, later, in its stream.
  void change(std::function<void(std::span<std::int64_t>)> kernel) {
    if (!gpu_) return kernel(on_host_);
    gpu_->launch([this, kernel = std::move(kernel)] {
      kernel({gpu_->reach<std::int64_t>(on_gpu_.data()),
              static_cast<std::size_t>(on_gpu_.elements())});
    });
  }
  Elements elements() const {
    return gpu_ ? gpu_->download<std::int64_t>(on_gpu_.data(),
                                               static_cast<std::size_t>(on_gpu_.elements()))
                : on_host_;
  }
  void grow(std::int64_t value) { on_host_.resize(on_host_.size() + 512, value); }

  // The sums of all ranks, in the same place.
  void sum(Elements& values) const {
    if (!gpu_) return hvd::allreduce(values, {.name = "sums", .op = hvd::Sum});
    hvd::Tensor tensor({static_cast<std::int64_t>(values.size())}, hvd::DataType::int64,
                       on_gpu_.device());
    gpu_->upload(tensor.data(), values);
    gpu_->synchronize();
    hvd::allreduce(tensor, {.name = "sums", .op = hvd::Sum});
    values = gpu_->download<std::int64_t>(tensor.data(), values.size());
  }

 private:
  std::optional<hvd::test::HostGpuProgram> gpu_;
  Elements on_host_;
  hvd::Tensor on_gpu_;
};

class Training {
 public:
  Training(const Options& options, StepLogWriter& step_log)
      : options_(options),
        step_log_(step_log),
        state_(
            {.mode = options.mark ? hvd::elastic::CommitMode::mark : hvd::elastic::CommitMode::copy,
             .compare_every = static_cast<int>(options.compare),
             .loader = loader()}),
        weights_(options.state / sizeof(std::int64_t), options.gpu),
        frozen_(options.frozen / sizeof(std::int64_t)),
        sampler_({.size = options.samples, .seed = 7}) {
    weights_.add_to(state_);
    std::iota(frozen_.begin(), frozen_.end(), 0);
    state_.add("frozen", frozen_);
    state_.add("step", step_);
    state_.add("finished", finished_);
    state_.add("sampler", sampler_);
    state_.add("points", hvd::elastic::Handler{[] { return std::size_t{1}; },
                                               [this](std::span<std::byte> into) {
                                                 into[0] = std::byte{1};
                                                 obey(options_, step_log_, "save");
                                               },
                                               [this](std::span<const std::byte>) {
                                                 obey(options_, step_log_, "load");
                                               }});
    state_.on_reset([this] { obey(options_, step_log_, "reset"); });
    state_.on_notice([this] { obey(options_, step_log_, "notice"); });
  }

  void run() {
    obey(options_, step_log_, "ready");
    const auto ending = hvd::elastic::run(state_, [this] { train(); }, {.return_when_left = true});
    if (ending == hvd::elastic::Ending::left) {
      step_log_.line("left");
      return;
    }
    check_weights();
    const auto weights = weights_.elements();
    step_log_.line("done " + std::to_string(step_) + " " +
                   std::to_string(weights.empty() ? 0 : weights[0]));
    obey(options_, step_log_, "over");
  }

 private:
  static constexpr std::size_t kTensor = 1024;

  std::int64_t expected() const { return step_ * (step_ + 1) / 2; }

  void check_weights() const {
    const auto weights = weights_.elements();
    for (std::size_t at = 0; at < weights.size(); ++at) {
      if (weights[at] != expected()) {
        throw std::runtime_error("weight " + std::to_string(at) + " is " +
                                 std::to_string(weights[at]) + " at step " + std::to_string(step_) +
                                 ", and should be " + std::to_string(expected()));
      }
    }
    for (std::size_t at = 0; at < frozen_.size(); ++at) {
      if (frozen_[at] != static_cast<std::int64_t>(at)) {
        throw std::runtime_error("frozen weight " + std::to_string(at) + " is " +
                                 std::to_string(frozen_[at]));
      }
    }
  }

  void train() {
    std::vector<std::int64_t> entered{now_us()};
    hvd::allreduce(entered, {.name = "entered", .op = hvd::Max});
    world_ = std::to_string(entered[0]);
    if (options_.verify) check_weights();
    step_log_.line("world " + world_ + " " + std::to_string(hvd::rank()) + " " +
                   std::to_string(hvd::size()) + " " + std::to_string(step_));
    while (finished_ == 0) do_step();
  }

  void do_step() {
    if (options_.closed) hvd::test::print_to_closed_streams();
    obey(options_, step_log_, "step");
    hvd::Sampler sampler = sampler_;
    std::string drawn =
        "draw " + std::to_string(step_ + 1) + " " + world_ + " " + std::to_string(sampler.epoch());
    for (const auto sample : sampler.next(options_.batch)) drawn += " " + std::to_string(sample);
    step_log_.line(drawn);
    if (sampler.done()) sampler.set_epoch(sampler.epoch() + 1);
    if (options_.step_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(options_.step_us));
    }
    const auto worked_enough = thread_time_us() + options_.work_us;
    while (thread_time_us() < worked_enough) {
    }

    const auto ranks = static_cast<std::int64_t>(hvd::size());
    std::vector<std::int64_t> sums(kTensor, (hvd::rank() + 1) * (step_ + 1));
    sums.back() = !options_.until.empty() && ::access(options_.until.c_str(), F_OK) == 0 ? 1 : 0;
    weights_.sum(sums);
    for (std::size_t at = 0; at + 1 < sums.size(); ++at) {
      if (sums[at] != ranks * (ranks + 1) / 2 * (step_ + 1)) {
        throw std::runtime_error("sum " + std::to_string(at) + " of step " +
                                 std::to_string(step_ + 1) + " is " + std::to_string(sums[at]));
      }
    }

    const auto change = [&] {
      const std::int64_t by = sums[0] / (ranks * (ranks + 1) / 2);
      weights_.change([by](std::span<std::int64_t> all) {
        for (auto& weight : all) weight += by;
      });
      ++step_;
      if (options_.grow && step_ % 100 == 0) weights_.grow(expected());
      finished_ = sums.back() != 0 || step_ >= options_.steps ? 1 : 0;
      sampler_ = sampler;
    };
    options_.mark ? state_.mutate(change) : change();

    const std::int64_t done = step_;
    const auto note = [&] { step_log_.line("commit " + std::to_string(done) + " " + world_); };
    try {
      state_.commit();
    } catch (const hvd::HostsUpdated&) {
      note();  // it is one, and now all go over to another world
      throw;
    }
    note();
    obey(options_, step_log_, "committed");
    if (hvd::rank() == 0 && step_ % 10 == 0) save_checkpoint();
  }

  void save_checkpoint() const {
    if (options_.checkpoint.empty()) return;
    const std::string made = options_.checkpoint + ".new";
    std::ofstream(made, std::ios::binary) << step_ << '\n' << sampler_.save();
    fs::rename(made, options_.checkpoint);
  }

  std::function<void()> loader() {
    if (options_.checkpoint.empty()) return {};
    return [this] {
      std::ifstream in(options_.checkpoint, std::ios::binary);
      std::string first;
      if (!in || !std::getline(in, first)) return;  // none yet: from the beginning
      step_ = std::stoll(first);
      sampler_.load(std::string(std::istreambuf_iterator<char>(in), {}));
      weights_.change([value = expected()](std::span<std::int64_t> all) {
        std::fill(all.begin(), all.end(), value);
      });
    };
  }

  const Options& options_;
  StepLogWriter& step_log_;
  hvd::elastic::State state_;
  Weights weights_;
  Weights::Elements frozen_;
  std::int64_t step_ = 0;
  std::int64_t finished_ = 0;
  hvd::Sampler sampler_;
  std::string world_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--mark") {
      options.mark = true;
    } else if (flag == "--verify") {
      options.verify = true;
    } else if (flag == "--grow") {
      options.grow = true;
    } else if (flag == "--gpu") {
      options.gpu = true;
    } else if (flag == "--closed") {
      options.closed = true;
    } else if (i + 1 == argc) {
      throw std::runtime_error(flag + " is unknown, or needs a value");
    } else {
      const std::string value = argv[++i];
      if (flag == "--log") {
        options.log = value;
      } else if (flag == "--until") {
        options.until = value;
      } else if (flag == "--orders") {
        options.orders = value;
      } else if (flag == "--checkpoint") {
        options.checkpoint = value;
      } else if (flag == "--state") {
        options.state = std::stoull(value);
      } else if (flag == "--frozen") {
        options.frozen = std::stoull(value);
      } else if (flag == "--steps") {
        options.steps = std::stoll(value);
      } else if (flag == "--step") {
        options.step_us = std::stol(value);
      } else if (flag == "--work") {
        options.work_us = std::stol(value);
      } else if (flag == "--compare") {
        options.compare = std::stol(value);
      } else if (flag == "--samples") {
        options.samples = std::stoll(value);
      } else if (flag == "--batch") {
        options.batch = std::stoll(value);
      } else {
        throw std::runtime_error(flag + " is unknown");
      }
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    StepLogWriter step_log(options.log);
    step_log.line("start " + worker_name() + " " + std::to_string(::getpid()));
    try {
      obey(options, step_log, "init");
      hvd::init();
      step_log.line("init");
      if (options.closed) hvd::test::close_standard_streams();
      Training(options, step_log).run();
      hvd::shutdown();
      return 0;
    } catch (const std::exception& error) {
      step_log.line(std::string("error ") + error.what());
      throw;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "elastic_steps: %s\n", error.what());
    return 1;
  }
}
