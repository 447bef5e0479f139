// The tables of conformance.h.
#include <algorithm>
#include <numeric>

#include "tests/runtime/conformance.h"

namespace hvd::test {

using runtime::Kind;

namespace {

bool contains(const std::vector<int>& all, int one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

constexpr int kSizes[] = {1, 2, 3, 4, 8};
constexpr Kind kKinds[] = {Kind::allreduce, Kind::reducescatter, Kind::allgather,
                           Kind::broadcast, Kind::alltoall,      Kind::barrier};

// Tensors of one call, and how often it is made: the second time with warm buffers, that still hold
// what the first one left.
struct Shapes {
  std::vector<std::vector<std::int64_t>> tensors;
  int times = 1;
  bool everywhere = true;  // else only in the whole world, so that the table takes seconds
};

// No rows, one, a prime number of them, several tensors at once; and what is too much for one
// message and for the algorithms for little data.
std::vector<Shapes> shapes_for(Kind kind, DataType type) {
  if (kind == Kind::barrier) return {{{{0}}, 2}};
  std::vector<Shapes> all{{{{0}}, 1, false},
                          {{{1}}, 1, false},
                          {{{13}}, 2},
                          {{{13}, {5, 0}, {1}, {0}, {40, 3}, {7, 2, 2}}, 2, false}};
  all.push_back({{{701, 3}}});
  all.push_back({{{401}, {3}, {1'021}, {11, 5}}, 1, false});
  if (type == DataType::float32) all.push_back({{{700'001}, {3}}, 1, false});
  return all;
}

std::vector<ReduceOp> ops_for(Kind kind, DataType type) {
  if (kind != Kind::allreduce && kind != Kind::reducescatter) return {ReduceOp::sum};
  std::vector<ReduceOp> ops{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product};
  if (kind == Kind::allreduce && is_floating(type)) ops.push_back(ReduceOp::adasum);
  return ops;
}

double tolerance_for(DataType type, ReduceOp op) {
  if (op != ReduceOp::adasum) return 0;
  switch (type) {
    case DataType::float16:
      return 4e-3;
    case DataType::bfloat16:
      return 3e-2;
    case DataType::float32:
      return 1e-5;
    default:
      return 1e-12;
  }
}

void run_variants(RankUnderTest& self, int rank, Call call, int times) {
  for (const bool in_place : {false, true}) {
    // Rows that were sent lie where others arrive: only even ones fit.
    if (in_place && call.uneven) continue;
    call.in_place = in_place;
    const bool may_allocate = call.kind == Kind::allgather || call.kind == Kind::alltoall ||
                              call.kind == Kind::reducescatter;
    for (int time = 0; time < times; ++time) {
      call.allocated = may_allocate && !in_place && time == 1;
      run_and_check(self, rank, call);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The calls of one table that concern one type of element and operation.
void run_all_shapes(RankUnderTest& self, int rank, Call call, bool whole_world, bool brief) {
  for (const auto& [shapes, times, everywhere] : shapes_for(call.kind, call.type)) {
    if (!everywhere && !whole_world) continue;
    if (brief && times < 2) continue;
    const std::size_t bytes =
        static_cast<std::size_t>(elements_of(shapes.front())) * size_of(call.type);
    const bool cheap = call.op == ReduceOp::sum || call.op == ReduceOp::adasum;
    // Megabytes go the same ways as kilobytes, but in more messages.
    if (bytes > 1'000'000 && (!cheap || call.ranks.size() > 3)) continue;
    call.shapes = shapes;
    call.uneven = false;
    run_variants(self, rank, call, times);
    if (call.kind == Kind::alltoall && times > 1) {
      call.uneven = true;
      run_variants(self, rank, call, times);
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void run_table(RankUnderTest& self, int rank, const Table& table) {
  std::vector<int> world(static_cast<std::size_t>(table.size));
  std::iota(world.begin(), world.end(), 0);
  std::vector<std::vector<int>> sets{world};
  if (table.size > 1) sets.push_back(part_of(table.size));
  for (const auto& set : sets) {
    if (!contains(set, rank)) continue;
    for (const auto type : kAllTypes) {
      for (const auto op : ops_for(table.kind, type)) {
        Call call;
        call.kind = table.kind;
        call.type = type;
        call.op = op;
        call.ranks = set;
        call.root = set.back();
        call.tolerance = tolerance_for(type, op);
        run_all_shapes(self, rank, call, set.size() == world.size(), table.backend.brief);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// On four ranks, of which some have joined.
void run_joined(RankUnderTest& self, int rank, Kind kind) {
  const std::vector<std::vector<int>> joined{{2}, {0, 3}, {1, 2, 3}};
  for (const auto& gone : joined) {
    for (const auto type : kAllTypes) {
      for (const auto op : ops_for(kind, type)) {
        for (const std::int64_t count : {0, 13, 1'201}) {
          if (count > 13 && size_of(type) != 4) continue;
          Call call;
          call.kind = kind;
          call.type = type;
          call.op = op;
          call.shapes = {{count}, {3, 2}};
          call.ranks = {0, 1, 2, 3};
          call.joined = gone;
          call.root = 1;
          if (contains(gone, 1)) call.root = 0;
          if (kind == Kind::broadcast && contains(gone, call.root)) continue;
          call.tolerance = tolerance_for(type, op);
          run_and_check(self, rank, call);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// Factors and compression of the reductions.
void run_options(RankUnderTest& self, int rank, Kind kind, int size) {
  std::vector<int> world(static_cast<std::size_t>(size));
  std::iota(world.begin(), world.end(), 0);
  Call call;
  call.kind = kind;
  call.ranks = world;
  for (const std::int64_t count : {13, 1'201}) {
    call.shapes = {{count}, {5, 3}};
    for (const auto type : kAllTypes) {
      call.type = type;
      for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
        call.op = op;
        call.prescale = 2;
        call.postscale = 0.5;
        call.compression = Compression::none;
        // Of twice as much, 8-bit numbers wrap or are cut off: which of the two is not said here.
        if (size_of(type) > 1 || type == DataType::boolean) run_variants(self, rank, call, 1);
        if (type != DataType::float32 && type != DataType::float64) continue;
        for (const auto compression : {Compression::float16, Compression::bfloat16}) {
          call.compression = compression;
          // Sums of small integers are exact in 16 bits.
          call.tolerance = op == ReduceOp::average ? 1e-6 : 0;
          run_variants(self, rank, call, 1);
        }
        call.tolerance = 0;
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace

// A part of the world that is no power of two and has gaps, if the world is large enough.
std::vector<int> part_of(int size) {
  switch (size) {
    case 2:
      return {1};
    case 3:
      return {0, 2};
    case 4:
      return {1, 2, 3};
    case 8:
      return {1, 3, 4, 6, 7};
    default:
      return {0};
  }
}

std::vector<Table> every_table_of(const Backend& backend) {
  std::vector<Table> tables;
  for (const auto kind : kKinds) {
    for (const int size : kSizes) tables.push_back({backend, kind, size});
  }
  return tables;
}

std::vector<Table> every_table_by_hosts_of(const Backend& backend) {
  std::vector<Table> tables;
  for (const auto kind : {Kind::allreduce, Kind::allgather}) {
    for (const int size : {4, 8}) tables.push_back({backend, kind, size});
  }
  return tables;
}

TEST_P(Conformance, EveryTypeAndSizeIsRight) {
  GetParam().backend.on_ranks(
      GetParam().size, [&](int rank, RankUnderTest& self) { run_table(self, rank, GetParam()); });
}

TEST_P(Conformance, FactorsAndCompressionAreApplied) {
  const auto kind = GetParam().kind;
  if (kind != Kind::allreduce && kind != Kind::reducescatter) return;
  GetParam().backend.on_ranks(GetParam().size, [&](int rank, RankUnderTest& self) {
    run_options(self, rank, kind, GetParam().size);
  });
}

TEST_P(Conformance, IsRightWhileSomeHaveJoined) {
  if (GetParam().size != 4) return;
  GetParam().backend.on_ranks(
      4, [&](int rank, RankUnderTest& self) { run_joined(self, rank, GetParam().kind); });
}

}  // namespace hvd::test
