// The agreements about the state, with real worlds whose ranks are threads of the test.
#include "worker/elastic/progress.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <hvd/error.h>

#include "base/checksum.h"
#include "runtime/negotiation/process_sets.h"
#include "tests/elastic/in_memory.h"
#include "tests/runtime/worlds.h"
#include "worker/elastic/set_table.h"

namespace hvd::worker {
namespace {

using elastic::CommitMode;
using elastic::Handler;
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
  Status clear() override { return write({}); }
  void refuse(const Status& why) {
    const std::lock_guard lock(mutex_);
    refusal_ = why;
  }

 private:
  std::mutex mutex_;
  CommitId id_;
  Status refusal_;
};

Handler handler_of(std::string& text) {
  return {[&text] { return text.size(); },
          [&text](std::span<std::byte> into) { elastic::detail::copy_bytes(into, text.data()); },
          [&text](std::span<const std::byte> from) {
            text.assign(reinterpret_cast<const char*>(from.data()), from.size());
          }};
}

// A worker: what it has outlives worlds.
struct Worker {
  explicit Worker(const std::string& weights_now = "", const StateOptions& options = {})
      : weights(weights_now), progress(options) {
    EXPECT_TRUE(progress.store().add("weights", handler_of(weights)).ok());
    EXPECT_TRUE(progress.store().add("step", handler_of(step)).ok());
  }
  std::string weights;
  std::string step = "0";
  Progress progress;
};

std::string no_proposal() { return {}; }

class ElasticProgress : public ::testing::Test {
 protected:
  using Body = std::function<void(int rank, Worker& worker, Rounds& rounds)>;

  Worker& add(const std::string& weights, const StateOptions& options = {}) {
    workers_.push_back(std::make_unique<Worker>(weights, options));
    return *workers_.back();
  }
  void add(int count, const StateOptions& options = {}) {
    for (int i = 0; i < count; ++i) add(cat("weights of ", i), options);
  }
  // The next generation: these workers are its ranks.
  void generation(const std::vector<Worker*>& members, const Body& body) {
    ++number_;
    test::run_world(
        static_cast<int>(members.size()),
        [&](int rank, runtime::World& world) {
          Rounds rounds(world, number_, mark_, window_);
          body(rank, *members[static_cast<std::size_t>(rank)], rounds);
          (void)rounds.talk().barrier("end of test");  // nobody leaves before all are here
        },
        [&](runtime::WorldSpec& spec) { spec.generation = number_; });
  }
  std::vector<Worker*> all() {
    std::vector<Worker*> members;
    for (auto& worker : workers_) members.push_back(worker.get());
    return members;
  }
  static void begin(Worker& worker, Rounds& rounds, bool rolls_back = true) {
    const auto begun = worker.progress.begin(rounds, rolls_back);
    ASSERT_TRUE(begun.ok()) << begun.status.to_string();
  }
  static Failure commit(Worker& worker, Rounds& rounds) {
    std::string next;
    return worker.progress.commit(rounds, no_proposal, next);
  }
  CommitId mark() { return *mark_.read(); }

  SharedMark mark_;
  std::uint64_t number_ = 0;
  std::uint64_t window_ = kTransferWindow;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST(Checksum, IsXxh64) {
  const auto of = [](std::string_view text) {
    return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(of(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(of("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(of("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
}

TEST(Checksum, IsTheSameHoweverTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 31 % 251);
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  for (const std::size_t step : {1U, 7U, 31U, 32U, 33U, 64U, 999U}) {
    Checksum checksum;
    for (std::size_t at = 0; at < all.size(); at += step) {
      EXPECT_EQ(checksum.value(), checksum_of(all.first(at)));
      checksum.add({});
      checksum.add(all.subspan(at, std::min(step, all.size() - at)));
    }
    EXPECT_EQ(checksum.value(), checksum_of(all)) << step;
  }
}

TEST_F(ElasticProgress, AtTheBeginningAllGetWhatRank0sProgramMade) {
  add(3);
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_EQ(worker.weights, "weights of 0");
    EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 0}));
  });
  EXPECT_TRUE(mark().none());
}

TEST_F(ElasticProgress, AfterALossTheNewestPreparedStateWinsAndTheOthersReceiveIt) {
  add(3);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, rounds).ok());
    worker.weights = "prepared";
    if (rank == 2) worker.progress.store().keep({1, 2});  // the others died before they could
    if (rank != 2) worker.weights = "half done";
  });
  EXPECT_EQ(mark(), (CommitId{1, 1}));
  Worker& joiner = add("of a newcomer");
  generation({workers_[1].get(), workers_[2].get(), &joiner},
             [](int, Worker& worker, Rounds& rounds) {
               begin(worker, rounds);
               EXPECT_EQ(worker.weights, "prepared");
               EXPECT_TRUE(commit(worker, rounds).ok());
             });
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

