// Which state the ranks of a new world begin with, and how it gets there.
#include <array>

#include "tests/worker/elastic/progress_worlds.h"

namespace hvd::worker {
namespace {

TEST_F(ElasticProgress, AtTheBeginningAllGetWhatRank0sProgramMade) {
  add(3);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.weights, "weights of 0");
    EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 0}));
  });
  EXPECT_TRUE(mark().none());
}

TEST_F(ElasticProgress, AfterALossTheNewestPreparedStateWinsAndTheOthersReceiveIt) {
  add(3);
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, protocol).ok());
    worker.weights = "prepared";
    if (rank == 2) worker.progress.store().keep({1, 2});  // the others died before they could
    if (rank != 2) worker.weights = "half done";
  });
  EXPECT_EQ(mark(), (CommitId{1, 1}));
  Worker& joiner = add("of a newcomer");
  generation({workers_[1].get(), workers_[2].get(), &joiner},
             [](int, Worker& worker, CommitProtocol& protocol) {
               begin(worker, protocol);
               EXPECT_EQ(worker.weights, "prepared");
               EXPECT_TRUE(commit(worker, protocol).ok());
             });
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

TEST_F(ElasticProgress, AHolderOfTheStateReceivesNothingAndRollsBackOnlyIfAsked) {
  add(2);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.weights = "kept";
    EXPECT_TRUE(commit(worker, protocol).ok());
    worker.weights = "half done";
  });
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol, rank == 0);
    EXPECT_EQ(worker.weights, rank == 0 ? "kept" : "half done");
  });
}

TEST_F(ElasticProgress, AWorldThatIsEnteredAgainGoesOnCountingCommits) {
  add(2);
  const auto commit_twice = [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_TRUE(commit(worker, protocol).ok());
    EXPECT_TRUE(commit(worker, protocol).ok());
  };
  generation(all(), commit_twice);
  EXPECT_EQ(mark(), (CommitId{1, 2}));
  number_ = 0;  // the same generation: a connection broke, and no rank was lost
  generation(all(), commit_twice);
  EXPECT_EQ(mark(), (CommitId{1, 4}));
}

// Every way to cut it: one and several holders and receivers, with chunks that fit and do not.
TEST_F(ElasticProgress, AStateOfAnySizeTravelsFromAllHoldersToAllReceivers) {
  for (const int holders : {1, 2, 3}) {
    for (const int receivers : {1, 2, 3}) {
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
        for (int i = 0; i < receivers; ++i) add("nothing");
        auto members = all();
        std::swap(members.front(), members.back());  // rank 0 need not be a holder
        generation(members, [&](int, Worker& worker, CommitProtocol& protocol) {
          begin(worker, protocol);
          EXPECT_EQ(worker.weights, weights) << holders << " " << receivers << " " << size;
          EXPECT_EQ(worker.progress.store().holds(), (CommitId{number_, 5}));
        });
      }
    }
  }
}

// As with running statistics of batch normalisation, or a list that each rank keeps for itself.
class ProgressWithStatesThatDiffer : public ElasticProgress,
                                     public ::testing::WithParamInterface<CommitMode> {
 protected:
  // Each holder has other weights than the one before it, and `longer` bytes more of them.
  void hand_over(int holders, int receivers, std::size_t longer) {
    workers_.clear();
    EXPECT_TRUE(mark_.write({}).ok());
    StateOptions options;
    options.mode = GetParam();
    std::vector<std::string> expected;
    for (int i = 0; i < holders; ++i) {
      expected.emplace_back(1'000 + static_cast<std::size_t>(i) * longer,
                            static_cast<char>('a' + i));
      add(expected.back(), options).progress.store().keep({number_ + 1, 5});
    }
    for (int i = 0; i < receivers; ++i) {
      add("nothing", options);
      expected.push_back(expected.front());
    }

    auto members = all();
    std::rotate(members.begin(), members.end() - 1, members.end());  // rank 0 is no holder
    generation(members, [&](int, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      EXPECT_EQ(worker.progress.store().holds(), (CommitId{number_, 5}));
    });
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(workers_[i]->weights, expected[i]) << holders << " " << receivers << " " << longer;
    }
  }
};

