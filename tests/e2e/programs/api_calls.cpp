// Every call of the public API, by as many ranks as there are, against what it must give. Says
// "ok RANK." at its end; what is wrong ends it with 1.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <numeric>
#include <thread>

#include "tests/e2e/programs/check.h"

namespace {

using check::elements;
using check::same;

// Rank r gives r + 1.
int sum_of_ranks() { return hvd::size() * (hvd::size() + 1) / 2; }

template <typename T>
void reduce_type(const std::string& name) {
  const int number = hvd::rank() + 1;
  const auto own = static_cast<T>(number);
  std::vector<T> data(5, own);
  hvd::allreduce(data, {.name = name, .op = hvd::Sum});
  same(data, std::vector<T>(5, static_cast<T>(sum_of_ranks())), name + " sum");
  std::vector<T> least(3, own);
  hvd::allreduce(least, {.name = name, .op = hvd::Min});
  same(least, std::vector<T>(3, T{1}), name + " min");
  std::vector<T> most(3, own);
  hvd::allreduce(most, {.name = name, .op = hvd::Max});
  same(most, std::vector<T>(3, static_cast<T>(hvd::size())), name + " max");
}

void reductions() {
  reduce_type<std::uint8_t>("u8");
  reduce_type<std::int8_t>("i8");
  reduce_type<std::uint16_t>("u16");
  reduce_type<std::int16_t>("i16");
  reduce_type<std::int32_t>("i32");
  reduce_type<std::int64_t>("i64");
  reduce_type<float>("f32");
  reduce_type<double>("f64");
  std::vector<hvd::float16> halves(2, hvd::float16(static_cast<float>(hvd::rank() + 1)));
  hvd::allreduce(halves, {.op = hvd::Sum});
  same(static_cast<float>(halves[1]), static_cast<float>(sum_of_ranks()), "f16 sum");
  std::vector<hvd::bfloat16> brains(2, hvd::bfloat16(static_cast<float>(hvd::rank() + 1)));
  hvd::allreduce(brains, {.op = hvd::Sum});
  same(static_cast<float>(brains[1]), static_cast<float>(sum_of_ranks()), "bf16 sum");
  std::vector<hvd::float8_e4m3> bytes(2, hvd::float8_e4m3(static_cast<float>(hvd::rank() + 1)));
  hvd::allreduce(bytes, {.op = hvd::Max});
  same(static_cast<float>(bytes[1]), static_cast<float>(hvd::size()), "f8 max");
  std::array<bool, 2> flags{hvd::rank() == 0, true};
  hvd::allreduce(flags, {.op = hvd::Product});
  same(flags[0], hvd::size() == 1, "bool product");
  same(flags[1], true, "bool product");

  // Into another buffer, with factors and compression.
  const std::vector<float> input(7, static_cast<float>(hvd::rank() + 1));
  std::vector<float> output(7);
  hvd::allreduce(input, output, {.op = hvd::Sum, .prescale = 2.0, .postscale = 0.5});
  same(output, std::vector<float>(7, static_cast<float>(sum_of_ranks())), "factors");
  same(input[6], static_cast<float>(hvd::rank() + 1), "the input");
  hvd::allreduce(input, output, {.op = hvd::Sum, .compression = hvd::Compression::float16});
  same(output, std::vector<float>(7, static_cast<float>(sum_of_ranks())), "compression");
  std::vector<double> average(2, hvd::rank());
  hvd::allreduce(average);
  same(average[0], (hvd::size() - 1) / 2.0, "average");
  std::vector<float> adasum{1.0F, 0.0F};
  hvd::allreduce(adasum, {.op = hvd::Adasum});
  same(adasum, (std::vector<float>{1.0F, 0.0F}), "adasum of equals");
}

void groups() {
  const auto own = static_cast<float>(hvd::rank() + 1);
  const auto sum = static_cast<float>(sum_of_ranks());
  std::vector<float> a(3, own);
  std::vector<double> b(4, static_cast<double>(own));
  hvd::grouped_allreduce({a, b}, {.name = "pair", .op = hvd::Sum});
  same(a, std::vector<float>(3, sum), "group in place");
  same(b, std::vector<double>(4, static_cast<double>(sum)), "group in place");
  const std::vector<float> c(2, own);
  std::vector<float> d(2);
  hvd::grouped_allreduce({c}, {d}, {.op = hvd::Sum});  // of one, without a name
  same(d, std::vector<float>(2, sum), "group of one");

  // Names of members are those of the documentation: single calls meet a group's by them.
  const auto names = hvd::grouped_allreduce_async({a}, {.name = "mine", .op = hvd::Max});
  names.wait();
  same(hvd::grouped_allgather({c, c}, {.name = "rows"}).size(), 2U, "gathered");
  const auto rows =
      hvd::grouped_reducescatter({std::vector<int>(8, 1)}, {.name = "parts", .op = hvd::Sum});
  const int share = 8 / hvd::size() + (hvd::rank() < 8 % hvd::size() ? 1 : 0);
  same(elements<int>(rows[0]), std::vector<int>(static_cast<std::size_t>(share), hvd::size()),
       "grouped reducescatter");

  // Empty ones are done on each rank alone.
  if (hvd::rank() == 0) {
    check::that(hvd::grouped_allreduce_async(std::vector<hvd::TensorView>()).ready(), "empty");
    check::that(hvd::grouped_allgather({}).empty(), "empty");
    check::that(hvd::grouped_reducescatter({}).empty(), "empty");
  }
}

// To the next rank, and without names to the one before, while the others do the same.
void sends() {
  const int rank = hvd::rank();
  const int size = hvd::size();
  if (size == 1) return;
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;

  std::vector<double> out(1000, rank);
  std::vector<double> in(1000);
  const auto sent = hvd::send_async(out, next, {.name = "around"});
  hvd::recv(in, previous, {.name = "around"});
  sent.wait();
  same(in, std::vector<double>(1000, previous), "received");

  std::vector<hvd::Handle> handles;
  std::vector<int> numbers(20);
  std::vector<int> received(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = 100 * rank + static_cast<int>(i);
    handles.push_back(hvd::send_async(std::span(&numbers[i], 1), previous));
    handles.push_back(hvd::recv_async(std::span(&received[i], 1), next));
  }
  for (const auto& handle : handles) handle.wait();
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += 100 * (next - rank);
  same(received, numbers, "received without names");
}

void rows() {
  const int rank = hvd::rank();
  const int size = hvd::size();
  // Rank r gives r rows of two.
  std::vector<int> own(static_cast<std::size_t>(2 * rank), rank);
  const auto all = hvd::allgather(hvd::shaped(own, {rank, 2}), {.name = "ragged"});
  std::vector<int> expected;
  for (int r = 0; r < size; ++r) expected.insert(expected.end(), 2U * static_cast<unsigned>(r), r);
  same(all.shape(), (std::vector<std::int64_t>{size * (size - 1) / 2, 2}), "gathered shape");
  same(elements<int>(all), expected, "gathered");

  // Rank r sends r + 1 rows to each rank, and keeps one that is sent to no rank.
  std::vector<std::int64_t> sent(static_cast<std::size_t>((rank + 1) * size + 1), rank);
  const std::vector<std::int64_t> splits(static_cast<std::size_t>(size), rank + 1);
  const auto swapped = hvd::alltoall(sent, {.name = "swap", .splits = splits});
  std::vector<std::int64_t> from;
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) {
    from.insert(from.end(), static_cast<std::size_t>(r) + 1, r);
    counts.push_back(r + 1);
  }
  same(elements<std::int64_t>(swapped.tensor), from, "swapped");
  same(swapped.received_splits, counts, "received splits");
  std::vector<float> evenly(static_cast<std::size_t>(2 * size), static_cast<float>(rank));
  const auto even = hvd::alltoall_async(evenly).get();
  same(even.tensor.elements(), 2 * size, "even alltoall");
  same(even.received_splits, std::vector<std::int64_t>(static_cast<std::size_t>(size), 2), "even");

