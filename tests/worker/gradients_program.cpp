// hvd::GradientReducer, by as many ranks as there are: `hvd_gradients_program SCENARIO`.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hvd/hvd.h>

#include "tests/e2e/programs/check.h"
#include "tests/worker/gradients.h"

namespace gradients {
namespace {

using check::same;

float sum() { return average() * static_cast<float>(hvd::size()); }

// Ranks come to their gradients in different orders.
std::vector<std::size_t> own_order(std::size_t count) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < count; ++i) {
    order.push_back((i + static_cast<std::size_t>(hvd::rank())) % count);
  }
  return order;
}

// With one gradient, and with several, which are packed.
void options() {
  const auto reduced = [](const hvd::GradientReducerOptions& options) {
    hvd::GradientReducer reducer(options);
    Floats gradient(3, own());
    reducer.add("w", gradient);
    reducer.ready("w");
    reducer.synchronize();

    hvd::GradientReducer several(options);
    std::vector<Floats> gradients(3, Floats(3, own()));
    for (std::size_t i = 0; i < 3; ++i) several.add(std::to_string(i), gradients[i]);
    for (std::size_t i = 0; i < 3; ++i) several.ready(i);
    several.synchronize();
    for (const auto& one : gradients) same(one, gradient, "one of several");
    return gradient;
  };
  same(reduced({}), Floats(3, average()), "average");
  same(reduced({.op = hvd::Sum}), Floats(3, sum()), "sum");
  same(reduced({.op = hvd::Min}), Floats(3, 1), "min");
  same(reduced({.op = hvd::Max}), Floats(3, static_cast<float>(hvd::size())), "max");
  float product = 1;
  for (int rank = 0; rank < hvd::size(); ++rank) product *= static_cast<float>(rank + 1);
  same(reduced({.op = hvd::Product}), Floats(3, product), "product");
  same(reduced({.gradient_predivide_factor = 4}), Floats(3, average()), "predivided");
  same(reduced({.compression = hvd::Compression::float16}), Floats(3, average()), "compressed");
  // Of parallel gradients Adasum is their average, by pairs: of 1 and 2 that is 1.5.
  if (hvd::size() <= 2) same(reduced({.op = hvd::Adasum})[0], average(), "adasum");
}

void steps() {
  hvd::GradientReducer reducer;
  Floats weight(5);
  std::vector<std::int64_t> counts(2);
  Floats none;
  std::vector<double> matrix(6);
  reducer.add("weight", weight);
  reducer.add("counts", counts);
  reducer.add("none", none);
  reducer.add("matrix", hvd::shaped(matrix, {2, 3}));
  same(reducer.size(), std::size_t{4}, "gradients");
  same(reducer.index_of("none"), std::size_t{2}, "index");
  for (int step = 0; step < 20; ++step) {
    weight.assign(5, own());
    counts.assign(2, hvd::rank() * 2);
    matrix.assign(6, static_cast<double>(step * hvd::size()));
    for (const auto i : own_order(4)) reducer.ready(i);
    check::that(!reducer.synchronized(), "collecting");
    reducer.synchronize();
    check::that(reducer.synchronized(), "synchronized");
    same(weight, Floats(5, average()), "weight");
    same(counts[1], hvd::size() - 1, "counts");
    same(matrix[5], static_cast<double>(step * hvd::size()), "matrix");
    if (step % 3 == 0) reducer.next_step();
    if (step % 3 == 1) {
      reducer.zero_gradients();
      same(weight, Floats(5, 0), "zeroed");
    }
  }
  // Elsewhere.
  Floats other(5, own());
  reducer.next_step();
  reducer.rebind(0, other.data());
  weight.assign(5, -1);
  reducer.ready("weight");
  reducer.synchronize();
  same(other, Floats(5, average()), "where it lies now");
  same(weight, Floats(5, -1), "where it lay");
}

