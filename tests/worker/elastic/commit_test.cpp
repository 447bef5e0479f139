// Agreement of all ranks at a commit, with copies and with marks.
#include "tests/worker/elastic/progress_worlds.h"

namespace hvd::worker {
namespace {

TEST_F(ElasticProgress, AFailureDuringACommitLosesNothing) {
  add(2);
  bool throws = false;
  elastic::Handler fragile{[] { return std::size_t{1}; },
                           [&](std::span<std::byte>) {
                             if (throws) throw std::runtime_error("no");
                           },
                           [](std::span<const std::byte>) {}};
  for (auto& worker : workers_) EXPECT_TRUE(worker->progress.store().add("it", fragile).ok());
  generation(all(), [&](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.weights = "kept";
    EXPECT_TRUE(commit(worker, protocol).ok());
    (void)protocol.channel().barrier("both have committed");
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
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    std::string next;
    Prepared prepared{{1, rank == 1 ? 2U : 1U}, {}};
    const auto failed = protocol.commit(prepared, no_proposal, next);
    EXPECT_TRUE(mentions(failed, "ranks 0, 2 came to commit 1.1, rank 1 to commit 1.2"))
        << failed.status.to_string();
  });
  EXPECT_TRUE(mark().none());
}

TEST_F(ElasticProgress, ACommitThatMeetsALookIsAnErrorThatSaysSo) {
  add(3);
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    std::string next;
    bool is_due = false;
    const auto failed = rank == 2 ? protocol.look(no_proposal, is_due)
                                  : worker.progress.commit(protocol, no_proposal, next);
    EXPECT_TRUE(mentions(failed, "rank 0 has called commit(), rank 2 check_host_updates()"))
        << failed.status.to_string();
  });
}

TEST_F(ElasticProgress, StatesThatDifferAreFoundWhenItIsTimeToCompare) {
  StateOptions options;
  options.compare_every = 2;
  add(3, options);
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    if (rank == 1) worker.weights = "another";
    EXPECT_TRUE(commit(worker, protocol).ok());
    const auto failed = commit(worker, protocol);
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
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    const auto failed = worker.progress.begin(protocol, true);
    EXPECT_TRUE(mentions(failed, "rank 1 has added other things to the state than rank 0"))
        << failed.status.to_string();
    EXPECT_FALSE(worker.progress.is_lost());
  });
}

TEST_F(ElasticProgress, AMarkThatCannotBeWrittenEndsTheWorldOnAllRanks) {
  add(3);
  generation(all(), [this](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    (void)protocol.channel().barrier("all have begun");
    mark_.refuse(Status(Code::aborted, "a newer world has gone on"));
    const auto failed = commit(worker, protocol);
    EXPECT_TRUE(failed.world_failed);
    EXPECT_TRUE(mentions(failed, "a newer world has gone on")) << failed.status.to_string();
  });
}

TEST_F(ElasticProgress, AllGoOverToTheWorldThatRank0Proposes) {
  add(3);
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    std::string next;
    const auto wants = [] { return std::string("the next world"); };
    const auto not_asked = [] { return std::string("nonsense"); };
    bool is_due = true;
    EXPECT_TRUE(protocol.look(no_proposal, is_due).ok());
    EXPECT_FALSE(is_due);
    const worker::Proposal proposal = rank == 0 ? worker::Proposal(wants) : not_asked;
    EXPECT_TRUE(protocol.look(proposal, is_due).ok());
    EXPECT_TRUE(is_due);
    const auto committed = worker.progress.commit(protocol, proposal, next);
    EXPECT_TRUE(committed.ok()) << committed.status.to_string();
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
    generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      worker.weights = cat("now of ", rank);
      const auto synced = worker.progress.sync(protocol);
      EXPECT_TRUE(synced.ok()) << synced.status.to_string();
      EXPECT_EQ(worker.weights, "now of 0");
      EXPECT_TRUE(commit(worker, protocol).ok());
      const auto finished = protocol.channel().barrier("committed");
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
  generation(all(), [](int rank, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.progress.mutate([&] { worker.weights = "step 1"; });
    EXPECT_TRUE(commit(worker, protocol).ok());
    (void)protocol.channel().barrier("committed");
    // The step's last collective is over; one rank has used what it gave, one is in the middle.
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
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.weights, "step 2");
    worker.progress.mutate([&] { worker.weights = "step 3"; });
    EXPECT_TRUE(commit(worker, protocol).ok());
  });
  EXPECT_EQ(mark(), (CommitId{2, 1}));
}

