// How the public calls check their arguments, in a world of one, against libhvd.so.
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <hvd/adapter.h>
#include <hvd/cuda.h>
#include <hvd/hvd.h>

namespace {

using hvd::DataType;

class ApiArguments : public ::testing::Test {
 protected:
  void SetUp() override { hvd::init(); }
  void TearDown() override { hvd::shutdown(); }

  template <typename Call>
  static void expect_refused(const Call& call, const std::vector<std::string>& parts) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const hvd::InvalidArgumentError& error) {
      for (const auto& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
            << '"' << part << "\" is not in: " << error.what();
      }
    }
  }
};

TEST_F(ApiArguments, AnOutputOfReducescatterHasExactlyThisRanksRows) {
  const std::vector<float> input(6);
  std::vector<float> output(6);
  const auto matrix = hvd::shaped_const(input, {3, 2});
  hvd::reducescatter(matrix, hvd::shaped(output, {3, 2}), {.name = "r"});
  expect_refused([&] { hvd::reducescatter(matrix, output, {.name = "r"}); },
                 {"reducescatter \"r\"", "float32[6]", "float32[3, 2]"});
  std::vector<double> other(6);
  expect_refused(
      [&] {
        hvd::reducescatter(matrix, hvd::shaped(other, {3, 2}));
      },
      {"float64[3, 2]", "float32[3, 2]"});
  expect_refused(
      [&] {
        hvd::reducescatter(matrix, {nullptr, {3, 2}, DataType::float32});
      },
      {"output", "no memory"});
}