TEST_F(ElasticProgress, WhoHoldsTheStateReceivesNothingAndRollsBackOnlyIfAsked) {
  add(2);
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "kept";
    EXPECT_TRUE(commit(worker, rounds).ok());
    worker.weights = "half done";
  });
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds, rank == 0);
    EXPECT_EQ(worker.weights, rank == 0 ? "kept" : "half done");
  });
}

// Every way to cut it: one and several holders and lackers, with windows that fit and do not.
TEST_F(ElasticProgress, AStateOfAnySizeTravelsFromAllHoldersToAllLackers) {
  for (const int holders : {1, 2, 3}) {
    for (const int lackers : {1, 2, 3}) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7},
                                     std::size_t{1000}, std::size_t{100'003}}) {
        workers_.clear();
        EXPECT_TRUE(mark_.write({}).ok());
        window_ = size == 1000 ? 64 : 40'000;
        std::string weights;
        for (std::size_t i = 0; i < size; ++i) weights += static_cast<char>(i * 31 % 251);
        for (int i = 0; i < holders; ++i) {
          add(weights).progress.store().keep({number_ + 1, 5});
        }
        for (int i = 0; i < lackers; ++i) add("nothing");
        auto members = all();
        std::swap(members.front(), members.back());  // rank 0 need not be a holder
        generation(members, [&](int, Worker& worker, Rounds& rounds) {
          begin(worker, rounds);
          EXPECT_EQ(worker.weights, weights) << holders << " " << lackers << " " << size;
          EXPECT_EQ(worker.progress.store().holds(), (CommitId{number_, 5}));
        });
      }
    }
  }
}

TEST_F(ElasticProgress, WhoDidNotKnowHowLargeTheStateIsHasRoomForACommitWhenItIsThere) {
  const std::string weights(40'000'001, 'w');  // so much is never memory that was freed
  add(weights).progress.store().keep({1, 1});
  Worker& joiner = add("");
  joiner.progress.store().make_room();
  generation(all(), [&](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_EQ(worker.weights, weights);
    if (rank == 0) return;
    Buffer* const spare = worker.progress.store().idle(false);
    EXPECT_GE(spare->capacity(), weights.size());
    EXPECT_TRUE(test::is_in_memory(*spare));
  });
}

TEST_F(ElasticProgress, AStateWithoutPartsTravelsToo) {
  std::array<Progress, 2> progress{Progress({}), Progress({})};
  progress[0].store().keep({1, 1});
  test::run_world(2, [&](int rank, runtime::World& world) {
    Rounds rounds(world, 1, mark_);
    const auto begun = progress[static_cast<std::size_t>(rank)].begin(rounds, true);
    EXPECT_TRUE(begun.ok()) << begun.status.to_string();
    (void)rounds.talk().barrier("end of test");
  });
  EXPECT_EQ(progress[1].store().holds(), (CommitId{1, 1}));
}

TEST_F(ElasticProgress, WhatIsKeptStaysWholeIfANewerOneThatIsReceivedIsNot) {
  add(2);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, rounds).ok());
    worker.weights = rank == 0 ? "prepared" : "half done";
    if (rank == 0) worker.progress.store().keep({1, 2});
  });
  // Another holder, which has something else under the same name; and two who lack it.
  Worker& other = add("damaged!");
  other.progress.store().keep({1, 2});
  Worker& joiner = add("of a newcomer");
  joiner.progress.store().make_room();
  generation({workers_[0].get(), workers_[1].get(), &other, &joiner},
             [](int rank, Worker& worker, Rounds& rounds) {
               EXPECT_EQ(worker.progress.begin(rounds, true).ok(), rank == 0 || rank == 2);
               if (rank != 1) return;
               EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 1}));
               worker.progress.store().load();
               EXPECT_EQ(worker.weights, "committed");
             });
  generation({workers_[0].get(), workers_[1].get(), &joiner},
             [](int, Worker& worker, Rounds& rounds) {
               begin(worker, rounds);
               EXPECT_EQ(worker.weights, "prepared");
             });
}

