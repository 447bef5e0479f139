// An elastic worker as users write them, for elastic_workers.h: `hvd_elastic_program SCENARIO`. It
// prints what it does; what the scenario is about stands in the environment:
//   UNTIL=G        the work is done five steps after generation G has begun
//   SIZE=N         weights
//   DIE=PLACE      kills itself there: save, load, reset, joining, end, after
//   MODE=mark      CommitMode::mark
//   OWN=bytes      each rank has a text of its own in the state; OWN=lengths: also longer ones
//   SET=1          a process set before the run
//   MEASURE=refuse what is in the state cannot say its size when it is asked first
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/sampler.h>

namespace {

namespace elastic = hvd::elastic;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <typename... Args>
void say(const char* format, Args... args) {
  std::printf(format, args...);
  std::fflush(stdout);
}

void die_if_at(const std::string& place) {
  if (variable("DIE") != place) return;
  say("dies at %s\n", place.c_str());
  std::raise(SIGKILL);
}

void expect(bool right, const char* what) {
  if (!right) throw std::runtime_error(std::string("unexpected: ") + what);
}

// A step adds one to each weight, whatever the size of the world.
struct Training {
  explicit Training(const elastic::StateOptions& options = {})
      : weights(variable("SIZE").empty() ? 100 : std::stoul(variable("SIZE"))), state(options) {
    state.add("weights", weights);
    state.add("step", step);
    state.add("sampler", sampler);
    state.add("view", hvd::TensorView(viewed));
    state.add("tensor", tensor);
    state.add("own", own);
    tensor.as<std::int64_t>()[1] = 0;
    state.add("fragile", elastic::Handler{[this] { return measure(); },
                                          [this](std::span<std::byte>) {
                                            if (step > 3) die_if_at("save");
                                          },
                                          [](std::span<const std::byte>) { die_if_at("load"); }});
    state.on_reset([this] {
      die_if_at("reset");
      ++resets;
    });
  }

  std::size_t measure() {
    if (std::exchange(measured, true)) return 0;
    say("measured\n");
    if (variable("MEASURE") == "refuse") throw std::runtime_error("there is nothing yet");
    return 0;
  }

  void enter() {
    ++entries;
    entry = step;
    say("generation %d, rank %d of %d, step %d, resets %d\n", generation(), hvd::rank(),
        hvd::size(), step, resets);
    say("own \"%s\"\n", own.c_str());
    for (const float weight : weights) {
      expect(weight == static_cast<float>(step), "a weight that is not of this step");
    }
    expect(sampler.epoch() == step, "a sampler that is not of this step");
    expect(viewed[2] == step, "a view that is not of this step");
    expect(tensor.as<std::int64_t>()[1] == step, "a tensor that is not of this step");
  }
  static int generation() { return static_cast<int>(elastic::generation()); }

  bool is_over() const {
    const auto until = variable("UNTIL");
    return step >= entry + 5 && (until.empty() || generation() >= std::stoi(until));
  }

  void take_step() {
    std::vector<float> gradients(weights.size(), 1.0F);
    hvd::allreduce(gradients, {.name = "gradients", .op = hvd::Average});
    const auto change = [&] {
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += gradients[i];
      ++step;
      sampler.set_epoch(step);
      viewed[2] = step;
      tensor.as<std::int64_t>()[1] = step;
      const int rank = hvd::rank();
      const int letters = variable("OWN") == "lengths" ? 1 + rank : variable("OWN") == "bytes";
      own.append(static_cast<std::size_t>(letters), static_cast<char>('a' + rank));
    };
    if (variable("MODE") == "mark") {
      state.mutate(change);
    } else {
      change();
    }
  }

  void train() {
    enter();
    while (!is_over()) {
      take_step();
      state.commit();
      say("commit %d\n", step);
    }
    die_if_at("end");
  }

