#include "worker/elastic/kept_states.h"

#include <gtest/gtest.h>

#include "worker/process/high_water.h"

namespace hvd::worker {
namespace {

// ---- with copies ----

TEST(KeptStates, nothing_is_kept_at_first) {
  const KeptStates states;
  EXPECT_TRUE(states.newest().none());
  EXPECT_FALSE(states.buffer());
}

TEST(KeptStates, a_state_counts_when_it_is_whole) {
  KeptStates states;
  states.entered(3, 0);
  EXPECT_EQ(states.next(), (CommitId{3, 1}));
  const auto buffer = states.begin_to_keep();
  EXPECT_TRUE(states.newest().none());
  states.kept(states.next());
  EXPECT_EQ(states.newest(), (CommitId{3, 1}));
  EXPECT_EQ(states.buffer(), buffer);
  EXPECT_EQ(states.next(), (CommitId{3, 2}));
}

TEST(KeptStates, an_interrupted_copy_leaves_the_state_before_it) {
  KeptStates states;
  states.entered(3, 0);
  const auto first = states.begin_to_keep();
  states.kept({3, 1});
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(states.begin_to_keep(), first);
    EXPECT_EQ(states.newest(), (CommitId{3, 1}));
    EXPECT_EQ(states.buffer(), first);
  }
  states.kept({3, 2});
  EXPECT_EQ(states.begin_to_keep(), first);
  EXPECT_EQ(states.newest(), (CommitId{3, 2}));
}

TEST(KeptStates, each_world_counts_from_1_on_and_the_state_kept_before_stays) {
  KeptStates states;
  states.entered(3, 0);
  states.begin_to_keep();
  states.kept({3, 8});
  states.entered(5, 0);
  EXPECT_EQ(states.newest(), (CommitId{3, 8}));
  EXPECT_EQ(states.next(), (CommitId{5, 1}));
  // All ranks begin with this state after a loader, or at the very beginning.
  states.begin_to_keep();
  states.kept({5, 0});
  EXPECT_EQ(states.next(), (CommitId{5, 1}));
}

// ---- without ----

TEST(KeptStates, without_copies_each_mutate_is_one_step_further) {
  KeptStates states;
  states.entered(2, 0);
  states.kept({2, 0});
  states.mutate_begins();
  states.mutate_ends();
  states.mutate_begins();
  states.mutate_ends();
  EXPECT_EQ(states.newest(), (CommitId{2, 2}));
  states.entered(4, 0);
  EXPECT_EQ(states.newest(), (CommitId{2, 2}));
  states.mutate_begins();
  states.mutate_ends();
  EXPECT_EQ(states.newest(), (CommitId{4, 1}));
}

TEST(KeptStates, a_worker_that_is_interrupted_inside_mutate_has_nothing) {
  KeptStates states;
  states.entered(2, 0);
  states.kept({2, 0});
  states.mutate_begins();
  EXPECT_TRUE(states.newest().none());
  states.entered(3, 0);
  EXPECT_TRUE(states.newest().none());
  states.begin_to_keep();
  states.kept({2, 1});  // received from a rank that has it
  EXPECT_EQ(states.newest(), (CommitId{2, 1}));
}

// ---- the mark ----

using Next = MarkWriter::Next;

TEST(MarkWriter, writes_on_top_of_what_it_read) {
  MarkWriter mark({3, 1});
  ASSERT_EQ(mark.next(), Next::read);
  mark.found({2, 9}, 40);
  ASSERT_EQ(mark.next(), Next::write);
  EXPECT_EQ(mark.version(), 40U);
  mark.wrote(41);
  EXPECT_EQ(mark.next(), Next::written);
  EXPECT_EQ(mark.version(), 41U);
}

TEST(MarkWriter, the_first_mark_of_a_job_is_written_where_there_is_none) {
  MarkWriter mark({1, 1});
  mark.found({}, 0);
  ASSERT_EQ(mark.next(), Next::write);
  EXPECT_EQ(mark.version(), 0U);
}

TEST(MarkWriter, does_not_read_what_it_knows_from_the_last_commit) {
  MarkWriter mark({3, 2}, 41);
  ASSERT_EQ(mark.next(), Next::write);
  EXPECT_EQ(mark.version(), 41U);
}

TEST(MarkWriter, an_older_world_that_was_late_is_written_over) {
  MarkWriter mark({4, 1}, 41);
  mark.refused();
  ASSERT_EQ(mark.next(), Next::read);
  mark.found({3, 7}, 42);
  ASSERT_EQ(mark.next(), Next::write);
  EXPECT_EQ(mark.version(), 42U);
}

TEST(MarkWriter, an_older_world_cannot_end_a_run_in_which_a_newer_one_is_at_work) {
  for (const CommitId newer : {CommitId{4, 0}, CommitId{4, 1}}) {
    MarkWriter mark({3, 0, 1}, 41);
    mark.refused();
    mark.found(newer, 42);
    EXPECT_EQ(mark.next(), Next::superseded);
  }
}

TEST(MarkWriter, a_world_that_is_over_commits_no_more) {
  MarkWriter mark({3, 7}, 41);
  mark.refused();
  mark.found({4, 1}, 42);
  EXPECT_EQ(mark.next(), Next::superseded);
}

TEST(MarkWriter, a_write_whose_answer_is_lost_is_looked_for) {
  MarkWriter done({3, 7}, 41);
  done.in_doubt();
  ASSERT_EQ(done.next(), Next::read);
  done.in_doubt();
  ASSERT_EQ(done.next(), Next::read);
  done.found({3, 7}, 42);
  EXPECT_EQ(done.next(), Next::written);
  EXPECT_EQ(done.version(), 42U);

  MarkWriter not_done({3, 7}, 41);
  not_done.in_doubt();
  not_done.found({3, 6}, 41);
  EXPECT_EQ(not_done.next(), Next::write);
}

}  // namespace
}  // namespace hvd::worker