// Only the last rank uses "rare", which becomes the average with zeros. None uses "never", which
// stays as it is.
void missing() {
  hvd::GradientReducer reducer;
  Floats used(2, own());
  Floats rare(2, 7);
  Floats never(2, 7);
  reducer.add("used", used);
  reducer.add("rare", rare);
  reducer.add("never", never);
  reducer.ready("used");
  if (hvd::rank() == hvd::size() - 1) reducer.ready("rare");
  reducer.synchronize();
  same(used, Floats(2, average()), "used");
  same(rare, Floats(2, 7 / static_cast<float>(hvd::size())), "rare");
  same(never, Floats(2, 7), "never");
  check::that(reducer.present(1) && !reducer.present(2), "what a rank had");
  // A step in which this rank has nothing at all.
  reducer.next_step();
  used.assign(2, own());
  if (hvd::rank() == 0) reducer.ready("used");
  reducer.synchronize();
  same(used, Floats(2, 1 / static_cast<float>(hvd::size())), "of rank 0 alone");
  // One in which none has anything.
  reducer.next_step();
  reducer.synchronize();
  check::that(!reducer.present(0), "nothing");
}

// Memory is named when it is needed, of another type and shape in each step. Ranks that lack a
// gradient are told of it.
void moving() {
  hvd::GradientReducer reducer({.number_of_groups = 2});
  for (const std::string name : {"all", "rank 0", "none", "last"}) {
    reducer.add(name, {nullptr, {1}, hvd::DataType::float32});
  }
  const bool is_first = hvd::rank() == 0;
  const bool is_last = hvd::rank() == hvd::size() - 1;
  for (int step = 0; step < 4; ++step) {
    const std::int64_t count = 3 + step;
    Floats floats(static_cast<std::size_t>(count), own());
    std::vector<double> doubles(floats.size(), own());
    std::vector<double> of_last(floats.size(), 2);
    const auto moved = [&](auto& values) { return hvd::shaped(values, {1, count}); };
    reducer.ready(0, step % 2 == 0 ? moved(floats) : moved(doubles));
    Floats of_first(1, 4);
    if (is_first) reducer.ready(1, of_first);
    if (is_last) reducer.ready(3, moved(of_last));
    std::vector<std::size_t> missing;
    while (!reducer.missing_for(std::chrono::milliseconds(1), missing)) {
    }
    std::vector<std::size_t> expected;
    if (!is_first) expected.push_back(1);
    if (!is_last) expected.push_back(3);
    check::that(missing == expected, "what this rank lacks");
    check::throws<Error>("one that is there", {"not one that other ranks have"},
                         [&] { reducer.ready(0, floats); });
    check::that(reducer.missing_for(std::chrono::milliseconds(0), missing),
                "as often as it is asked");
    if (!is_first) of_first.assign(1, 0);
    if (!is_last) of_last.assign(of_last.size(), 0);
    for (const auto index : missing) {
      if (index == 1) reducer.ready(1, of_first);
      if (index == 3) reducer.ready(3, moved(of_last));
    }
    while (!reducer.synchronize_for(std::chrono::milliseconds(1))) {
    }
    check::that(!reducer.in_flight(), "nothing is in flight");
    same(step % 2 == 0 ? static_cast<double>(floats.back()) : doubles.back(),
         static_cast<double>(average()), "of all");
    same(of_first[0], 4 / static_cast<float>(hvd::size()), "of rank 0");
    check::that(std::abs(of_last.back() - 2.0 / hvd::size()) < 1e-12, "of the last rank");
    check::that(reducer.present(3) && !reducer.present(2), "what a rank had");
  }
  // Zeros for what this rank lacks need memory.
  if (hvd::size() == 1) return;
  hvd::GradientReducer bare({.name = "bare"});
  bare.add("w", {nullptr, {1}, hvd::DataType::float32});
  Floats w(1, 1);
  if (is_first) bare.ready(0, w);
  std::vector<std::size_t> missing;
  while (!bare.missing_for(std::chrono::milliseconds(1), missing)) {
  }
  if (!is_first) bare.ready(0, w);
  bare.synchronize();
}