  std::vector<float> weights;
  int step = 0;
  hvd::Sampler sampler{{.size = 1000, .seed = 7}};
  std::vector<int> viewed = std::vector<int>(3);
  hvd::Tensor tensor{{2}, hvd::DataType::int64};
  std::string own;
  int entries = 0;
  int entry = 0;
  int resets = 0;
  bool measured = false;
  elastic::State state;
};

elastic::StateOptions options_of_environment() {
  elastic::StateOptions options;
  if (variable("MODE") == "mark") options.mode = elastic::CommitMode::mark;
  return options;
}

// All connections of this process are cut, as if the network had failed for a moment.
void cut_connections() {
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family == AF_INET) ::shutdown(fd, SHUT_RDWR);
  }
}

void use_set(const char* name, int id) {
  try {
    std::vector<float> one{1.0F};
    if (hvd::ProcessSet(id).included()) {
      hvd::allreduce(one, {.name = name, .op = hvd::Sum, .process_set = hvd::ProcessSet(id)});
    }
    say("%s: set %d of size %d, sum %g\n", name, id, hvd::ProcessSet(id).size(),
        static_cast<double>(one[0]));
  } catch (const hvd::ProcessSetError& error) {
    say("%s: code %d: %s\n", name, static_cast<int>(error.code()), error.what());
  }
}

// Sets that exist from the start, and one that is added in each world.
int run_sets() {
  hvd::init({.process_sets = {{0, 1}, {1, 2}, {0, 1, 2}},
             .dynamic_process_sets = true,
             .lost_member =
                 variable("SHRINK").empty() ? hvd::LostMember::fail : hvd::LostMember::shrink});
  Training training;
  elastic::run(training.state, [&] {
    training.enter();
    const auto last = hvd::add_process_set({hvd::size() - 1});
    for (int id = 1; id <= 3; ++id) use_set(("set " + std::to_string(id)).c_str(), id);
    use_set("added", last.id());
    if (hvd::rank() == hvd::size() - 1) {
      use_set("own", hvd::add_process_set_by_members({hvd::size() - 1}).id());
    }
    while (!training.is_over()) {
      training.take_step();
      training.state.commit();
      say("commit %d\n", training.step);
    }
  });
  say("done at step %d\n", training.step);
  return 0;
}

// A collective before the run, and with SET a process set.
int run_early() {
  hvd::init({.dynamic_process_sets = true});
  if (!variable("SET").empty()) say("set %d\n", hvd::add_process_set({0}).id());
  std::vector<float> one{1.0F};
  hvd::allreduce(one, {.name = "before the run"});
  Training training;
  elastic::run(training.state, [&] { training.train(); });
  std::vector<float> two{1.0F};
  hvd::allreduce(two, {.name = "after the run"});
  say("done at step %d\n", training.step);
  return 0;
}

