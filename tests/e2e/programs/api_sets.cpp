// Process sets through the public API, those from the start and those that come and go, with what
// goes wrong. Says "ok RANK." at its end; what is wrong ends it with 1.
#include <cstdlib>

#include "tests/e2e/programs/check.h"

namespace {

using check::elements;
using check::same;
using check::throws;
using Code = hvd::ProcessSetErrorCode;

void throws_code(Code code, const std::string& what, const std::vector<std::string>& parts,
                 const std::function<void()>& call) {
  throws<hvd::ProcessSetError>(what, parts, [&] {
    try {
      call();
    } catch (const hvd::ProcessSetError& error) {
      same(static_cast<int>(error.code()), static_cast<int>(code), what + ": " + error.what());
      throw;
    }
  });
}

// All collectives of a set, which this rank is a member of.
void work_in(const hvd::ProcessSet& set, const std::string& name) {
  const auto ranks = set.ranks();
  const auto members = static_cast<std::size_t>(set.size());
  std::vector<int> value{hvd::rank()};
  hvd::allreduce(value, {.name = name, .op = hvd::Max, .process_set = set});
  same(value[0], ranks.back(), "max of the set");
  const std::vector<int> own{hvd::rank()};
  same(elements<int>(hvd::allgather(own, {.name = name, .process_set = set})), ranks, "gathered");
  value = {hvd::rank()};
  hvd::broadcast(value, {.name = name, .root = ranks.back(), .process_set = set});
  same(value[0], ranks.back(), "broadcast in the set");
  const std::vector<int> to_all(members, set.rank());
  const auto rows = hvd::alltoall(to_all, {.name = name, .process_set = set});
  for (std::size_t i = 0; i < members; ++i) {
    same(rows.tensor.as<int>()[i], static_cast<int>(i), "alltoall in the set");
  }
  std::vector<int> mine(1);
  hvd::reducescatter(to_all, mine, {.name = name, .op = hvd::Sum, .process_set = set});
  hvd::barrier({.name = name, .process_set = set});
  same(hvd::broadcast_object("from " + std::to_string(hvd::rank()),
                             {.name = name, .root = ranks.front(), .process_set = set}),
       "from " + std::to_string(ranks.front()), "object of the set");
  same(hvd::allgather_object("x", {.name = name, .process_set = set}).size(), members, "objects");
}

void work_in(const hvd::ProcessSet& set) { work_in(set, "in " + std::to_string(set.id())); }

// Three ranks or more.
void from_the_start() {
  hvd::init({.process_sets = {{2, 0}, {1}}});
  const int rank = hvd::rank();
  const hvd::ProcessSet even(1);
  const hvd::ProcessSet one(2);
  same(hvd::process_sets().size(), 3U, "sets");
  check::that(hvd::process_sets()[2] == one, "sets are numbered in their order");
  same(even.ranks(), (std::vector<int>{0, 2}), "ranks of a set");
  same(hvd::ProcessSet().size(), hvd::size(), "the set of all");
  same(even.included(), rank == 0 || rank == 2, "included");
  if (even.included()) {
    same(even.rank(), rank / 2, "rank in the set");
    work_in(even);
  } else {
    throws_code(Code::not_a_member, "rank of a set", {"rank " + std::to_string(rank), "0, 2"},
                [&] { even.rank(); });
    std::vector<int> data(1);
    throws_code(Code::not_a_member, "work of a rank outside of the set",
                {"is not in process set 1"}, [&] { hvd::allreduce(data, {.process_set = even}); });
  }
  if (one.included()) work_in(one);
  throws_code(Code::not_dynamic, "add", {"HVD_DYNAMIC_PROCESS_SETS"}, [] {
    hvd::add_process_set({0, 1});
  });
  throws_code(Code::not_dynamic, "remove", {"HVD_DYNAMIC_PROCESS_SETS"},
              [&] { hvd::remove_process_set(even); });
  // A program may come again, with other sets.
  hvd::shutdown();
  throws<hvd::NotInitializedError>("ranks", {"hvd::init()"}, [&] { even.ranks(); });
  hvd::init({.process_sets = {{1, 2}}});
  same(hvd::ProcessSet(1).ranks(), (std::vector<int>{1, 2}), "ranks of the new set");
  hvd::barrier();
  check::say_ok();
}

// Three ranks or more. Rank 1 comes to the second set with more calls behind it than rank 2.
void unnamed() {
  hvd::init({.process_sets = {{0, 1}, {1, 2}}});
  for (const auto& set : {hvd::ProcessSet(1), hvd::ProcessSet(2), hvd::ProcessSet()}) {
    std::vector<int> ones{1};
    std::vector<int> tens{10};
    if (!set.included()) {
      throws_code(Code::not_a_member, "work of a stranger", {"allreduce.noname.0"},
                  [&] { hvd::allreduce(ones, {.process_set = set}); });
      continue;
    }
    auto first = hvd::allreduce_async(ones, {.op = hvd::Sum, .process_set = set});
    hvd::allreduce(tens, {.op = hvd::Sum, .process_set = set});
    first.wait();
    same(ones[0], set.size(), "the first sum of the set");
    same(tens[0], 10 * set.size(), "the second sum of the set");
    work_in(set, "");
    hvd::grouped_allreduce({ones, tens}, {.op = hvd::Max, .process_set = set});
    same(tens[0], 10 * set.size(), "a group of the set");
  }
  check::say_ok();
}

// Three ranks or more.
void dynamic() {
  hvd::init({.dynamic_process_sets = true});
  const int rank = hvd::rank();
  for (int round = 0; round < 3; ++round) {
    const auto pair = hvd::add_process_set({2, 0});
    same(pair.id(), 2 * round + 1, "numbers are never used again");
    const auto alone = hvd::add_process_set({1});
    if (pair.included()) work_in(pair);
    if (alone.included()) work_in(alone);
    hvd::barrier();
    throws_code(Code::duplicate, "the same ranks again",
                {"process set " + std::to_string(pair.id()) + " already consists of ranks 0, 2"},
                [] {
                  hvd::add_process_set({0, 2});
                });
    hvd::remove_process_set(alone);
    throws_code(Code::unknown, "a set that is gone", {"no process set", "any more"},
                [&] { alone.size(); });
    // A tensor that only one rank has requested.
    std::vector<float> data(3);
    hvd::Handle stranded;
    if (rank == 0) stranded = hvd::allreduce_async(data, {.name = "s", .process_set = pair});
    hvd::barrier();
    hvd::remove_process_set(pair);
    if (rank == 0) {
      throws_code(Code::unknown, "what was in flight", {"\"s\"", "was removed"},
                  [&] { stranded.wait(); });
    }
    throws_code(Code::unknown, "work in a set that is gone", {"any more"},
                [&] { hvd::allreduce(data, {.process_set = pair}); });
    throws_code(Code::unknown, "removing it again", {"any more"},
                [&] { hvd::remove_process_set(pair); });
  }
  same(hvd::process_sets().size(), 1U, "only the set of all is left");
  throws_code(Code::unknown, "a set that never was", {"no process set 77"},
              [] { hvd::ProcessSet(77).ranks(); });
  throws<hvd::InvalidArgumentError>("removing all", {"the global one cannot be removed"},
                                    [] { hvd::remove_process_set(hvd::ProcessSet()); });
  throws_code(Code::duplicate, "all ranks", {"global"}, [] {
    std::vector<int> all;
    for (int r = 0; r < hvd::size(); ++r) all.push_back(r);
    hvd::add_process_set(all);
  });
  for (const auto& [ranks, said] :
       std::vector<std::pair<std::vector<int>, std::string>>{{{}, "at least one rank"},
                                                             {{0, 99}, "no rank 99"},
                                                             {{-1}, "no rank -1"},
                                                             {{1, 1}, "without duplicates"}}) {
    throws<hvd::InvalidArgumentError>("bad ranks", {said},
                                      [ranks = ranks] { hvd::add_process_set(ranks); });
  }

  // Ranks that disagree are told both sides, and go on.
  throws<hvd::InvalidArgumentError>("other ranks", {"[0, 1]", "[0, 2]", "rank 0", "rank 1"}, [&] {
    hvd::add_process_set(rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 2});
  });
  const auto first = hvd::add_process_set({0, 1});
  const auto second = hvd::add_process_set({1, 2});
  throws<hvd::InvalidArgumentError>(
      "other sets", {std::to_string(first.id()), std::to_string(second.id()), "rank 0", "rank 1"},
      [&] { hvd::remove_process_set(rank == 0 ? first : second); });
  throws<
      hvd::InvalidArgumentError>("add or remove", {"add_process_set", "remove_process_set"}, [&] {
    rank == 0 ? hvd::remove_process_set(first) : static_cast<void>(hvd::add_process_set({0, 2}));
  });
  same(hvd::process_sets().size(), 3U, "nothing has changed");