void groups() {
  for (const int count : {0, 1, 2, 3, 9}) {
    hvd::GradientReducerOptions options;
    options.number_of_groups = count;
    if (count == 0) options.groups = {{"p4", "p0"}, {"p2"}};
    hvd::GradientReducer reducer(options);
    std::vector<Floats> gradients(5);
    std::vector<double> wide(3);  // groups may mix types
    for (std::size_t i = 0; i < 5; ++i) {
      gradients[i].resize(i + 1);
      reducer.add("p" + std::to_string(i), gradients[i]);
    }
    reducer.add("wide", wide);
    for (int step = 0; step < 3; ++step) {
      for (auto& gradient : gradients) gradient.assign(gradient.size(), own());
      wide.assign(3, own());
      for (const auto i : own_order(6)) {
        if (step != 1 || i != 3) reducer.ready(i);
      }
      reducer.synchronize();
      for (std::size_t i = 0; i < 5; ++i) {
        same(gradients[i], Floats(i + 1, step == 1 && i == 3 ? own() : average()),
             "p" + std::to_string(i));
      }
      same(wide[2], static_cast<double>(average()), "wide");
    }
  }
}

void passes() {
  hvd::GradientReducer reducer({.backward_passes_per_step = 3});
  Floats gradient(2);
  reducer.add("w", gradient);
  for (int step = 0; step < 3; ++step) {
    gradient.assign(2, 0);
    for (int pass = 0; pass < 3; ++pass) {
      for (auto& value : gradient) value += own();
      reducer.ready("w");
    }
    check::throws<Error>("a fourth pass", {"\"w\"", "4. time", "allows 3", "synchronize()"},
                         [&] { reducer.ready("w"); });
    reducer.synchronize();
    same(gradient, Floats(2, 3 * average()), "the sum of three passes");
  }
  // A step may end early.
  gradient.assign(2, own());
  reducer.ready(0);
  reducer.synchronize();
  same(gradient, Floats(2, average()), "one pass of three");
  reducer.set_backward_passes_per_step(1);
  same(reducer.backward_passes_per_step(), 1, "passes");
  gradient.assign(2, own());
  reducer.ready(0);
  check::throws<Error>("in the middle of a step", {"set_backward_passes_per_step()", "\"w\""},
                       [&] { reducer.set_backward_passes_per_step(2); });
  reducer.synchronize();
  same(gradient, Floats(2, average()), "one pass of one");

  hvd::GradientReducer mean(
      {.name = "mean", .backward_passes_per_step = 2, .average_over_passes = true});
  Floats twice(2, 2 * own());
  Floats too(2, 2 * own());
  mean.add("w", twice);
  mean.add("v", too);
  for (const std::size_t index : {0, 1, 0, 1}) mean.ready(index);
  mean.synchronize();
  same(twice, Floats(2, average()), "averaged over passes");
  same(too, Floats(2, average()), "averaged over passes");
}

// A rank has any number of shards, or none, and the average is that over all of them.
void over_shards() {
  for (const int shards : {1, 4, 5}) {
    const auto own = hvd::shards_of(shards, hvd::rank(), hvd::size());
    hvd::GradientReducer reducer(
        {.name = "shards", .shards = shards, .backward_passes_per_step = std::max(1, own.size())});
    Floats gradient(2);
    Floats other(1);
    reducer.add("w", gradient);
    reducer.add_sparse("rows", {nullptr, {3, 1}, hvd::DataType::float32});
    reducer.add("v", other);
    for (const int shard : own) {
      for (auto& value : gradient) value += static_cast<float>(shard + 1);
      other[0] += static_cast<float>(shard + 1);
      reducer.ready("w");
      reducer.ready("v");
      std::vector<std::int64_t> index{1};
      Floats value{static_cast<float>(shards)};
      reducer.ready("rows", {index, hvd::shaped(value, {1, 1})});
    }
    reducer.synchronize();
    // The sum of 1, 2 ... is divided by their number.
    same(gradient, Floats(2, static_cast<float>(shards + 1) / 2), "over shards");
    same(other, Floats(1, static_cast<float>(shards + 1) / 2), "over shards");
    const auto rows = reducer.reduced(1);
    float sum = 0;
    for (std::int64_t i = 0; i < rows.values.elements(); ++i) {
      sum += static_cast<const float*>(rows.values.data)[i];
    }
    same(Floats{sum}, Floats{static_cast<float>(shards)}, "rows over shards");
  }
}

