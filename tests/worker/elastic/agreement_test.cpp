#include "worker/elastic/agreement.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::worker {
namespace {

// ---- a commit ----

Status agree_about(const std::vector<CommitId>& ids) {
  std::vector<Prepared> prepared;
  for (const CommitId id : ids) prepared.push_back({id, {}});
  return agree(prepared);
}

TEST(Agreement, of_one_or_of_many_at_the_same_commit) {
  EXPECT_TRUE(agree_about({{1, 1}}).ok());
  EXPECT_TRUE(agree_about({{2, 7}, {2, 7}, {2, 7}}).ok());
}

TEST(Agreement, names_the_ranks_that_are_at_another_commit) {
  const Status one = agree_about({{2, 7}, {2, 7}, {2, 6}});
  EXPECT_EQ(one.code(), Code::invalid_argument);
  EXPECT_EQ(
      one.message(),
      "commit(): ranks 0, 1 came to commit 2.7, rank 2 to commit 2.6; all ranks must commit as "
      "often");
  // Of two parties of the same size the older commit is named first, on every rank.
  EXPECT_EQ(
      agree_about({{2, 8}, {2, 7}}).message(),
      "commit(): rank 1 came to commit 2.7, rank 0 to commit 2.8; all ranks must commit as often");
}

TEST(Agreement, names_the_ranks_whose_state_differs) {
  const auto of = [](const std::vector<std::optional<std::uint64_t>>& checksums) {
    std::vector<Prepared> prepared;
    for (const auto& checksum : checksums) prepared.push_back({{4, 2}, checksum});
    return agree(prepared);
  };
  EXPECT_TRUE(of({9, 9, 9}).ok());
  EXPECT_TRUE(of({0, 0}).ok());
  EXPECT_TRUE(of({std::nullopt, std::nullopt}).ok());
  const Status one = of({9, 8, 9});
  EXPECT_EQ(one.code(), Code::data_loss);
  EXPECT_EQ(one.message(),
            "commit(): at commit 4.2 the state of rank 1 differs from that of ranks 0, 2");
  EXPECT_EQ(of({5, 9, 9, 6}).message(),
            "commit(): at commit 4.2 the state of ranks 0, 3 differs from that of ranks 1, 2");
  // A rank that sent no checksum although it was time to compare does not count as equal.
  EXPECT_EQ(of({9, 9, std::nullopt}).code(), Code::data_loss);
}

TEST(Agreement, complains_of_another_commit_before_it_compares_states) {
  EXPECT_EQ(agree({{{1, 1}, 5}, {{1, 2}, 6}}).code(), Code::invalid_argument);
}

// ---- after a change ----

struct Case {
  const char* what;
  std::vector<Vote> votes;
  CommitId mark;
  Resume::From from;
  CommitId id;
  std::vector<int> holders;
  std::vector<int> receivers;
};

TEST(Resume, is_the_newest_state_that_anybody_has) {
  using From = Resume::From;
  const Vote joiner;
  const std::vector<Case> cases{
      {"all have it", {{{2, 5}, 80}, {{2, 5}, 80}}, {2, 5}, From::state, {2, 5}, {0, 1}, {}},
      {"a joiner lacks it", {{{2, 5}, 80}, joiner}, {2, 5}, From::state, {2, 5}, {0}, {1}},
      {"rank 0 lacks it", {joiner, {{2, 5}, 80}}, {2, 5}, From::state, {2, 5}, {1}, {0}},
      {"one is ahead of the mark, and was prepared",
       {{{2, 5}, 80}, {{2, 6}, 96}, {{2, 5}, 80}},
       {2, 5},
       From::state,
       {2, 6},
       {1},
       {0, 2}},
      {"one is behind two worlds",
       {{{4, 1}, 80}, {{2, 900}, 80}, joiner},
       {4, 1},
       From::state,
       {4, 1},
       {0},
       {1, 2}},
      {"the beginning of a world is a state",
       {{{3, 0}, 80}, joiner},
       {},
       From::state,
       {3, 0},
       {0},
       {1}},
      {"no rank has any", {joiner, joiner}, {}, From::beginning, {7, 0}, {0}, {1}},
      {"one alone, the first", {joiner}, {}, From::beginning, {7, 0}, {0}, {}},
      {"lost, and rank 0 can load",
       {{{2, 5}, 80, true}, {{2, 5}, 80, true}},
       {2, 6},
       From::loader,
       {7, 0},
       {0},
       {1}},
      {"lost wholly, and rank 0 can load",
       {{{}, 0, true}, joiner},
       {2, 6},
       From::loader,
       {7, 0},
       {0},
       {1}},
  };
  for (const auto& one : cases) {
    const auto resume = decide_resume(one.votes, one.mark, 7);
    ASSERT_TRUE(resume.ok()) << one.what << ": " << resume.status().message();
    EXPECT_EQ(resume->from, one.from) << one.what;
    EXPECT_EQ(resume->id, one.id) << one.what;
    EXPECT_EQ(resume->holders, one.holders) << one.what;
    EXPECT_EQ(resume->receivers, one.receivers) << one.what;
  }
}

TEST(Resume, says_how_large_the_state_is_that_travels) {
  const auto resume = decide_resume({{{2, 5}, 80}, {{2, 6}, 96}, {}}, {}, 7);
  ASSERT_TRUE(resume.ok());
  EXPECT_EQ(resume->bytes, 96U);
}

// The others' states cannot be cut in the same places.
TEST(Resume, is_sent_by_holders_whose_states_have_the_sizes_of_the_first_ones) {
  const CommitId id{2, 5};
  const auto resume =
      decide_resume({{}, {id, 80, false, 7}, {id, 96, false, 8}, {id, 80, false, 7}}, id, 7);
  ASSERT_TRUE(resume.ok());
  EXPECT_EQ(resume->holders, (std::vector{1, 2, 3}));
  EXPECT_EQ(resume->senders, (std::vector{1, 3}));
  EXPECT_EQ(resume->receivers, (std::vector{0}));
  EXPECT_EQ(resume->bytes, 80U);
}

TEST(Resume, of_what_is_lost_is_an_error_that_says_so) {
  const auto older = decide_resume({{{2, 4}, 80}, {}}, {2, 5}, 7);
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.status().code(), Code::data_loss);
  EXPECT_EQ(
      older.status().message(),
      "committed state lost: commit 2.5 was reached, and every worker that held it is gone; the "
      "newest state left is of 2.4. A loader (StateOptions::loader) could go on from a "
      "checkpoint.");
  const auto none = decide_resume({{}, {}}, {2, 5}, 7);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("there is no state left."), std::string::npos)
      << none.status().message();
  // It is rank 0 that would load.
  EXPECT_FALSE(decide_resume({{}, {{}, 0, true}}, {2, 5}, 7).ok());
}

