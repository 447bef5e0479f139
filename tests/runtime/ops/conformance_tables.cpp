// The tables of conformance.h.
#include <algorithm>
#include <functional>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "runtime/negotiation/response_cache.h"
#include "tests/runtime/ops/conformance.h"

namespace hvd::test {

using runtime::Kind;

namespace {

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
// message and for the algorithms for little data, so that the last message is much smaller than
// those before it.
std::vector<Shapes> shapes_for(Kind kind, DataType type) {
  if (kind == Kind::barrier) return {{{{0}}, 2}};
  std::vector<Shapes> all{{{{0}}, 1, false},
                          {{{1}}, 1, false},
                          {{{13}}, 2},
                          {{{13}, {5, 0}, {1}, {0}, {40, 3}, {7, 2, 2}}, 2, false}};
  all.push_back({{{701, 3}}});
  all.push_back({{{401}, {3}, {1'021}, {11, 5}}, 1, false});
  // Two pieces of 1 MB and one of 1,004 bytes as a whole; in halves, one and one of 502.
  if (type == DataType::float32) all.push_back({{{524'539}, {3}}, 1, false});
  return all;
}

std::vector<ReduceOp> ops_for(const Backend& backend, Kind kind, DataType type) {
  if (kind != Kind::allreduce && kind != Kind::reducescatter) return {ReduceOp::sum};
  if (backend.along_tree) {
    // An average of truth values is true where all are, and the leaves are filled up with zeros.
    if (type == DataType::boolean) return {ReduceOp::sum};
    return {ReduceOp::average, ReduceOp::sum};
  }
  std::vector<ReduceOp> ops{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product};
  if (backend.adasum && kind == Kind::allreduce && is_floating(type))
    ops.push_back(ReduceOp::adasum);
  return ops;
}

double tolerance_for(DataType type, ReduceOp op) {
  if (op != ReduceOp::adasum) return 0;
  switch (type) {
    case DataType::float16:
      return 4e-3;
    case DataType::bfloat16:
      return 3e-2;
    case DataType::float8_e4m3:
      return 0.07;
    case DataType::float8_e5m2:
      return 0.13;
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
    call.allocated = false;
    call.cached.reset();
    call.name = call.text();
    for (int time = 0; time < times; ++time) {
      call.allocated = may_allocate && !in_place && time == 1;
      call.cached = time > 0 && runtime::ResponseCache::keeps(call.kind);
      run_and_check(self, rank, call);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// The calls of one table that concern one type of element and operation.
void run_all_shapes(RankUnderTest& self, int rank, Call call, bool whole_world, bool negotiates) {
  for (const auto& [shapes, often, everywhere] : shapes_for(call.kind, call.type)) {
    if (!everywhere && !whole_world) continue;
    const std::size_t bytes =
        static_cast<std::size_t>(elements_of(shapes.front())) * size_of(call.type);
    const bool cheap = call.op == ReduceOp::sum || call.op == ReduceOp::adasum;
    // Megabytes go the same ways as kilobytes, but in more messages. Only of four and more ranks is
    // there one that passes on what it has not begun with.
    const bool is_tree = call.kind == Kind::broadcast;
    if (bytes > 1'000'000 && (negotiates || !cheap || (!is_tree && call.ranks.size() > 3)))
      continue;
    // The third call of a small one goes through its lane. While a set works, the ranks outside of
    // it may be in shutdown: then a third call need not be cached.
    const int negotiated = call.kind == Kind::allreduce && whole_world ? 3 : 2;
    const int times = negotiates ? negotiated : bytes > 1'000'000 && is_tree ? 3 : often;
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
      for (const auto op : ops_for(table.backend, table.kind, type)) {
        Call call;
        call.kind = table.kind;
        call.type = type;
        call.op = op;
        call.ranks = set;
        call.root = set.back();
        call.along_tree = table.backend.along_tree;
        call.tolerance = tolerance_for(type, op);
        run_all_shapes(self, rank, call, set.size() == world.size(), table.backend.negotiates);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// On four ranks, of which some have joined.
void run_joined(RankUnderTest& self, int rank, const Backend& backend, Kind kind) {
  const std::vector<std::vector<int>> joined{{2}, {0, 3}, {1, 2, 3}};
  for (const auto& gone : joined) {
    for (const auto type : kAllTypes) {
      for (const auto op : ops_for(backend, kind, type)) {
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
          call.name = call.text();
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
        // Of twice as much, 8-bit integers wrap or are cut off: which of the two is not said here.
        if (size_of(type) > 1 || type == DataType::boolean || is_float8(type)) {
          run_variants(self, rank, call, 1);
        }
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

const char* words_of(Table::Of what) {
  switch (what) {
    case Table::Of::options:
      return " with options";
    case Table::Of::joins:
      return " while some have joined";
    default:
      return "";
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

std::ostream& operator<<(std::ostream& out, const Table& table) {
  return out << kind_name(table.kind) << words_of(table.what) << ", world size " << table.size
             << (table.how == RanksAs::processes ? ", processes" : ", threads") << ", backend "
             << table.backend.name;
}

std::string table_name(const ::testing::TestParamInfo<Table>& info) {
  auto name = cat(kind_name(info.param.kind), " ", info.param.size, words_of(info.param.what));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<Table> every_table(const Backend& backend, RanksAs how) {
  std::vector<Table> tables;
  for (const auto kind : kKinds) {
    const bool reduces = kind == Kind::allreduce || kind == Kind::reducescatter;
    for (const int size : kSizes) {
      tables.push_back({backend, how, kind, size, Table::Of::values});
      if (reduces) tables.push_back({backend, how, kind, size, Table::Of::options});
    }
    tables.push_back({backend, how, kind, 4, Table::Of::joins});
  }
  return tables;
}

std::vector<Table> tables_by_hosts(const Backend& backend, RanksAs how) {
  auto tables = every_table(backend, how);
  std::erase_if(tables, [](const Table& table) {
    return table.size < 4 || (table.kind != Kind::allreduce && table.kind != Kind::allgather);
  });
  return tables;
}

std::vector<Table> values_of_several(const Backend& backend, RanksAs how) {
  auto tables = every_table(backend, how);
  std::erase_if(tables, [](const Table& table) {
    return table.size == 1 || table.what != Table::Of::values || table.kind == Kind::barrier;
  });
  return tables;
}

std::vector<Table> values_along_trees(Backend backend, RanksAs how) {
  backend.along_tree = true;
  auto tables = every_table(backend, how);
  std::erase_if(tables, [](const Table& table) {
    return table.kind != Kind::allreduce || table.what != Table::Of::values;
  });
  return tables;
}

std::vector<Table> values_of_four(const Backend& backend, RanksAs how) {
  auto tables = every_table(backend, how);
  std::erase_if(tables, [](const Table& table) {
    return table.size != 4 || table.what != Table::Of::values;
  });
  return tables;
}

namespace {
bool is_of_the_day(const Table& table) { return table.size == 4 && table.how == RanksAs::threads; }
}  // namespace

std::vector<Table> tables_of_the_day(std::vector<Table> tables) {
  std::erase_if(tables, std::not_fn(is_of_the_day));
  return tables;
}

std::vector<Table> tables_of_the_night(std::vector<Table> tables) {
  std::erase_if(tables, is_of_the_day);
  return tables;
}

TEST_P(Conformance, IsRight) {
  const Table& table = GetParam();
  table.backend.on_ranks(table.how, table.size, [&](int rank, RankUnderTest& self) {
    switch (table.what) {
      case Table::Of::values:
        return run_table(self, rank, table);
      case Table::Of::options:
        return run_options(self, rank, table.kind, table.size);
      case Table::Of::joins:
        return run_joined(self, rank, table.backend, table.kind);
    }
  });
}

}  // namespace hvd::test