template <typename Index>
void sparse_of(bool as_dense) {
  hvd::GradientReducer reducer({.backward_passes_per_step = 2,
                                .average_over_passes = true,
                                .number_of_groups = 1,
                                .sparse_as_dense = as_dense});
  constexpr std::int64_t kRows = 6;
  Floats dense(kRows * 2, 99);
  Floats other(1);
  reducer.add_sparse("embedding",
                     {as_dense ? dense.data() : nullptr, {kRows, 2}, hvd::DataType::float32});
  reducer.add("other", other);
  const auto size = static_cast<float>(hvd::size());
  for (int step = 0; step < 3; ++step) {
    // Every rank gives row 0 in both passes, and twice in the first; rank 0 row 5; the second step
    // of the last rank nothing.
    const bool gives = step != 1 || hvd::rank() != hvd::size() - 1;
    if (gives) {
      std::vector<Index> first{0, 0};
      Floats values{own(), 1, own(), 1};
      reducer.ready("embedding", {first, hvd::shaped(values, {2, 2})});
      std::vector<Index> second{0};
      if (hvd::rank() == 0) second.push_back(5);
      Floats more(second.size() * 2, 2);
      reducer.ready("embedding",
                    {second, hvd::shaped(more, {static_cast<std::int64_t>(second.size()), 2})});
      first.assign(2, 3);  // copied at once
      values.assign(4, 1e9F);
    }
    other.assign(1, 2 * own());
    reducer.ready("other");
    reducer.ready("other");
    reducer.synchronize();
    same(other[0], average(), "other");
    Floats found(kRows * 2);
    if (as_dense) {
      found = dense;
    } else {
      const auto [indices, rows] = reducer.reduced(0);
      same(indices.type == hvd::DataType::int64, true, "type of indices");
      same(rows.shape, std::vector<std::int64_t>{indices.elements(), 2}, "shape of rows");
      for (std::int64_t i = 0; i < indices.elements(); ++i) {
        const auto row = static_cast<const std::int64_t*>(indices.data)[i];
        for (int k = 0; k < 2; ++k) {
          found[static_cast<std::size_t>(row * 2 + k)] +=
              static_cast<const float*>(rows.data)[i * 2 + k];
        }
      }
    }
    Floats expected(kRows * 2, 0);
    for (int rank = 0; rank < hvd::size(); ++rank) {
      if (step == 1 && rank == hvd::size() - 1) continue;
      expected[0] += (2 * static_cast<float>(rank + 1) + 2) / 2 / size;
      expected[1] += 4.0F / 2 / size;
      if (rank == 0) expected[10] = expected[11] = 2.0F / 2 / size;
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      check::that(std::abs(found[i] - expected[i]) < 1e-5F,
                  "element " + std::to_string(i) + " of step " + std::to_string(step) + ": " +
                      std::to_string(found[i]) + " is " + std::to_string(expected[i]));
    }
  }
}

void sparse() {
  for (const bool as_dense : {false, true}) {
    sparse_of<std::int32_t>(as_dense);
    sparse_of<std::int64_t>(as_dense);
  }
}

