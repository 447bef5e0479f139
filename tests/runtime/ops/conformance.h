// The conformance tables of every family of operations over every transport: operation x type x
// ranks x in place or not x new or cached x sizes x world or part of it, against reference.h. A
// backend is a line in a test, or two:
//
//     HVD_CONFORMANCE(Gloo, every_table(gloo_backend()));
//     HVD_CONFORMANCE(GlooInProcesses, every_table(gloo_backend(), RanksAs::processes));
//
// and all that it has to give is a way to run a function on n ranks, which are threads or
// processes. "New or cached" concerns backends that negotiate: there every call is made under a new
// name, and then once more, and the rank says how it has requested it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <iosfwd>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ops/operation.h"
#include "tests/runtime/ops/reference.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {

inline bool contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

inline std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// One rank, of one backend.
class RankUnderTest {
 public:
  virtual ~RankUnderTest() = default;
  // Runs what `response` says among the group's members, of which this rank is one. Blocks.
  virtual Status run(const runtime::Response& response, const runtime::Group& group,
                     std::vector<runtime::Entry>& entries,
                     std::vector<runtime::Outcome>& outcomes) = 0;
  // Where its tensors lie.
  virtual std::pmr::memory_resource* memory() { return std::pmr::get_default_resource(); }
  // How often it has asked for a tensor of the whole world's or its set's; nothing: it does not
  // ask.
  virtual std::optional<runtime::CacheStats> cache_stats() const { return std::nullopt; }
};

// Limits of sizes may be set so that some kilobytes count as large: the table calls tensors of a
// few hundred bytes, of 2 KB and more, and of megabytes.
inline constexpr std::size_t kLittleBytes = 1024;
// Of what fuses, so that the larger tensors are more than one batch holds.
inline constexpr std::size_t kFusionThreshold = 2048;

struct Backend {
  std::string name;
  // It is not the algorithms that are in question: only some kilobytes, but always a second time.
  bool negotiates = false;
  // Calls `body` on `size` ranks at the same time, and returns when all have ended.
  using Body = std::function<void(int rank, RankUnderTest& self)>;
  std::function<void(RanksAs how, int size, const Body& body)> on_ranks;
  bool adasum = true;       // it does that, too
  bool along_tree = false;  // sums and averages go along trees of additions, and nothing else
};

// Tensors of one call, as one rank has them. Inputs are made from the rank's number, so that every
// rank can compute those of all others.
struct Call {
  runtime::Kind kind = runtime::Kind::allreduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Compression compression = Compression::none;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::vector<std::int64_t>> shapes;  // of the tensors; of allgather: of set rank 0
  bool in_place = false;
  bool allocated = false;           // the output is asked for
  bool uneven = false;              // alltoall: with splits
  bool along_tree = false;          // allreduce: inputs are the leaves of a tree
  std::vector<int> ranks;           // of the world, which form the set
  std::vector<int> joined = {};     // of the world
  int root = 0;                     // of the world
  double tolerance = 0;             // of the result's largest element
  std::string name = {};            // of the tensors, with their numbers
  std::optional<bool> cached = {};  // how it must be asked for; nothing: that is not in question

  std::string text() const;
};

// Runs the call on this rank, of those in call.ranks, and checks everything that came of it; what
// is wrong is an error of the test.
void run_and_check(RankUnderTest& self, int rank, const Call& call);

// --- tables -------------------------------------------------------------------------------------

struct Table {
  enum class Of {
    values,   // every type, operation and size
    options,  // factors and compression
    joins,    // while some ranks have joined
  };
  Backend backend;
  RanksAs how = RanksAs::threads;
  runtime::Kind kind = runtime::Kind::allreduce;
  int size = 1;
  Of what = Of::values;
};

// Behind "GetParam() =": "allreduce with options, world size 4, processes, backend shm".
std::ostream& operator<<(std::ostream& out, const Table& table);

// The part of a world of this size that is a set of its own in the tables.
std::vector<int> part_of(int size);

class Conformance : public ::testing::TestWithParam<Table> {};

std::string table_name(const ::testing::TestParamInfo<Table>& info);

std::vector<Table> every_table(const Backend& backend, RanksAs how = RanksAs::threads);
// Those of what may go by hosts.
std::vector<Table> tables_by_hosts(const Backend& backend, RanksAs how = RanksAs::threads);
// Values alone, of more than one rank.
std::vector<Table> values_of_several(const Backend& backend, RanksAs how = RanksAs::threads);
// Values alone, of allreduces along trees of additions.
std::vector<Table> values_along_trees(Backend backend, RanksAs how = RanksAs::threads);
// Values alone, of four ranks.
std::vector<Table> values_of_four(const Backend& backend, RanksAs how = RanksAs::threads);

// The tables of four ranks that are threads, and all others.
std::vector<Table> tables_of_the_day(std::vector<Table> tables);
std::vector<Table> tables_of_the_night(std::vector<Table> tables);

}  // namespace hvd::test

// Each run of the tests has the tables of four ranks that are threads. The other numbers of ranks,
// and ranks that are processes, rarely find what these do not, and take ten times as long:
// scripts/nightly has them.
#define HVD_CONFORMANCE(name, ...)                                                                 \
  INSTANTIATE_TEST_SUITE_P(name, Conformance, ::testing::ValuesIn(tables_of_the_day(__VA_ARGS__)), \
                           table_name);                                                            \
  INSTANTIATE_TEST_SUITE_P(Nightly##name, Conformance,                                             \
                           ::testing::ValuesIn(tables_of_the_night(__VA_ARGS__)), table_name)
