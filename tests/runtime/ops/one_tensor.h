// One tensor of float32 through a backend, for what the conformance tables do not say.
#pragma once

#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/runtime/ops/conformance.h"

namespace hvd::test {

inline runtime::Group world_of(int size, int rank) {
  runtime::Group group;
  group.rank = rank;
  group.ranks.resize(static_cast<std::size_t>(size));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  return group;
}

// Of a rank; sums of such numbers depend on the order in which they are added.
inline std::vector<float> uneven_numbers(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> values(count);
  for (auto& value : values) value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.F : -1.F);
  return values;
}

// Of that many ranks, in their order.
inline std::vector<float> sum_of_uneven_numbers(int ranks, std::size_t count) {
  std::vector<float> sum = uneven_numbers(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto more = uneven_numbers(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

// Tensors of float32 in place, for one batch.
struct Batch {
  explicit Batch(runtime::Kind kind) { response.kind = kind; }
  void add(float* data, std::size_t count) {
    runtime::Entry entry;
    entry.request.name = cat("t", entries.size());
    entry.request.kind = response.kind;
    entry.request.type = DataType::float32;
    entry.request.shape = {static_cast<std::int64_t>(count)};
    entry.input = entry.output = data;
    response.tensors.push_back(std::make_shared<const runtime::ResponseTensor>(
        runtime::ResponseTensor{entry.request, {}}));
    entries.push_back(std::move(entry));
  }
  Status run(RankUnderTest& self, const runtime::Group& group) {
    std::vector<runtime::Outcome> outcomes(entries.size());
    return self.run(response, group, entries, outcomes);
  }

  runtime::Response response;
  std::vector<runtime::Entry> entries;
};

struct OneTensor {
  OneTensor(runtime::Kind kind, std::vector<float> values)
      : input(std::move(values)), output(input.size()) {
    entry.request.name = "gradients";
    entry.request.kind = response.kind = kind;
    entry.request.type = DataType::float32;
    entry.request.shape = {static_cast<std::int64_t>(input.size())};
    entry.input = input.data();
    entry.output = output.data();
  }
  runtime::Outcome run(RankUnderTest& self, const runtime::Group& group) {
    response.tensors = {std::make_shared<const runtime::ResponseTensor>(
        runtime::ResponseTensor{entry.request, extents})};
    std::vector<runtime::Entry> entries{entry};
    std::vector<runtime::Outcome> outcomes(1);
    const Status ran = self.run(response, group, entries, outcomes);
    return ran.ok() ? outcomes.front() : runtime::Outcome(ran);
  }

  std::vector<float> input;
  std::vector<float> output;
  std::vector<std::int64_t> extents;
  runtime::Response response;
  runtime::Entry entry;
};

// Checks that the transport works as well as before.
inline void expect_sum_works(RankUnderTest& self, int size, int rank) {
  OneTensor sum(runtime::Kind::allreduce, {static_cast<float>(rank), 1});
  const runtime::Outcome outcome = sum.run(self, world_of(size, rank));
  EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
  float ranks = 0;
  for (int other = 0; other < size; ++other) ranks += static_cast<float>(other);
  EXPECT_EQ(sum.output, (std::vector<float>{ranks, static_cast<float>(size)}));
}

}  // namespace hvd::test
