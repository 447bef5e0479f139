// Workers whose ranks are threads of the test, and that live through worlds of one generation after
// another.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/runtime/control/worlds.h"
#include "tests/worker/elastic/in_memory.h"
#include "worker/elastic/progress.h"

namespace hvd::worker {

using elastic::CommitMode;
using elastic::StateOptions;
using runtime::Failure;
using test::mentions;

// A mark that all ranks see, as they do in the rendezvous.
class SharedMark final : public HighWater {
 public:
  Result<CommitId> read() override {
    const std::lock_guard lock(mutex_);
    return id_;
  }
  Status write(const CommitId& id) override {
    const std::lock_guard lock(mutex_);
    if (!refusal_.ok()) return refusal_;
    id_ = id;
    return {};
  }
  void refuse(const Status& why) {
    const std::lock_guard lock(mutex_);
    refusal_ = why;
  }

 private:
  std::mutex mutex_;
  CommitId id_;
  Status refusal_;
};

inline elastic::Handler handler_of(std::string& text) {
  return {[&text] { return text.size(); },
          [&text](std::span<std::byte> into) { elastic::detail::copy_bytes(into, text.data()); },
          [&text](std::span<const std::byte> from) {
            text.assign(reinterpret_cast<const char*>(from.data()), from.size());
          }};
}

// A worker: what it has outlives worlds.
struct Worker {
  // `ledger_file`: empty: it keeps none.
  explicit Worker(const std::string& weights_now = "", const StateOptions& options = {},
                  const std::string& ledger_file = "", const StateFile& state_file = {})
      : weights(weights_now),
        ledger(ledger_file),
        progress(options, {}, state_file, ledger_file.empty() ? nullptr : &ledger) {
    EXPECT_TRUE(progress.store().add("weights", handler_of(weights)).ok());
    EXPECT_TRUE(progress.store().add("step", handler_of(step)).ok());
  }
  std::string weights;
  std::string step = "0";
  std::uint64_t run = 0;  // of the program
  Ledger ledger;
  Progress progress;
};

inline std::string no_proposal() { return {}; }

class ElasticProgress : public ::testing::Test {
 protected:
  using Body = std::function<void(int rank, Worker& worker, CommitProtocol& protocol)>;

  Worker& add(const std::string& weights, const StateOptions& options = {}) {
    workers_.push_back(std::make_unique<Worker>(weights, options, ledger_file_, state_file_));
    return *workers_.back();
  }
  void add(int count, const StateOptions& options = {}) {
    for (int i = 0; i < count; ++i) add(cat("weights of ", i), options);
  }
  // The next generation: these workers are its ranks.
  void generation(const std::vector<Worker*>& members, const Body& body) {
    ++number_;
    worlds_.assign(members.size(), nullptr);
    test::run_world(
        static_cast<int>(members.size()),
        [&](int rank, runtime::World& world) {
          const auto index = static_cast<std::size_t>(rank);
          Worker& worker = *members[index];
          worlds_[index] = &world;
          CommitProtocol protocol(world, number_, worker.run, mark_, window_);
          body(rank, worker, protocol);
          (void)protocol.channel().barrier("end of test");  // all ranks stay until all are here
        },
        [&](runtime::WorldSpec& spec) { spec.generation = number_; });
  }
  std::vector<Worker*> all() {
    std::vector<Worker*> members;
    for (auto& worker : workers_) members.push_back(worker.get());
    return members;
  }
  static void begin(Worker& worker, CommitProtocol& protocol, bool rolls_back = true) {
    const auto begun = worker.progress.begin(protocol, rolls_back);
    ASSERT_TRUE(begun.ok()) << begun.status.to_string();
  }
  static Failure commit(Worker& worker, CommitProtocol& protocol) {
    std::string next;
    return worker.progress.commit(protocol, no_proposal, next);
  }
  CommitId mark() { return *mark_.read(); }

  SharedMark mark_;
  std::uint64_t number_ = 0;
  std::uint64_t window_ = kTransferChunk;
  // For workers that are added after they are set.
  std::string ledger_file_;
  StateFile state_file_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<runtime::World*> worlds_;  // of the ranks of the last generation
};

}  // namespace hvd::worker