TEST_P(ProgressWithStatesThatDiffer, ReceiversGetThatOfTheFirstHolderAndHoldersKeepTheirs) {
  for (const int holders : {2, 3}) {
    for (const int receivers : {1, 2, 3}) {
      for (const std::size_t longer : {std::size_t{0}, std::size_t{1}, std::size_t{5'000}}) {
        for (const std::uint64_t window : {std::uint64_t{64}, std::uint64_t{40'000}}) {
          window_ = window;
          hand_over(holders, receivers, longer);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Elastic, ProgressWithStatesThatDiffer,
                         ::testing::Values(CommitMode::copy, CommitMode::mark),
                         [](const auto& mode) {
                           return mode.param == CommitMode::copy ? "copy" : "mark";
                         });

TEST_F(ElasticProgress, AJoinerThatDidNotKnowTheSizeOfTheStateHasRoomForACommitAfterwards) {
  const std::string weights(40'000'001, 'w');  // so much is never memory that was freed
  add(weights).progress.store().keep({1, 1});
  Worker& joiner = add("");
  joiner.progress.store().make_room();
  generation(all(), [&](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
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
    CommitProtocol protocol(world, 1, 0, mark_);
    const auto begun = progress[static_cast<std::size_t>(rank)].begin(protocol, true);
    EXPECT_TRUE(begun.ok()) << begun.status.to_string();
    (void)protocol.channel().barrier("end of test");
  });
  EXPECT_EQ(progress[1].store().holds(), (CommitId{1, 1}));
}

TEST_F(ElasticProgress, AKeptStateStaysWholeIfTheTransferOfANewerOneFails) {
  add(2);
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, protocol).ok());
    worker.weights = rank == 0 ? "prepared" : "half done";
    if (rank == 0) worker.progress.store().keep({1, 2});
  });
  // The world ends when the first of several chunks is there.
  window_ = 4;
  Worker& joiner = add("of a newcomer");
  joiner.progress.store().make_room();
  generation({workers_[0].get(), workers_[1].get(), &joiner}, [](int rank, Worker& worker,
                                                                 CommitProtocol& protocol) {
    if (rank != 1) {
      EXPECT_FALSE(worker.progress.begin(protocol, true).ok());
      return;
    }
    Resume resume;
    RunStatus status{};
    bool received = false;
    ASSERT_TRUE(protocol.vote(worker.progress.store(), false, status, resume).ok());
    const auto moved = protocol.transfer(
        worker.progress.store(), resume, received, {.on_received = [&protocol](std::uint64_t) {
          (void)protocol.channel().give_up(Status(Code::aborted, "cut"));
        }});
    EXPECT_FALSE(moved.ok());
    EXPECT_FALSE(received);
    EXPECT_EQ(worker.progress.store().holds(), (CommitId{1, 1}));
    worker.progress.store().load();
    EXPECT_EQ(worker.weights, "committed");
  });
  generation({workers_[0].get(), workers_[1].get(), &joiner},
             [](int, Worker& worker, CommitProtocol& protocol) {
               begin(worker, protocol);
               EXPECT_EQ(worker.weights, "prepared");
             });
}

TEST_F(ElasticProgress, AStateThatDoesNotArriveWholeIsNotTakenOver) {
  add(3);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.weights = "committed";
    EXPECT_TRUE(commit(worker, protocol).ok());
  });
  Worker& joiner = add("of a newcomer");
  generation({workers_[0].get(), workers_[1].get(), &joiner},
             [](int rank, Worker& worker, CommitProtocol& protocol) {
               Store& store = worker.progress.store();
               Resume resume;
               RunStatus status{};
               bool received = false;
               ASSERT_TRUE(protocol.vote(store, false, status, resume).ok());
               const auto moved = protocol.transfer(
                   store, resume, received, {.on_received = [&store](std::uint64_t) {
                     store.to_receive().bytes.bytes().front() ^= std::byte{1};
                   }});
               EXPECT_EQ(moved.ok(), rank != 2);
               EXPECT_FALSE(received);
               if (rank != 2) return;
               EXPECT_TRUE(mentions(moved, "rank 2 received have another checksum"))
                   << moved.status.to_string();
               EXPECT_EQ(worker.weights, "of a newcomer");
               EXPECT_TRUE(worker.progress.store().holds().none());
             });
}

TEST_F(ElasticProgress, CommittedStateThatIsLostIsAnErrorOnAllRanks) {
  add(2);
  generation({workers_[0].get()}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_TRUE(commit(worker, protocol).ok());
  });
  add("of a newcomer");
  generation({workers_[1].get(), workers_[2].get()},
             [](int, Worker& worker, CommitProtocol& protocol) {
               const auto begun = worker.progress.begin(protocol, true);
               EXPECT_TRUE(mentions(begun, "committed state lost: commit 1.1 was reached"))
                   << begun.status.to_string();
               EXPECT_TRUE(worker.progress.is_lost());
               EXPECT_FALSE(begun.world_failed);
             });
}

TEST_F(ElasticProgress, ALoaderOfRank0StandsInForWhatWasLost) {
  add(1);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_TRUE(commit(worker, protocol).ok());
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
  generation(fresh, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.weights, "checkpoint of 0");
    EXPECT_TRUE(commit(worker, protocol).ok());
  });
  EXPECT_EQ(loaded, 1);
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

}  // namespace
}  // namespace hvd::worker