TEST_F(ElasticProgress, AStateThatDoesNotArriveWholeIsNotTakenOver) {
  add(3);
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, rounds).ok());
  });
  // The second holder's memory has changed: what it sends does not fit the first one's checksum.
  workers_[1]->weights = "damaged!!";
  workers_[1]->progress.store().keep({1, 1});
  Worker& joiner = add("of a newcomer");
  generation({workers_[0].get(), workers_[1].get(), &joiner},
             [](int rank, Worker& worker, Rounds& rounds) {
               const auto begun = worker.progress.begin(rounds, true);
               EXPECT_EQ(begun.ok(), rank != 2);
               if (rank != 2) return;
               EXPECT_TRUE(mentions(begun, "did not arrive whole")) << begun.status.to_string();
               EXPECT_EQ(worker.weights, "of a newcomer");
               EXPECT_TRUE(worker.progress.store().holds().none());
             });
}

TEST_F(ElasticProgress, CommittedStateThatIsLostIsAnErrorOnAllRanks) {
  add(2);
  generation({workers_[0].get()}, [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_TRUE(commit(worker, rounds).ok());
  });
  add("of a newcomer");
  generation({workers_[1].get(), workers_[2].get()}, [](int, Worker& worker, Rounds& rounds) {
    const auto begun = worker.progress.begin(rounds, true);
    EXPECT_TRUE(mentions(begun, "committed state lost: commit 1.1 was reached"))
        << begun.status.to_string();
    EXPECT_TRUE(worker.progress.is_lost());
    EXPECT_FALSE(begun.world_failed);
  });
}

TEST_F(ElasticProgress, ALoaderOfRank0StandsInForWhatWasLost) {
  add(1);
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_TRUE(commit(worker, rounds).ok());
  });
  std::vector<Worker*> fresh;
  int loaded = 0;
  for (int i = 0; i < 2; ++i) {
    StateOptions options;
    options.loader = [&, i] {
      ++loaded;
      fresh[static_cast<std::size_t>(i)]->weights = cat("checkpoint of ", i);
    };
    fresh.push_back(&add("fresh", options));
  }
  generation(fresh, [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_EQ(worker.weights, "checkpoint of 0");
    EXPECT_TRUE(commit(worker, rounds).ok());
  });
  EXPECT_EQ(loaded, 1);
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

TEST_F(ElasticProgress, AFailureInTheMidstOfSavingLosesNothing) {
  add(2);
  bool throws = false;
  Handler fragile{[] { return std::size_t{1}; },
                  [&](std::span<std::byte>) {
                    if (throws) throw std::runtime_error("no");
                  },
                  [](std::span<const std::byte>) {}};
  for (auto& worker : workers_) EXPECT_TRUE(worker->progress.store().add("it", fragile).ok());
  generation(all(), [&](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "kept";
    EXPECT_TRUE(commit(worker, rounds).ok());
    (void)rounds.talk().barrier("both have committed");
    worker.weights = "half done";
    if (rank != 0) return;
    throws = true;
    EXPECT_THROW(worker.progress.store().keep({1, 2}), std::runtime_error);
    EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 1}));
    worker.progress.store().load();
    EXPECT_EQ(worker.weights, "kept");
  });
}

TEST_F(ElasticProgress, RanksThatCommitMoreOftenThanOthersAreNamed) {
  add(3);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    std::string next;
    Prepared prepared{{1, rank == 1 ? 2U : 1U}, {}};
    const auto failed = rounds.commit(prepared, no_proposal, next);
    EXPECT_TRUE(mentions(failed, "ranks 0, 2 came to commit 1.1, rank 1 to commit 1.2"))
        << failed.status.to_string();
  });
  EXPECT_TRUE(mark().none());
}

TEST_F(ElasticProgress, ACommitThatMeetsALookIsAnErrorThatSaysSo) {
  add(3);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    std::string next;
    const auto failed = rank == 2 ? worker.progress.check(rounds, no_proposal, next)
                                  : worker.progress.commit(rounds, no_proposal, next);
    EXPECT_TRUE(mentions(failed, "rank 0 has called commit(), rank 2 check_host_updates()"))
        << failed.status.to_string();
  });
}