TEST(Resume, a_state_of_an_earlier_run_does_not_count) {
  std::vector<Vote> votes{{{3, 5}, 80}, {}};
  for (auto& vote : votes) vote.run = 1;
  const auto resume = decide_resume(votes, {3, 0, 1}, 4);
  ASSERT_TRUE(resume.ok()) << resume.status().to_string();
  EXPECT_EQ(resume->from, Resume::From::beginning);
}

// ---- runs of the program ----

std::vector<RunStatus> statuses(const std::vector<std::uint64_t>& runs, CommitId mark) {
  std::vector<Vote> votes;
  for (const auto run : runs) votes.emplace_back().run = run;
  std::vector<RunStatus> found;
  for (int rank = 0; rank < static_cast<int>(runs.size()); ++rank) {
    found.push_back(run_status(votes, mark, rank));
  }
  return found;
}

TEST(RunStatus, of_ranks_in_the_same_run_goes_on) {
  const std::vector<RunStatus> both(2, RunStatus::goes_on);
  EXPECT_EQ(statuses({0, 0}, {}), both);
  EXPECT_EQ(statuses({0, 0}, {3, 17}), both);
  EXPECT_EQ(statuses({1, 1}, {3, 17}), both);  // the mark of an earlier run
  EXPECT_EQ(statuses({1, 1}, {3, 0, 1}), both);
  EXPECT_EQ(statuses({1, 1}, {3, 17, 1}), both);
}

TEST(RunStatus, of_a_rank_that_comes_to_a_later_run_is_finished_and_the_others_wait) {
  const std::vector<RunStatus> expected{RunStatus::waits, RunStatus::is_finished,
                                        RunStatus::is_finished};
  EXPECT_EQ(statuses({2, 0, 1}, {3, 0, 2}), expected);
  EXPECT_EQ(statuses({2, 0, 1}, {3, 17, 1}), expected);
}

TEST(RunStatus, of_newcomers_alone_is_over_unless_a_later_run_has_commits) {
  EXPECT_EQ(statuses({0, 0}, {3, 0, 1}), std::vector<RunStatus>(2, RunStatus::is_over));
  EXPECT_EQ(statuses({0, 1}, {3, 0, 2}), std::vector<RunStatus>(2, RunStatus::is_over));
  EXPECT_EQ(statuses({0, 0}, {3, 1, 1}), std::vector<RunStatus>(2, RunStatus::is_finished));
}

}  // namespace
}  // namespace hvd::worker