void sets() {
  if (hvd::size() == 1) return;  // all ranks are a set already
  hvd::shutdown();
  hvd::init({.process_sets = {{0}}});
  const hvd::ProcessSet first(1);
  if (!first.included()) return;
  hvd::GradientReducer reducer({.op = hvd::Sum, .process_set = first});
  Floats gradient(2, 1);
  Floats other(2, 1);
  reducer.add("w", gradient);
  reducer.add("v", other);
  reducer.ready("w");
  reducer.ready("v");
  reducer.synchronize();
  same(gradient, Floats(2, static_cast<float>(first.size())), "of the set");
  same(other, Floats(2, static_cast<float>(first.size())), "of the set");
}

// Many threads, each with gradients of its own.
void threads() {
  constexpr std::size_t kThreads = 8;
  constexpr std::size_t kEach = 10;
  hvd::GradientReducer reducer({.backward_passes_per_step = 2, .number_of_groups = 7});
  std::vector<Floats> gradients(kThreads * kEach, Floats(3));
  for (std::size_t i = 0; i < gradients.size(); ++i) reducer.add(std::to_string(i), gradients[i]);
  for (int step = 0; step < 10; ++step) {
    for (auto& gradient : gradients) gradient.assign(3, own());
    std::vector<std::thread> callers;
    for (std::size_t t = 0; t < kThreads; ++t) {
      callers.emplace_back([&, t] {
        for (int pass = 0; pass < 2; ++pass) {
          for (std::size_t i = 0; i < kEach; ++i) reducer.ready(t * kEach + i);
        }
      });
    }
    for (auto& caller : callers) caller.join();
    reducer.synchronize();
    for (const auto& gradient : gradients) same(gradient, Floats(3, average()), "gradient");
  }
}

// All gradients but one are ready on all ranks: their values show whether they have been reduced.
void order(bool early) {
  hvd::init();
  hvd::GradientReducer reducer({.number_of_groups = 3});
  std::vector<Floats> gradients(6, Floats(3, own()));
  for (std::size_t i = 0; i < gradients.size(); ++i) reducer.add(std::to_string(i), gradients[i]);
  for (std::size_t i = 1; i < gradients.size(); ++i) reducer.ready(i);
  hvd::barrier();  // comes after what was sent before it
  for (std::size_t i = 2; i < gradients.size(); ++i) {
    same(gradients[i], Floats(3, early ? average() : own()), "all but one are ready");
  }
  reducer.ready(0);
  hvd::barrier();
  for (const auto& gradient : gradients) same(gradient, Floats(3, average()), "all are ready");
  reducer.synchronize();

  // reset() forgets the gradients that wait.
  for (auto& gradient : gradients) gradient.assign(3, own());
  for (std::size_t i = 0; i < 4; ++i) reducer.ready(i);
  reducer.reset();
  for (auto& gradient : gradients) gradient.assign(3, own());
  for (std::size_t i = 2; i < gradients.size(); ++i) reducer.ready(i);
  reducer.synchronize();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    same(gradients[i], Floats(3, i < 2 ? own() : average()), "after synchronize()");
  }
  check::say_ok();
  hvd::shutdown();
}