TEST_F(ElasticProgress, StatesThatDifferAreFoundWhenItIsTimeToCompare) {
  StateOptions options;
  options.compare_every = 2;
  add(3, options);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    if (rank == 1) worker.weights = "another";
    EXPECT_TRUE(commit(worker, rounds).ok());
    const auto failed = commit(worker, rounds);
    EXPECT_EQ(failed.status.code(), Code::data_loss);
    EXPECT_TRUE(mentions(failed, "the state of rank 1 differs from that of ranks 0, 2"))
        << failed.status.to_string();
  });
  EXPECT_EQ(mark(), (CommitId{1, 1}));
}

TEST_F(ElasticProgress, RanksThatHaveAddedOtherThingsAreNamed) {
  add(2);
  std::string more;
  EXPECT_TRUE(workers_[1]->progress.store().add("more", handler_of(more)).ok());
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    const auto failed = worker.progress.begin(rounds, true);
    EXPECT_TRUE(mentions(failed, "rank 1 has added other things to the state than rank 0"))
        << failed.status.to_string();
    EXPECT_FALSE(worker.progress.is_lost());
  });
}

TEST_F(ElasticProgress, AMarkThatCannotBeWrittenEndsTheWorldOnAllRanks) {
  add(3);
  generation(all(), [this](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    (void)rounds.talk().barrier("all have begun");
    mark_.refuse(Status(Code::aborted, "a newer world has gone on"));
    const auto failed = commit(worker, rounds);
    EXPECT_TRUE(failed.world_failed);
    EXPECT_TRUE(mentions(failed, "a newer world has gone on")) << failed.status.to_string();
  });
}

TEST_F(ElasticProgress, AllGoOverToTheWorldThatRank0Proposes) {
  add(3);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    std::string next;
    const auto wants = [] { return std::string("the next world"); };
    const auto not_asked = [] { return std::string("nonsense"); };
    EXPECT_TRUE(worker.progress.check(rounds, no_proposal, next).ok());
    EXPECT_EQ(next, "");
    const auto checked = rank == 0 ? worker.progress.check(rounds, wants, next)
                                   : worker.progress.check(rounds, not_asked, next);
    EXPECT_TRUE(checked.ok()) << checked.status.to_string();
    EXPECT_EQ(next, "the next world");
    EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 1})) << "a change makes it a commit";
  });
  EXPECT_EQ(mark(), (CommitId{1, 1}));
}

TEST_F(ElasticProgress, SyncGivesAllWhatRank0HasAndCommitsNothing) {
  for (const auto mode : {CommitMode::copy, CommitMode::mark}) {
    workers_.clear();
    StateOptions options;
    options.mode = mode;
    add(3, options);
    generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
      begin(worker, rounds);
      worker.weights = cat("now of ", rank);
      const auto synced = worker.progress.sync(rounds);
      EXPECT_TRUE(synced.ok()) << synced.status.to_string();
      EXPECT_EQ(worker.weights, "now of 0");
      EXPECT_TRUE(commit(worker, rounds).ok());
      const auto finished = rounds.talk().barrier("committed");
      EXPECT_TRUE(finished.ok());
    });
    EXPECT_TRUE(mark_.write({}).ok());
  }
}

// ---- marks ----

TEST_F(ElasticProgress, WithMarksTheNewestWholeStateWinsWithoutACopy) {
  StateOptions options;
  options.mode = CommitMode::mark;
  add(3, options);
  generation(all(), [](int rank, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.progress.mutate([&] { worker.weights = "step 1"; });
    EXPECT_TRUE(commit(worker, rounds).ok());
    (void)rounds.talk().barrier("committed");
    // The step's last collective is over; one rank has used what it gave, one is in the midst.
    if (rank == 1) worker.progress.mutate([&] { worker.weights = "step 2"; });
    if (rank == 2) {
      EXPECT_THROW(worker.progress.mutate([&] {
        worker.weights = "ste";
        throw std::runtime_error("interrupted");
      }),
                   std::runtime_error);
      EXPECT_TRUE(worker.progress.store().holds().none());
    }
  });
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    EXPECT_EQ(worker.weights, "step 2");
    worker.progress.mutate([&] { worker.weights = "step 3"; });
    EXPECT_TRUE(commit(worker, rounds).ok());
  });
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