  // A rank that has called shutdown() takes no part any more.
  hvd::barrier();
  check::say_ok();
  if (rank != 1) {
    // As a rule that is rank 1; but ranks that have noticed it leave, too, while others still ask.
    throws_code(Code::shut_down, "a set with a rank that is gone", {"rank ", "shutdown()"}, [] {
      hvd::add_process_set({0, 2});
    });
  }
  hvd::shutdown();
}

// Every rank hears the same when they want different sets, and may try again.
void disagree() {
  const bool first = std::string(std::getenv("HOROVOD_RANK")) == "0";
  throws<hvd::InitError>("other sets",
                         {"Mismatched process sets", "rank 0", "[0]", "rank 1", "[1]"},
                         [&] { hvd::init({.process_sets = {{first ? 0 : 1}}}); });
  throws<hvd::InitError>("dynamic or not", {"Mismatched process sets", "and dynamic ones"},
                         [&] { hvd::init({.dynamic_process_sets = first}); });
  throws<hvd::InitError>("sets that cannot be", {"no rank 99"}, [] {
    hvd::init({.process_sets = {{0, 99}}});
  });
  throws<hvd::InitError>("the same twice", {"process set 1 already consists of ranks 0"}, [] {
    hvd::init({.process_sets = {{0}, {0}}});
  });
  hvd::init({.process_sets = {{1}}});
  hvd::barrier();
  check::say_ok();
}

// HVD_DYNAMIC_PROCESS_SETS=1.
void by_environment() {
  hvd::init();
  same(hvd::add_process_set({0}).size(), 1, "size");
  hvd::barrier();
  check::say_ok();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run(argc, argv,
                    {{"from-the-start", from_the_start},
                     {"unnamed", unnamed},
                     {"dynamic", dynamic},
                     {"disagree", disagree},
                     {"by-environment", by_environment}});
}