// Many small ones, of three types, whose presence, sizes and order differ from step to step. They
// are packed where the ranks know of the same sizes before they agree.
void small() {
  constexpr std::size_t kCount = 60;
  hvd::GradientReducer reducer({.name = "small", .op = hvd::Sum});
  std::vector<Floats> floats(kCount, Floats(1));
  std::vector<std::vector<double>> doubles(kCount, std::vector<double>(1));
  std::vector<std::vector<std::int64_t>> numbers(kCount, std::vector<std::int64_t>(1));
  for (std::size_t i = 0; i < kCount; ++i) {
    reducer.add("f" + std::to_string(i), floats[i]);
    reducer.add("d" + std::to_string(i), doubles[i]);
    reducer.add("n" + std::to_string(i), numbers[i]);
  }
  const auto size = static_cast<std::size_t>(hvd::size());
  const auto own_rank = static_cast<std::size_t>(hvd::rank());
  for (std::size_t step = 0; step < 12; ++step) {
    const auto elements = [&](std::size_t i) { return (i + step / 3) % 7; };
    // Which of the ranks have it; every fifth none.
    const auto has = [&](std::size_t rank, std::size_t i) {
      return i % 5 != step % 5 && (i + rank + step) % 3 != 0;
    };
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto value = static_cast<int>(i + step + own_rank);
      floats[i].assign(elements(i), static_cast<float>(value));
      doubles[i].assign(elements(i), value);
      numbers[i].assign(elements(i), value);
    }
    const auto make_ready = [&](std::size_t index) {
      const auto i = index / 3;
      if (index % 3 == 0) reducer.ready(index, floats[i]);
      if (index % 3 == 1) reducer.ready(index, doubles[i]);
      if (index % 3 == 2) reducer.ready(index, numbers[i]);
    };
    for (const auto index : own_order(3 * kCount)) {
      if (has(own_rank, index / 3)) make_ready(index);
    }
    std::vector<std::size_t> missing;
    while (!reducer.missing_for(std::chrono::seconds(1), missing)) {
    }
    for (const auto index : missing) {
      const auto i = index / 3;
      if (index % 3 == 0) floats[i].assign(elements(i), 0);
      if (index % 3 == 1) doubles[i].assign(elements(i), 0);
      if (index % 3 == 2) numbers[i].assign(elements(i), 0);
      make_ready(index);
    }
    reducer.synchronize();
    for (std::size_t i = 0; i < kCount; ++i) {
      std::int64_t sum = 0;
      bool any = false;
      for (std::size_t rank = 0; rank < size; ++rank) {
        if (!has(rank, i)) continue;
        any = true;
        sum += static_cast<std::int64_t>(i + step + rank);
      }
      if (!any) sum = static_cast<std::int64_t>(i + step + own_rank);
      const std::string what = "of step " + std::to_string(step) + ", " + std::to_string(i);
      same(floats[i], Floats(elements(i), static_cast<float>(sum)), "floats " + what);
      same(doubles[i], std::vector<double>(elements(i), static_cast<double>(sum)),
           "doubles " + what);
      same(numbers[i], std::vector<std::int64_t>(elements(i), sum), "numbers " + what);
      same(reducer.present(3 * i), any, "presence " + what);
    }
  }
}

class Come final : public hvd::ReadyEvent {
 public:
  bool ready() const override { return true; }
  void wait() override {}
};

// A gradient with an event goes out at once, and those that were to be packed go with it.
void packed_but_for_events() {
  hvd::GradientReducer reducer({.name = "events"});
  std::vector<Floats> gradients(3, Floats(3, own()));
  for (std::size_t i = 0; i < 3; ++i) reducer.add(std::to_string(i), gradients[i]);
  reducer.ready(0);
  reducer.ready(1, std::make_shared<Come>());
  reducer.ready(2);
  hvd::barrier();
  for (const auto& gradient : gradients) same(gradient, Floats(3, average()), "with an event");
  reducer.synchronize();
  for (const auto& gradient : gradients) same(gradient, Floats(3, average()), "once");
}

// Two at a time, which ranks end in different orders, and whose memory is gone before the next
// step.
void packed_by_two() {
  hvd::GradientReducer first({.name = "first"});
  hvd::GradientReducer second({.name = "second", .op = hvd::Sum});
  for (const std::string name : {"a", "b"}) {
    first.add(name, {nullptr, {1}, hvd::DataType::float32});
    second.add(name, {nullptr, {1}, hvd::DataType::float32});
  }
  for (int step = 0; step < 3; ++step) {
    std::vector<Floats> gradients(4, Floats(static_cast<std::size_t>(step + 1), own()));
    for (std::size_t i = 0; i < 2; ++i) {
      first.ready(i, gradients[i]);
      second.ready(i, gradients[2 + i]);
    }
    const auto end = [](hvd::GradientReducer& reducer) {
      return reducer.synchronized() || reducer.synchronize_for(std::chrono::milliseconds(1));
    };
    auto& earlier = hvd::rank() % 2 == 0 ? first : second;
    auto& later = hvd::rank() % 2 == 0 ? second : first;
    for (bool done = false; !done;) {
      const bool is_ended = end(earlier);
      done = end(later) && is_ended;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      same(gradients[i][0], average(), "of the first");
      same(gradients[2 + i].back(), sum(), "of the second");
    }
    first.next_step();
    second.next_step();
  }
}