// A rank that stood still while the others went on, and now asks what was committed last.
TEST_F(ElasticProgress, AWorldThatANewerOneHasLeftBehindIsOverAndNothingIsCalledLost) {
  add(2);
  ASSERT_TRUE(mark_.write({2, 5}).ok());
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    (void)protocol.channel().barrier("the world ends when all have it");
    const auto begun = worker.progress.begin(protocol, true);
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
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    worker.progress.mutate([&] { worker.weights = "step 1"; });
    EXPECT_TRUE(commit(worker, protocol).ok());
    EXPECT_THROW(worker.progress.mutate([] { throw std::runtime_error("interrupted"); }),
                 std::runtime_error);
    EXPECT_TRUE(mentions(commit(worker, protocol), "the state is broken"));
  });
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    const auto begun = worker.progress.begin(protocol, true);
    EXPECT_TRUE(mentions(begun, "committed state lost")) << begun.status.to_string();
  });
}

// ---- the end of a run ----

class ProgressOfRuns : public ElasticProgress {
 protected:
  // Generation 1: the workers commit, and come to the end of their first run.
  void finish_first_run(int count) {
    add(count);
    generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
      begin(worker, protocol);
      worker.weights = "the end";
      EXPECT_TRUE(commit(worker, protocol).ok());
      EXPECT_TRUE(worker.progress.finish(protocol).ok());
      worker.run = 1;
    });
    EXPECT_EQ(mark(), (CommitId{1, 0, 1}));
  }
  // With another state. Returns what is in it then.
  static std::string begin_second_run(std::string made_here, CommitProtocol& protocol) {
    Progress progress{StateOptions()};
    EXPECT_TRUE(progress.store().add("of the second run", handler_of(made_here)).ok());
    const auto begun = progress.begin(protocol, false);
    EXPECT_TRUE(begun.ok()) << begun.status.to_string();
    EXPECT_EQ(progress.run_status(), RunStatus::goes_on);
    return made_here;
  }
};

TEST_F(ProgressOfRuns, ASecondRunBeginsAnewInTheSameWorldAndInALaterOne) {
  finish_first_run(2);
  for (const std::uint64_t before : {0U, 1U}) {
    number_ = before;
    generation(all(), [](int rank, Worker& /*worker*/, CommitProtocol& protocol) {
      EXPECT_EQ(begin_second_run(cat("of ", rank), protocol), "of 0");
    });
  }
}

TEST_F(ProgressOfRuns, ANewcomerDoesNotBeginAFinishedRunAgain) {
  finish_first_run(2);
  Worker& newcomer = add("of a newcomer");
  generation({&newcomer}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol, false);
    EXPECT_EQ(worker.progress.run_status(), RunStatus::is_over);
    EXPECT_EQ(worker.weights, "of a newcomer");
    EXPECT_FALSE(worker.progress.has_begun());
  });
}

TEST_F(ProgressOfRuns, ANewcomerReturnsFromAFinishedRunAndGetsTheStateOfTheNextOne) {
  finish_first_run(2);
  add("of a newcomer");
  generation(all(), [this](int rank, Worker& worker, CommitProtocol& protocol) {
    if (rank != 2) {
      EXPECT_EQ(begin_second_run(cat("of ", rank), protocol), "of 0");
      return;
    }
    begin(worker, protocol, false);
    EXPECT_EQ(worker.progress.run_status(), RunStatus::is_finished);
    EXPECT_EQ(worker.weights, "of a newcomer");
    CommitProtocol next(*worlds_[2], number_, 1, mark_);
    EXPECT_EQ(begin_second_run("of a newcomer", next), "of 0");
  });
}

TEST_F(ProgressOfRuns, NewcomersAloneInALaterRunSayThatItsStateIsLost) {
  finish_first_run(1);
  generation(all(), [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_TRUE(commit(worker, protocol).ok());
  });
  EXPECT_EQ(mark(), (CommitId{2, 1, 1}));
  Worker& newcomer = add("of a newcomer");
  generation({&newcomer}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol, false);
    EXPECT_EQ(worker.progress.run_status(), RunStatus::is_finished);
  });
  newcomer.run = 1;
  generation({&newcomer}, [](int, Worker& worker, CommitProtocol& protocol) {
    const auto begun = worker.progress.begin(protocol, false);
    EXPECT_TRUE(mentions(begun, "commit 2.1.1 was reached")) << begun.status.to_string();
  });
}

// It came to the end, and heard of that only in a later world.
TEST_F(ProgressOfRuns, AWorkerThatMissedTheEndGoesBackToItsLastCommit) {
  finish_first_run(1);
  Worker& late = add("committed");
  late.progress.store().keep({1, 1});
  late.weights = "half done";
  generation({&late}, [](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    EXPECT_EQ(worker.progress.run_status(), RunStatus::is_over);
    EXPECT_EQ(worker.weights, "committed");
  });
}

TEST_F(ProgressOfRuns, AWorldThatIsSupersededDoesNotFinish) {
  add(2);
  generation(all(), [this](int, Worker& worker, CommitProtocol& protocol) {
    begin(worker, protocol);
    mark_.refuse(Status(Code::aborted, "a newer world has committed already"));
    const auto finished = worker.progress.finish(protocol);
    EXPECT_TRUE(finished.world_failed);
    EXPECT_TRUE(worker.progress.has_begun());
  });
}

}  // namespace
}  // namespace hvd::worker