TEST_F(ApiArguments, InputAndOutputMayBeTheSameButNotOverlapInPart) {
  std::vector<int> memory(8);
  std::iota(memory.begin(), memory.end(), 0);
  const hvd::TensorView first(memory.data(), {4}, DataType::int32);
  const hvd::TensorView shifted(memory.data() + 1, {4}, DataType::int32);
  const hvd::TensorView behind(memory.data() + 4, {4}, DataType::int32);
  hvd::allreduce(first, first);
  hvd::allreduce(first, behind);
  EXPECT_EQ(memory, (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
  for (const auto& [input, output] : {std::pair(first, shifted), std::pair(shifted, first)}) {
    expect_refused([&, &in = input, &out = output] { hvd::allreduce(in, out, {.name = "o"}); },
                   {"\"o\"", "overlap in memory"});
    expect_refused([&, &in = input, &out = output] { hvd::broadcast(in, out); }, {"overlap"});
    expect_refused([&, &in = input, &out = output] { hvd::reducescatter(in, out); }, {"overlap"});
  }
}

// Else the next call of this rank would wait for ranks that count differently.
TEST_F(ApiArguments, AnUnnamedCallThatIsRefusedHasNoNumber) {
  const hvd::TensorView nothing(nullptr, {4}, DataType::float32);
  std::vector<std::int64_t> rows{0};
  std::vector<float> values(3);
  for (int i = 0; i < 2; ++i) {
    expect_refused([&] { hvd::allreduce(nothing); }, {"allreduce.noname.0\""});
    expect_refused([&] { hvd::broadcast(nothing); }, {"broadcast.noname.0\""});
    expect_refused([&] { hvd::allgather(nothing); }, {"allgather.noname.0\""});
    expect_refused([&] { hvd::grouped_allreduce({nothing}); }, {"grouped_allreduce.noname.0_1of1"});
    expect_refused([&] { hvd::sparse_allreduce(rows, values); }, {"sparse_allreduce.noname.0\""});
    expect_refused([] { hvd::broadcast_object("x", {.root = 7}); }, {"broadcast_object.noname.0."});
  }
  hvd::allreduce(values);
  hvd::broadcast_object("x");
  expect_refused([&] { hvd::allreduce(nothing); }, {"allreduce.noname.1\""});
  expect_refused([] { hvd::broadcast_object("x", {.root = 7}); }, {"broadcast_object.noname.1."});
}

TEST_F(ApiArguments, GroupsAreCheckedAsAWhole) {
  std::vector<float> a(2);
  std::vector<float> b(3);
  expect_refused(
      [&] {
        hvd::grouped_allreduce({a, b}, {a}, {.name = "g"});
      },
      {"\"g\"", "2 inputs", "1 outputs"});
  expect_refused([&] { hvd::grouped_allreduce({a, b}, {a, a}, {.name = "g"}); }, {"\"g_2of2\""});
  hvd::grouped_allreduce({a, b}, {.name = "g"});
  EXPECT_TRUE(hvd::grouped_allgather({}).empty());
  EXPECT_TRUE(hvd::grouped_allreduce_async(std::vector<hvd::TensorView>()).ready());
  auto one = hvd::grouped_reducescatter_async({b});
  EXPECT_EQ(one.get().size(), 1U);
}

template <typename T>
concept ReadAs = requires(hvd::Tensor& tensor, const hvd::Tensor& constant) {
  tensor.as<T>();
  constant.as<T>();
};

// Else they were taken for bytes, and read beyond the end.
TEST(Elements, AreReadAsElementTypesOnly) {
  struct Pair {
    double first;
    double second;
  };
  EXPECT_TRUE(ReadAs<std::uint8_t>);
  EXPECT_TRUE(ReadAs<float>);
  EXPECT_TRUE(ReadAs<hvd::bfloat16>);
  EXPECT_FALSE(ReadAs<Pair>);
  EXPECT_FALSE(ReadAs<long long>);
  EXPECT_FALSE(ReadAs<unsigned>);
  EXPECT_FALSE(ReadAs<const float>);
  EXPECT_FALSE(ReadAs<char>);
}

TEST_F(ApiArguments, ImpossibleShapesAreRefused) {
  std::vector<float> six(6);
  expect_refused([&] { hvd::shaped(six, {2, 2}); }, {"[6]", "[2, 2]"});
  expect_refused([&] { hvd::shaped(six, {-2, -3}); }, {"[-2, -3]"});
  const std::int64_t huge = std::int64_t{1} << 32;
  expect_refused([&] { hvd::Tensor({huge, huge}, DataType::int8); }, {"4294967296"});
  expect_refused([&] { hvd::Tensor({-1}, DataType::int8); }, {"[-1]"});
  expect_refused([&] { hvd::Tensor({3}, DataType::int8).as<float>(); }, {"int8", "float32"});
  expect_refused([&] { hvd::allgather({six.data(), {}, DataType::float32}); }, {"scalar"});
  expect_refused(
      [&] {
        hvd::allreduce({nullptr, {-4}, DataType::float32});
      },
      {"invalid shape [-4]: negative extent"});
  // No elements, but rows that cannot be counted on more ranks than one.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  expect_refused([&] { hvd::allgather({nullptr, {most, 0, 2}, DataType::int8}); }, {"[922"});
  expect_refused([&] { hvd::alltoall(six, {.splits = {7}}); }, {"split"});
  expect_refused([&] { hvd::alltoall(six, {.splits = {1, 1}}); }, {"split"});
}

TEST_F(ApiArguments, MemoryThatNothingCanWorkOnIsRefusedAndTheWorldGoesOn) {
  std::vector<float> two(2);
  const auto on = [&](int cuda) {
    return [&two, cuda] {
      hvd::allreduce({two.data(), {2}, DataType::float32, {cuda}}, {.name = "t"});
    };
  };
  expect_refused(on(-7), {"CUDA device -7"});
  // For want of the module, of a driver, of a GPU, or of so many: the first that is missing.
  expect_refused(on(1'000), {"\"t\"", "CUDA"});
  expect_refused(
      [&] {
        hvd::allgather({two.data(), {2}, DataType::float32, {1'000}}, {.name = "t"});
      },
      {"\"t\"", "CUDA"});
  expect_refused([] { (void)hvd::Tensor({2}, DataType::float32, {1'000}); }, {"hvd::Tensor"});
  hvd::allreduce(two, {.name = "t"});
}

TEST_F(ApiArguments, WithoutAGpuTheHelpersForThemSayWhatIsMissing) {
  if (hvd::cuda::device_count() > 0) GTEST_SKIP() << "this machine has GPUs";
  EXPECT_NE(hvd::cuda::why_unavailable().find("CUDA"), std::string::npos)
      << hvd::cuda::why_unavailable();
  expect_refused([&] { hvd::cuda::device(); }, {"hvd::cuda", "CUDA"});
  expect_refused([&] { hvd::cuda::ready_after(nullptr); }, {"hvd::cuda", "CUDA"});
}

TEST_F(ApiArguments, ProcessSetsThatNeverExistedAreUnknownWhateverTheirNumber) {
  std::vector<float> two(2);
  for (const int id : {-1, 17}) {
    try {
      hvd::allreduce(two, {.process_set = hvd::ProcessSet(id)});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const hvd::ProcessSetError& error) {
      EXPECT_EQ(error.code(), hvd::ProcessSetErrorCode::unknown);
    }
  }
}

TEST_F(ApiArguments, SparseTensorsMustFitTogether) {
  std::vector<int> indices(4);
  std::vector<float> values(4);
  expect_refused(
      [&] {
        hvd::sparse_allreduce(indices, {values.data(), {4}, DataType::float32, {0}}, {.name = "s"});
      },
      {"\"s\"", "memory of the host"});
  expect_refused([&] { hvd::sparse_allreduce(values, values, {.name = "s"}); },
                 {"sparse_allreduce \"s\"", "int32 or int64", "float32[4]"});
  expect_refused([&] { hvd::sparse_allreduce(indices, std::vector<float>(3)); },
                 {"float32[3]", "int32[4]"});
  expect_refused(
      [&] {
        hvd::sparse_allreduce(hvd::shaped(indices, {2, 2, 1}), values);
      },
      {"[2, 2, 1]"});
  expect_refused([&] { hvd::sparse_allreduce(indices, values, {.op = hvd::Max}); }, {"max"});
  expect_refused([&] { hvd::sparse_allreduce(indices, std::array<bool, 4>{}); }, {"booleans"});
}

TEST_F(ApiArguments, ListsOfParametersHaveEveryNameOnce) {
  std::vector<float> a(2);
  const std::vector<hvd::NamedTensor> twice{{"a", a}, {"a", a}};
  expect_refused([&] { hvd::broadcast_parameters(twice); }, {"\"a\"", "twice"});
  const std::vector<hvd::NamedTensor> nameless{{"", a}};
  expect_refused([&] { hvd::broadcast_parameters(nameless); }, {"no name"});
  const std::vector<hvd::NamedTensor> right{{"a", a}};
  expect_refused([&] { hvd::broadcast_parameters(right, {.root = 1}); },
                 {"broadcast_parameters.a", "root rank 1"});
  hvd::broadcast_parameters(right);
}

TEST_F(ApiArguments, TheSeamRefusesWorkThatCannotEnd) {
  std::vector<float> data(2);
  hvd::adapter::Submission work;
  work.name = "w";
  work.input = data;
  work.output = data;
  expect_refused([&] { hvd::adapter::submit(work); }, {"\"w\"", "no function to call"});
  work.done = [](const hvd::adapter::Completion&) { ADD_FAILURE() << "done was called"; };
  work.collective = hvd::Collective::allgather;
  expect_refused([&] { hvd::adapter::submit(work); }, {"\"w\"", "allocate"});
  expect_refused([&] { hvd::adapter::submit_group("", {work}); }, {"the group has no name"});
  expect_refused([&] { hvd::adapter::submit_group("g", {}); }, {"\"g\"", "no tensors"});
  work.name = "";
  expect_refused([&] { hvd::adapter::submit_group("g", {work}); }, {"\"g\"", "has no name"});
}

TEST(ApiArgumentsOfInit, NameTheProcessSetThatCannotBe) {
  const auto refusal = [](const hvd::InitOptions& options) -> std::string {
    try {
      hvd::init(options);
      hvd::shutdown();
    } catch (const hvd::InitError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(refusal({.process_sets = {{1}}}).find("no rank 1"), std::string::npos);
  EXPECT_NE(refusal({.process_sets = {{}}}).find("at least one"), std::string::npos);
  EXPECT_NE(refusal({.process_sets = {{0}}}).find("already consists of ranks 0"),
            std::string::npos);
  EXPECT_FALSE(hvd::is_initialized());
}

}  // namespace