int run(const std::string& scenario) {
  die_if_at("joining");
  if (scenario == "sets") return run_sets();
  if (scenario == "early") return run_early();
  hvd::init();
  if (scenario == "train") {
    Training training(options_of_environment());
    elastic::run(training.state, [&] { training.train(); });
    say("done at step %d\n", training.step);
    die_if_at("after");
    hvd::shutdown();
    return 0;
  }
  if (scenario == "twice") {  // two runs of the same kind, of which the second one goes on
    Training first;
    elastic::run(first.state, [&] {
      for (first.enter(); first.step < 5;) {
        first.take_step();
        first.state.commit();
      }
    });
    say("first run: %d entries, step %d\n", first.entries, first.step);
    Training second;
    elastic::run(second.state, [&] { second.train(); });
    say("done at step %d\n", second.step);
    return 0;
  }
  if (scenario == "left") {  // goes on by itself when it is left behind
    Training training;
    const auto ending =
        elastic::run(training.state, [&] { training.train(); }, {.return_when_left = true});
    say("%s\n", ending == elastic::Ending::left ? "left" : "done");
    return 0;
  }
  if (scenario == "look") {  // commits only where the world changes
    Training training;
    elastic::run(training.state, [&] {
      training.enter();
      while (!training.is_over()) {
        training.take_step();
        training.state.check_host_updates();
        say("step %d\n", training.step);
      }
    });
    say("done at step %d\n", training.step);
    return 0;
  }
  if (scenario == "load") {
    Training* now = nullptr;
    elastic::StateOptions options;
    options.loader = [&] {
      now->step = 1000;
      now->weights.assign(now->weights.size(), 1000.0F);
      now->sampler.set_epoch(1000);
      now->viewed[2] = 1000;
      now->tensor.as<std::int64_t>()[1] = 1000;
      say("loads\n");
    };
    Training training(options);
    now = &training;
    elastic::run(training.state, [&] { training.train(); });
    say("done at step %d\n", training.step);
    return 0;
  }
  if (scenario == "threads") {  // in every call at any time, in all of them
    Training training;
    std::atomic<int> typed = 0;
    elastic::run(training.state, [&] {
      std::atomic<bool> over = false;
      std::vector<std::thread> threads;
      for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
          try {
            std::vector<float> own(1000, 1.0F);
            const auto name = "of thread " + std::to_string(i);
            for (;;) {
              std::vector<float> last{over ? 1.0F : 0.0F};
              hvd::allreduce(last, {.name = name + " last", .op = hvd::Max});
              if (last[0] != 0) return;
              hvd::allreduce(own, {.name = name, .op = hvd::Average});
              hvd::allgather(own, {.name = name + " gather"});
              hvd::barrier({.name = name + " barrier"});
            }
          } catch (const hvd::CollectiveError&) {
            ++typed;
          } catch (const hvd::HostsUpdated&) {
            ++typed;
          }
        });
      }
      const auto join = [&] {
        over = true;
        for (auto& thread : threads) thread.join();
      };
      try {
        training.train();
      } catch (...) {
        join();
        throw;
      }
      join();
    });
    say("done at step %d, %d threads were told\n", training.step, typed.load());
    return 0;
  }
  if (scenario == "join") {  // rank 0 has joined, and waits for the others, when the world ends
    Training training;
    elastic::run(training.state, [&] {
      training.enter();
      if (Training::generation() == 1) {
        say("in the middle\n");
        if (hvd::rank() == 0) hvd::join();
        for (;;) {
          std::vector<float> values(10, 1.0F);
          hvd::allreduce(values, {.name = "of the others"});
        }
      }
      hvd::barrier();
      if (hvd::rank() != 0) hvd::join();  // without a name, and in another order than before
      if (hvd::rank() == 0) {
        say("alone: %d\n", hvd::allgather(std::vector<float>{1.0F}).elements() == 1 ? 1 : 0);
        hvd::join();
      }
    });
    say("done at step %d\n", training.step);
    return 0;
  }
  if (scenario == "cut") {  // all live, and a connection breaks
    Training training;
    bool cut = false;
    elastic::run(training.state, [&] {
      training.enter();
      while (training.entries < 2 || !training.is_over()) {
        training.take_step();
        training.state.commit();
        if (training.step == 5 && hvd::rank() == 1 && !cut) {
          cut = true;
          cut_connections();
        }
      }
    });
    say("done at step %d after %d entries\n", training.step, training.entries);
    return 0;
  }
  if (scenario == "gives-up") {  // FAILS times, on rank ON or on all
    Training training;
    const auto on = variable("ON");
    elastic::run(training.state, [&] {
      training.enter();
      while (!training.is_over()) {
        training.take_step();
        const bool is_it = on.empty() || std::stoi(on) == hvd::rank();
        if (training.step == 4 && is_it && training.entries <= std::stoi(variable("FAILS"))) {
          throw hvd::CollectiveError("not a number", -1, "", "");
        }
        hvd::barrier();  // no rank prepares a commit that another one gives up before
        training.state.commit();
      }
    });
    say("done at step %d after %d entries\n", training.step, training.entries);
    return 0;
  }
  if (scenario == "user-error") {  // what the program throws goes through
    Training training;
    elastic::run(training.state, [&] {
      training.take_step();
      throw std::runtime_error("the program's own error");
    });
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc == 2 ? run(argv[1]) : 2;
  } catch (const hvd::InitError& error) {
    std::fprintf(stderr, "InitError: %s\n", error.what());
  } catch (const hvd::CommittedStateLostError& error) {
    std::fprintf(stderr, "CommittedStateLostError: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