// Somebody who stood still while the others went on, and now asks what was committed last.
TEST_F(ElasticProgress, AWorldThatANewerOneHasLeftBehindIsOverAndNothingIsCalledLost) {
  add(2);
  ASSERT_TRUE(mark_.write({2, 5}).ok());
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    const auto begun = worker.progress.begin(rounds, true);
    EXPECT_TRUE(begun.world_failed);
    EXPECT_TRUE(mentions(begun, "this world is over: a newer one has reached commit 2.5 already"))
        << begun.status.to_string();
    EXPECT_FALSE(worker.progress.is_lost());
  });
}

TEST_F(ElasticProgress, WithMarksARankThatWasInterruptedIsNoCandidate) {
  StateOptions options;
  options.mode = CommitMode::mark;
  add(1, options);
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.progress.mutate([&] { worker.weights = "step 1"; });
    EXPECT_TRUE(commit(worker, rounds).ok());
    EXPECT_THROW(worker.progress.mutate([] { throw std::runtime_error("interrupted"); }),
                 std::runtime_error);
    EXPECT_TRUE(mentions(commit(worker, rounds), "the state is broken"));
  });
  generation(all(), [](int, Worker& worker, Rounds& rounds) {
    const auto begun = worker.progress.begin(rounds, true);
    EXPECT_TRUE(mentions(begun, "committed state lost")) << begun.status.to_string();
  });
}

TEST_F(ElasticProgress, AfterTheEndANewRunBeginsAnew) {
  add(2);
  generation(all(), [this](int, Worker& worker, Rounds& rounds) {
    begin(worker, rounds);
    worker.weights = "the end";
    EXPECT_TRUE(commit(worker, rounds).ok());
    EXPECT_TRUE(worker.progress.finish(rounds, mark_).ok());
    Worker other("of the second run");
    begin(other, rounds);
    EXPECT_TRUE(commit(other, rounds).ok());
  });
}

WorldDocument world_of(std::uint64_t generation, const std::vector<int>& workers) {
  WorldDocument document;
  document.job_id = "job";
  document.generation = generation;
  for (const int worker : workers) {
    const int rank = static_cast<int>(document.members.size());
    document.members.push_back({rank, "a", worker, 100U + static_cast<std::uint64_t>(worker),
                                "127.0.0.1", rank, static_cast<int>(workers.size()), 0, 1});
  }
  return document;
}

TEST(ElasticSets, FollowTheirWorkersThroughTheWorldsOnAllRanks) {
  auto sets = SetTable::of({{0, 2}, {1, 2}}, false, world_of(1, {0, 1, 2, 3}));
  ASSERT_TRUE(sets.ok());
  sets->enter(world_of(1, {0, 1, 2, 3}));
  sets->added(3, {0, 1, 3});
  sets->let_shrink(3);
  sets->enter(world_of(2, {3, 2, 0}));
  // As another rank hears of it.
  auto read = SetTable::decode(sets->encode());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  for (auto* const table : {&*sets, &*read}) {
    EXPECT_EQ(table->ranks(), (std::map<int, std::vector<int>>{{1, {1, 2}}, {3, {0, 2}}}));
    EXPECT_EQ(table->next(), 4);
    EXPECT_EQ(table->lost(2), "a#1");
    EXPECT_FALSE(table->lost(1) || table->lost(3) || table->lost(9));
    EXPECT_EQ(table->take_up({0, 2}), 3);
    EXPECT_EQ(table->take_up({0, 2}), std::nullopt) << "a second one is a duplicate";
    table->enter(world_of(3, {4}));
    EXPECT_EQ(table->lost(3), "a#0, a#3");
    EXPECT_TRUE(table->ranks().empty());
  }
}

TEST(ElasticSets, ThatCannotBeAreErrors) {
  const auto sets = SetTable::of({{0}, {0, 7}}, false, world_of(1, {0, 1}));
  EXPECT_NE(sets.status().message().find("process set 2: there is no rank 7 in a world of 2"),
            std::string::npos)
      << sets.status().to_string();
  EXPECT_FALSE(SetTable::decode("rubbish").ok());
  const auto good = SetTable::of({{0}}, false, world_of(1, {0, 1}))->encode();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(SetTable::decode(good.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(runtime::ProcessSets::restored({{3, {0}}}, 3, 2).ok()) << "of a number to come";
  EXPECT_FALSE(runtime::ProcessSets::restored({{1, {5}}}, 3, 2).ok()) << "of no such rank";
}

}  // namespace
}  // namespace hvd::worker
