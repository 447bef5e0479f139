// The contents of a State, and their memory.
#include "worker/elastic/store.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <hvd/error.h>

#include "tests/worker/elastic/in_memory.h"

namespace hvd::worker {
namespace {

using elastic::CommitMode;
using elastic::Handler;
using elastic::detail::handler_of;
using test::is_in_memory;

TEST(ElasticStore, TheShapeTellsNamesOrderAndModeApart) {
  std::string a;
  const auto shape_of = [&](CommitMode mode, const std::vector<std::string>& names) {
    Store store(mode);
    for (const auto& name : names) EXPECT_TRUE(store.add(name, handler_of(a)).ok());
    return store.shape();
  };
  const auto shape = shape_of(CommitMode::copy, {"x", "y"});
  EXPECT_EQ(shape, shape_of(CommitMode::copy, {"x", "y"}));
  EXPECT_NE(shape, shape_of(CommitMode::mark, {"x", "y"}));
  EXPECT_NE(shape, shape_of(CommitMode::copy, {"y", "x"}));
  EXPECT_NE(shape, shape_of(CommitMode::copy, {"x"}));
}

bool holds(const Copy& copy, const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return copy.sizes == std::vector<std::uint64_t>{text.size()} &&
         std::equal(bytes.begin(), bytes.end(), copy.bytes.bytes().begin(),
                    copy.bytes.bytes().end());
}

TEST(ElasticStore, ACopyThatWasCutOffHoldsNothingWhole) {
  bool throws = false;
  Store store(CommitMode::copy);
  ASSERT_TRUE(store
                  .add("fragile", Handler{[] { return std::size_t{1}; },
                                          [&](std::span<std::byte>) {
                                            if (throws) throw std::runtime_error("no");
                                          },
                                          [](std::span<const std::byte>) {}})
                  .ok());
  store.save_own();
  EXPECT_EQ(store.to_receive().sizes.size(), 1U);
  throws = true;
  EXPECT_THROW(store.save_own(), std::runtime_error);
  EXPECT_TRUE(store.to_receive().sizes.empty());
}

TEST(ElasticStore, MemoryIsReservedBeforeTheStateComesAndTheKeptStateStays) {
  const std::string weights(40'000'001, 'w');  // so much is never memory that was freed
  std::string now = weights;
  Store store(CommitMode::copy);
  ASSERT_TRUE(store.add("weights", handler_of(now)).ok());
  Buffer fresh;
  fresh.resize(weights.size());
  EXPECT_FALSE(is_in_memory(fresh)) << "or this test says nothing";
  store.make_room();
  EXPECT_TRUE(store.holds().none());
  Copy& room = store.to_receive();
  Buffer* const idle = store.idle(true);
  ASSERT_NE(idle, nullptr);
  ASSERT_NE(idle, &room.bytes);
  EXPECT_EQ(room.bytes.size(), weights.size());
  EXPECT_TRUE(is_in_memory(room.bytes));
  EXPECT_TRUE(holds(room, weights)) << "what the objects are now need not be received";
  EXPECT_EQ(idle->size(), weights.size());
  EXPECT_TRUE(is_in_memory(*idle));
  const auto* const before = room.bytes.bytes().data();
  store.keep({1, 1});
  EXPECT_EQ(store.to_send().bytes.bytes().data(), before);

  EXPECT_EQ(store.idle(true), nullptr) << "one is kept, and the other is received into";
  EXPECT_NE(store.idle(false)->bytes().data(), store.to_send().bytes.bytes().data());
  store.make_room();
  EXPECT_EQ(store.holds(), (CommitId{1, 1}));
  now.clear();
  store.load();
  EXPECT_EQ(now, weights);
}

TEST(ElasticStore, WhereCommitsAreMarkedThereIsRoomToReceiveOnlyUntilItIsLetGo) {
  std::string weights(3'000'000, 'w');
  Store store(CommitMode::mark);
  ASSERT_TRUE(store.add("weights", handler_of(weights)).ok());
  store.make_room();
  EXPECT_EQ(store.idle(true), nullptr);
  EXPECT_EQ(store.to_receive().bytes.size(), weights.size());
  EXPECT_TRUE(is_in_memory(store.to_receive().bytes));
  store.let_go();
  EXPECT_EQ(store.to_receive().bytes.size(), 0U);
}

// ---- in the memory of an agent ----

// Workers that come one after the other, and have added the same.
class KeptByAgent : public ::testing::Test {
 protected:
  KeptByAgent() {
    auto made = StateMemory::make();
    if (!made.ok()) throw std::runtime_error(made.status().to_string());
    memory_.emplace(std::move(*made));
  }

  struct Worker {
    explicit Worker(const std::vector<std::string>& names = {"weights", "step"},
                    CommitMode mode = CommitMode::copy)
        : store(mode), values(names.size()) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_TRUE(store.add(names[i], handler_of(values[i])).ok());
      }
    }
    Store store;
    std::vector<std::string> values;
  };