// Ranks have agreed on what is packed when they hear what they lack.
void packed_after_it_was_missing() {
  hvd::GradientReducer reducer({.name = "missing"});
  Floats used(2, own());
  Floats rare(3, own());
  reducer.add("used", used);
  reducer.add("rare", rare);
  reducer.ready("used");
  if (hvd::rank() == 0) reducer.ready("rare");
  std::vector<std::size_t> missing;
  while (!reducer.missing_for(std::chrono::seconds(1), missing)) {
  }
  if (hvd::rank() != 0) {
    Floats longer(4);
    check::throws<Error>("another shape", {"\"rare\" is not as other ranks have it"},
                         [&] { reducer.ready(1, longer); });
    reducer.ready(1, rare, std::make_shared<Come>());
  }
  reducer.synchronize();
  same(used, Floats(2, average()), "used");
  same(rare, Floats(3, average()), "rare");
}

// Whether the timeline that rank 0 writes shows a gradient alone, for all ranks.
bool is_one_in_timeline(const char* file) {
  Floats found(1, 0);
  if (hvd::rank() == 0) {
    std::ifstream timeline(file);
    const std::string text{std::istreambuf_iterator<char>(timeline), {}};
    found[0] = text.find("gradient.5") == std::string::npos ? 0 : 1;
  }
  hvd::broadcast(found);
  return found[0] != 0;
}

// Small ones are packed: none goes before synchronize(). Where a timeline is recorded, which begins
// some steps after init(), each goes alone.
void packed() {
  hvd::init();
  const char* const recorded = std::getenv("HVD_TIMELINE");
  hvd::GradientReducer reducer;
  std::vector<Floats> gradients(6, Floats(3));
  for (std::size_t i = 0; i < gradients.size(); ++i) reducer.add(std::to_string(i), gradients[i]);
  for (int step = 0; recorded == nullptr ? step < 3 : !is_one_in_timeline(recorded); ++step) {
    for (auto& gradient : gradients) gradient.assign(3, own());
    for (std::size_t i = 0; i < gradients.size(); ++i) reducer.ready(i);
    hvd::barrier();  // comes after what was sent before it
    for (const auto& gradient : gradients) {
      if (recorded == nullptr) same(gradient, Floats(3, own()), "before synchronize()");
    }
    reducer.synchronize();
    for (const auto& gradient : gradients) same(gradient, Floats(3, average()), "reduced");
  }
  if (recorded == nullptr) {
    packed_but_for_events();
    packed_by_two();
    packed_after_it_was_missing();
  }
  check::say_ok();
  hvd::shutdown();
}

void work() {
  hvd::init();
  options();
  steps();
  missing();
  moving();
  small();
  groups();
  passes();
  over_shards();
  sparse();
  sets();
  threads();
  refusals();
  disagreements();
  check::say_ok();
  hvd::shutdown();
}

}  // namespace
}  // namespace gradients

int main(int argc, char** argv) {
  return check::run(argc, argv,
                    {{"work", gradients::work},
                     {"early", [] { gradients::order(true); }},
                     {"late", [] { gradients::order(false); }},
                     {"packed", gradients::packed},
                     {"loss", [] { gradients::loss(2); }},
                     {"loss of packed", [] { gradients::loss(0); }}});
}
