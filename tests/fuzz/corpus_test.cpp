// The inputs of tests/fuzz/corpus, which libFuzzer has found or a person has written, through the
// targets once more: each as it is, and with small changes, which are the same in every run.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

// HVD_FUZZ_TARGETS is T(agent_link) T(config_file) ... (tests/fuzz/tests.cmake).
#define T(target) extern "C" int hvd_fuzz_##target(const std::uint8_t* data, std::size_t size);
HVD_FUZZ_TARGETS
#undef T

namespace hvd::fuzz {
namespace {

struct Target {
  std::string name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};

const std::vector<Target>& targets() {
#define T(target) {#target, hvd_fuzz_##target},
  static const std::vector<Target> all{HVD_FUZZ_TARGETS};
#undef T
  return all;
}

std::filesystem::path corpus() {
  return std::filesystem::path(HVD_SOURCE_DIR) / "tests" / "fuzz" / "corpus";
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Corpus : public testing::TestWithParam<Target> {
 protected:
  static void run(const std::string& bytes) {
    // Memory of its own size: AddressSanitizer sees what is read behind the end.
    const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
    EXPECT_EQ(GetParam().run(input.data(), input.size()), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(targets()),
                         [](const auto& row) { return row.param.name; });

TEST_P(Corpus, EachInputEndsInAValueOrAnError) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(corpus() / GetParam().name)) {
    SCOPED_TRACE(entry.path().string());
    run(content(entry.path()));
    ++files;
  }
  EXPECT_GT(files, 0) << "the target has no inputs";
}

// Cut off, and with one byte changed, at up to 16 places.
TEST_P(Corpus, SoDoesEachInputWithASmallChange) {
  constexpr std::size_t kPlaces = 16;
  for (const auto& entry : std::filesystem::directory_iterator(corpus() / GetParam().name)) {
    SCOPED_TRACE(entry.path().string());
    const auto whole = content(entry.path());
    const std::size_t step = whole.size() / kPlaces + 1;
    for (std::size_t place = 0; place < whole.size(); place += step) {
      run(whole.substr(0, place));
      auto changed = whole;
      changed[place] = static_cast<char>(changed[place] ^ (place % 2 == 0 ? 1 : 0x80));
      run(changed);
    }
  }
}

// A folder without a target would never be run.
TEST(CorpusFolders, EachOfThemHasATarget) {
  for (const auto& entry : std::filesystem::directory_iterator(corpus())) {
    const auto name = entry.path().filename().string();
    EXPECT_TRUE(std::any_of(targets().begin(), targets().end(), [&](const Target& target) {
      return target.name == name;
    })) << name;
  }
}

}  // namespace
}  // namespace hvd::fuzz