  // size + 1 rows: rank 0 gets two.
  std::vector<double> matrix(static_cast<std::size_t>(3 * (size + 1)));
  std::iota(matrix.begin(), matrix.end(), 0.0);
  const auto view = hvd::shaped(matrix, {size + 1, 3});
  const auto mine = hvd::reducescatter(view, {.name = "rs", .op = hvd::Sum});
  const std::int64_t count = rank == 0 ? 2 : 1;
  const std::int64_t first = rank == 0 ? 0 : rank + 1;
  same(mine.shape(), (std::vector<std::int64_t>{count, 3}), "scattered shape");
  same(mine.as<double>()[0], static_cast<double>(size) * 3.0 * static_cast<double>(first), "rs");
  std::vector<double> given(static_cast<std::size_t>(3 * count));
  hvd::reducescatter(view, hvd::shaped(given, {count, 3}), {.name = "rs", .op = hvd::Sum});
  same(given, elements<double>(mine), "reducescatter into given memory");
  std::vector<double> in_place = matrix;
  hvd::reducescatter(hvd::shaped(in_place, {size + 1, 3}),
                     hvd::TensorView(in_place.data(), {count, 3}, hvd::DataType::float64),
                     {.name = "rs", .op = hvd::Sum});
  in_place.resize(given.size());
  same(in_place, given, "reducescatter in place");
}