  CommitId begin(Worker& worker, std::uint64_t run = 0) {
    auto memory = StateMemory::open(memory_->duplicate());
    if (!memory.ok()) throw std::runtime_error(memory.status().to_string());
    const auto found = worker.store.keep_in(*memory, run);
    if (!found.ok()) throw std::runtime_error(found.status().to_string());
    return *found ? (*found)->id : CommitId();
  }
  void commit(Worker& worker, const std::string& weights, const CommitId& id) {
    worker.values[0] = weights;
    worker.store.keep(id);
  }

  std::optional<StateMemory> memory_;
};

TEST_F(KeptByAgent, TheNextWorkerBeginsWithTheNewestCommit) {
  {
    Worker first;
    EXPECT_TRUE(begin(first).none());
    commit(first, std::string(5'000'000, 'a'), {1, 1, 0});
    commit(first, std::string(7'000'000, 'b'), {1, 2, 0});
  }
  Worker second;
  EXPECT_EQ(begin(second), (CommitId{1, 2, 0}));
  EXPECT_EQ(second.store.holds(), (CommitId{1, 2, 0}));
  EXPECT_EQ(second.store.bytes(), 7'000'000U);
  EXPECT_EQ(second.values[0], "") << "not loaded yet";
  second.store.load();
  EXPECT_EQ(second.values[0], std::string(7'000'000, 'b'));
  second.store.entered(2, 0);
  commit(second, "c", second.store.next());
  Worker third;
  EXPECT_EQ(begin(third), (CommitId{2, 1, 0}));
}

TEST_F(KeptByAgent, AWorkerThatIsKilledWhileItCommitsLeavesTheCommitBefore) {
  Worker first;
  begin(first);
  commit(first, "a", {1, 1, 0});
  commit(first, "b", {1, 2, 0});
  first.values[0] = "half";
  first.store.save_own();  // into the other copy, which never gets a number
  Worker second;
  EXPECT_EQ(begin(second), (CommitId{1, 2, 0}));
  second.store.load();
  EXPECT_EQ(second.values[0], "b");
}

TEST_F(KeptByAgent, TheStateOfAnotherProgramIsNone) {
  Worker first;
  begin(first);
  commit(first, "a", {1, 1, 0});
  Worker other({"weights", "optimizer"});
  EXPECT_TRUE(begin(other).none());
}

TEST_F(KeptByAgent, TheEndOfARunStaysForOthersUntilTheNextRun) {
  Worker first;
  begin(first);
  commit(first, "end", {1, 9, 0});
  first.store.forget();
  EXPECT_TRUE(first.store.holds().none());
  Worker second;
  EXPECT_EQ(begin(second), (CommitId{1, 9, 0}));
  Worker later;
  EXPECT_TRUE(begin(later, 1).none()) << "the state of an earlier run";
}

TEST_F(KeptByAgent, TheStateOfALaterRunWaitsForIt) {
  Worker first;
  begin(first, 1);
  commit(first, "second run", {1, 1, 1});
  Worker second;
  EXPECT_TRUE(begin(second, 0).none());
  commit(second, "of the first run", {2, 1, 0});
  Worker third;
  EXPECT_EQ(begin(third, 1), (CommitId{1, 1, 1}));
}

TEST_F(KeptByAgent, MemoryThatIsGivenBackHasWhatWasKept) {
  Worker first;
  begin(first);
  commit(first, "a", {1, 1, 0});
  EXPECT_TRUE(first.store.leave_memory());
  EXPECT_TRUE(first.store.holds().none());
  Worker second;
  EXPECT_EQ(begin(second), (CommitId{1, 1, 0}));
}

TEST_F(KeptByAgent, AStateWithoutCopiesIsNotKept) {
  Worker marked({"weights"}, CommitMode::mark);
  EXPECT_EQ(marked.store.keep_in(*memory_, 0).status().code(), Code::invalid_argument);
}

TEST(ElasticState, RefusesNamesTwiceAndHandlersThatLackSomething) {
  elastic::State state;
  int step = 0;
  state.add("step", step);
  EXPECT_THROW(state.add("step", step), InvalidArgumentError);
  EXPECT_THROW(state.add("", step), InvalidArgumentError);
  EXPECT_THROW(state.add("own", Handler{}), InvalidArgumentError);
  EXPECT_THROW(state.commit(), InvalidArgumentError);
  EXPECT_THROW(state.check_host_updates(), InvalidArgumentError);
  EXPECT_THROW(state.on_reset({}), InvalidArgumentError);
  EXPECT_THROW(state.on_notice({}), InvalidArgumentError);
  EXPECT_THROW(state.mutate({}), InvalidArgumentError);
  elastic::StateOptions options;
  options.compare_every = -1;
  EXPECT_THROW(elastic::State{options}, InvalidArgumentError);
}

}  // namespace
}  // namespace hvd::worker
