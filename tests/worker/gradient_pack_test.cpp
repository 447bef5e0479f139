#include "worker/gradient_pack.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace hvd::worker {
namespace {

using Floats = std::vector<float>;

// What an allreduce of the marks gives.
bool agree(const std::vector<std::optional<std::uint64_t>>& digests) {
  GradientPack::Mark largest{};  // that of a rank that has joined
  for (const auto& digest : digests) {
    const auto mark = GradientPack::mark(digest);
    std::transform(mark.begin(), mark.end(), largest.begin(), largest.begin(),
                   [](auto a, auto b) { return std::max(a, b); });
  }
  return GradientPack::is_agreed(largest);
}

TEST(GradientPack, IsAgreedOnByRanksWithTheSameDigestAlone) {
  EXPECT_TRUE(agree({0x0123456789abcdefU, 0x0123456789abcdefU, 0x0123456789abcdefU}));
  EXPECT_TRUE(agree({0U, 0U}));
  EXPECT_TRUE(agree({~std::uint64_t{0}, ~std::uint64_t{0}}));
  EXPECT_FALSE(agree({0U, ~std::uint64_t{0}}));
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(agree({0x55U, 0x55U ^ (std::uint64_t{1} << bit)})) << "bit " << bit;
  }
  EXPECT_FALSE(agree({7U, std::nullopt, 7U}));
  EXPECT_FALSE(agree({std::nullopt, std::nullopt}));
}

class PackOfGradients : public ::testing::Test {
 protected:
  void add(const std::string& name, const TensorView& tensor) { list_.add(name, tensor, false); }
  void make_ready(const std::string& name) { ++list_.at(list_.index_of(name)).passes; }

  GradientList list_{GradientReducerOptions()};
  GradientPack pack_;
};

TEST_F(PackOfGradients, HoldsThoseOfATypeAndGivesThemBack) {
  Floats a{1, 2};
  std::vector<double> b{3};
  Floats none;
  Floats c{4, 5, 6};
  Floats late{7};
  Floats left{8};
  add("a", a);
  add("b", b);
  add("none", none);
  add("c", c);
  add("late", late);
  add("left", left);
  list_.close();
  for (const auto* name : {"a", "b", "none", "c", "left"}) make_ready(name);
  list_.at(list_.index_of("left")).left_out = true;

  for (int step = 0; step < 2; ++step) {
    pack_.fill(list_);
    ASSERT_EQ(pack_.parts().size(), 2U);
    const auto floats = pack_.parts()[0]->memory.as<float>();
    EXPECT_EQ(Floats(floats.begin(), floats.end()), (Floats{1, 2, 4, 5, 6, 0}));
    EXPECT_EQ(pack_.parts()[1]->memory.as<double>()[0], 3);
  }
  for (auto& value : pack_.parts()[0]->memory.as<float>()) value *= 10;
  pack_.unpack(list_);
  EXPECT_EQ(a, (Floats{10, 20}));
  EXPECT_EQ(c, (Floats{40, 50, 60}));
  EXPECT_EQ(late, Floats{0});
  EXPECT_EQ(left, Floats{8}) << "no rank has it";
}

TEST_F(PackOfGradients, FollowsGradientsThatBecomeOthers) {
  Floats a{1, 2};
  Floats b{3};
  add("a", a);
  add("b", b);
  list_.close();
  make_ready("a");
  make_ready("b");
  const auto digest = list_.digest_of_packable();
  ASSERT_TRUE(digest.has_value());
  pack_.fill(list_);

  Floats longer{4, 5, 6};
  list_.move(list_.at(1), longer);
  EXPECT_NE(list_.digest_of_packable(), digest);
  pack_.fill(list_);
  ASSERT_EQ(pack_.parts().size(), 1U);
  EXPECT_EQ(pack_.parts()[0]->memory.elements(), 5);
  std::vector<double> wide{7};
  list_.move(list_.at(0), wide);
  list_.move(list_.at(1), wide);
  pack_.fill(list_);
  ASSERT_EQ(pack_.parts().size(), 1U) << "none is left of the first type";
  EXPECT_EQ(pack_.parts()[0]->memory.type(), DataType::float64);
}

TEST(PackableGradients, AreSmallDenseOnesOutsideGroups) {
  Floats small(2048);
  Floats large(2049);
  GradientReducerOptions options;
  options.groups = {{"grouped"}};
  const auto has_digest = [&](const std::vector<std::string>& names,
                              const GradientReducerOptions& given) {
    GradientList list(given);
    list.add("small", small, false);
    for (const auto& name : names) list.add(name, name == "large" ? large : small, name == "rows");
    list.close();
    return list.digest_of_packable().has_value();
  };
  EXPECT_TRUE(has_digest({"grouped", "other"}, options));
  EXPECT_FALSE(has_digest({"grouped"}, options));
  EXPECT_FALSE(has_digest({"large"}, {}));
  EXPECT_FALSE(has_digest({"rows"}, {}));
  EXPECT_FALSE(has_digest({"other"}, {.op = Adasum}));
  EXPECT_FALSE(has_digest({"other"}, {.compression = Compression::float16}));
}

}  // namespace
}  // namespace hvd::worker