void moves() {
  for (int root = 0; root < hvd::size(); ++root) {
    std::vector<int> data(3, hvd::rank());
    hvd::broadcast(data, {.root = root});
    same(data, std::vector<int>(3, root), "broadcast");
    const std::vector<int> input(2, hvd::rank());
    std::vector<int> output(2, -1);
    hvd::broadcast(input, output, {.name = "b", .root = root});
    same(output, std::vector<int>(2, root), "broadcast into another buffer");
    // Only the root's input is read.
    const hvd::ConstTensorView none(nullptr, {2}, hvd::DataType::int32);
    hvd::broadcast(hvd::rank() == root ? hvd::ConstTensorView(input) : none, output,
                   {.name = "b", .root = root});
    same(output, std::vector<int>(2, root), "broadcast without input");
  }
  hvd::barrier();
  const auto barrier = hvd::barrier_async({.name = "gate"});
  barrier.wait();
  check::that(barrier.ready(), "a barrier that was waited for is ready");
}

void objects() {
  const int rank = hvd::rank();
  const int size = hvd::size();
  for (const std::size_t length : {0U, 1U, 3U << 20}) {
    std::string object(length, static_cast<char>('a' + size - 1));
    const std::string own = rank == size - 1 ? object : "not looked at";
    same(hvd::broadcast_object(own, {.root = size - 1}) == object, true, "broadcast object");
  }
  const std::string own(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
  const auto all = hvd::allgather_object(own, {.name = "objects"});
  same(all.size(), static_cast<std::size_t>(size), "objects");
  for (int r = 0; r < size; ++r) {
    same(all[static_cast<std::size_t>(r)],
         std::string(static_cast<std::size_t>(r) * 1000, static_cast<char>('a' + r)), "object");
  }
  const std::vector<std::byte> bytes(2, std::byte{7});
  same(hvd::allgather_object(bytes), std::vector<std::string>(all.size(), "\a\a"), "bytes");
  same(hvd::broadcast_object(bytes), std::string("\a\a"), "bytes");

  std::vector<float> weights(1000, static_cast<float>(rank));
  std::vector<double> bias(3, rank);
  std::vector<std::int64_t> none;
  std::vector<hvd::NamedTensor> model{{"weights", weights}, {"bias", bias}, {"none", none}};
  if (rank % 2 == 1) std::swap(model[0], model[2]);
  hvd::broadcast_parameters(model, {.root = size - 1});
  same(weights, std::vector<float>(1000, static_cast<float>(size - 1)), "weights");
  same(bias, std::vector<double>(3, size - 1), "bias");
  hvd::broadcast_parameters({});

  // Rank r gives r entries of two values each.
  std::vector<std::int64_t> indices(static_cast<std::size_t>(rank), 10 + rank);
  std::vector<float> values(indices.size() * 2, static_cast<float>(size));
  const auto entries = static_cast<std::int64_t>(indices.size());
  for (const auto op : {hvd::Average, hvd::Sum}) {
    const auto sparse =
        hvd::sparse_allreduce(indices, hvd::shaped(values, {entries, 2}), {.name = "s", .op = op});
    std::vector<std::int64_t> expected;
    for (int r = 0; r < size; ++r)
      expected.insert(expected.end(), static_cast<unsigned>(r), 10 + r);
    same(elements<std::int64_t>(sparse.indices), expected, "sparse indices");
    same(elements<float>(sparse.values),
         std::vector<float>(expected.size() * 2, op == hvd::Sum ? static_cast<float>(size) : 1.0F),
         "sparse values");
    same(sparse.values.shape().back(), 2, "sparse shape");
  }
  // Positions in two dimensions, and integers, which are truncated.
  std::vector<std::int32_t> positions{rank, 1};
  std::vector<int> counts{2 * size - 1};
  const auto flat = hvd::sparse_allreduce_async(hvd::shaped(positions, {1, 2}), counts).get();
  same(flat.indices.shape(), (std::vector<std::int64_t>{size, 2}), "positions");
  same(flat.values.as<int>()[0], (2 * size - 1) / size, "integer values");
}

// The ranks give up one after the other: the rest goes on. Unnamed calls are counted anew then.
void joins() {
  const int rank = hvd::rank();
  const int size = hvd::size();
  for (int step = 0; step < rank; ++step) {
    std::vector<int> value{rank};
    hvd::allreduce(value, {.name = "value", .op = hvd::Min});
    same(value[0], step + 1, "the minimum over the ranks that are left");
    hvd::barrier();
  }
  const int last = hvd::join_async().get();
  check::that(last >= 0 && last < size, "the last to join is a rank");
  std::vector<int> heard{last};
  hvd::broadcast(heard);
  same(heard[0], last, "all are told of the same rank");
  hvd::barrier();
  // Once more, when the order is certain: rank 0 waits for the others' word.
  if (size > 1) {
    const auto others = hvd::rank() == 0 ? 0 : hvd::join();
    if (hvd::rank() == 0) {
      std::vector<double> own{2.0};
      hvd::allreduce(own, {.name = "alone"});  // average of one
      same(own[0], 2.0, "the average over the ranks with data");
      const auto sparse = hvd::sparse_allreduce(std::vector<int>{7}, own, {.name = "alone"});
      same(sparse.values.as<double>()[0], 2.0, "the sparse average over the ranks with data");
      same(hvd::allgather_object("me").size(), 1U, "objects of the ranks with data");
      hvd::join();
    }
    check::that(others >= 0, "join");
  }
}

// A chain of a hundred, each started by the callback of the one before; waits from many threads.
void callbacks() {
  struct Chain {
    std::vector<int> data = {1};
    std::atomic<int> links = 0;
    std::atomic<bool> failed = false;
    std::promise<void> done;
    void next() {
      const auto handle = hvd::allreduce_async(data, {.name = "chain", .op = hvd::Max});
      handle.on_done([this](const std::exception_ptr& error) {
        if (error) failed = true;
        if (++links == 100 || error) {
          done.set_value();
        } else {
          next();
        }
      });
    }
  } chain;
  chain.next();
  check::that(
      chain.done.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready,
      "the chain ends");
  same(chain.links.load(), 100, "links of the chain");
  check::that(!chain.failed, "no link failed");

  std::vector<float> data(1000, 1);
  const auto handle = hvd::allreduce_async(data, {.name = "waited for", .op = hvd::Sum});
  std::vector<std::thread> threads;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      handle.wait();
      ++ended;
    });
  }
  for (auto& thread : threads) thread.join();
  same(ended.load(), 8, "threads that waited");

  // Names are free when callbacks run, and many threads may ask at the same time.
  std::vector<std::thread> askers;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    askers.emplace_back([t, &wrong] {
      for (int i = 0; i < 50; ++i) {
        std::vector<int> value{i};
        hvd::allreduce(value, {.name = "asker " + std::to_string(t), .op = hvd::Max});
        if (value[0] != i) ++wrong;
      }
    });
  }
  for (auto& asker : askers) asker.join();
  same(wrong.load(), 0, "wrong results");
}

void collectives() {
  hvd::init();
  reductions();
  groups();
  rows();
  sends();
  moves();
  objects();
  callbacks();
  joins();
  hvd::barrier();
  check::say_ok();
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv, {{"collectives", collectives}}); }
