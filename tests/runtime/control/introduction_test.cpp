// The introductions that members exchange before they are connected, and the members they refuse.
#include "runtime/control/introduction.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/wire.h"

namespace hvd::runtime {
namespace {

class IntroductionTest : public testing::Test {
 protected:
  static std::string introduction(const std::string& sets, std::uint32_t version) {
    Introduction own;
    own.version = version;
    own.control = "4000";
    own.data = "tcp 5000";
    own.sets = sets;
    own.host = "segment";
    return own.encode();
  }
  static std::string introduction(const std::string& sets = "no process sets") {
    return introduction(sets, wire_versions().members);
  }
  // The result of reading all introductions on rank `own`.
  Result<std::vector<Introduction>> read(int own, const std::vector<std::string>& blobs) const {
    return read_introductions(WorldSpec(own, members_, 1, token_), blobs);
  }

  const std::vector<Member> members_{{"a#0", "a", "10.0.0.1"}, {"b#0", "b", "10.0.0.2"}};
  const Token token_ = Token::random();
};

TEST_F(IntroductionTest, IsReadAsItWasWritten) {
  const auto all = read(0, {introduction(), introduction()});
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ((*all)[1].control, "4000");
  EXPECT_EQ((*all)[1].data, "tcp 5000");
  EXPECT_EQ((*all)[1].host, "segment");
}

TEST_F(IntroductionTest, CutOffAnywhereIsAnErrorThatNamesTheRank) {
  const std::string whole = introduction();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto all = read(0, {whole, whole.substr(0, length)});
    ASSERT_FALSE(all.ok()) << length;
    EXPECT_NE(all.status().message().find("rank 1"), std::string::npos) << all.status().message();
  }
  EXPECT_FALSE(read(0, {whole, whole + "x"}).ok());
  EXPECT_EQ(read(0, {whole}).status().code(), Code::internal);
}

// The rank that differs from rank 0 can never take part; the others wait until it is gone.
TEST_F(IntroductionTest, OfAnotherVersionIsRefusedWithoutReadingTheRest) {
  const std::uint32_t other = wire_versions().members + 1;
  const std::string future = WireWriter().u32(other).str("future").str("?").take();
  const auto by_first = read(0, {introduction(), future});
  EXPECT_EQ(by_first.status().code(), Code::failed_precondition);
  EXPECT_NE(by_first.status().message().find("rank 1 on b#0 has hvd of build future"),
            std::string::npos)
      << by_first.status().message();
  EXPECT_EQ(read(1, {future, introduction()}).status().code(), Code::permission_denied);
}

TEST_F(IntroductionTest, OfOtherProcessSetsIsRefusedByAllRanksWithTheSameText) {
  const std::vector<std::string> blobs{introduction(), introduction("the process sets [0]")};
  const auto first = read(0, blobs);
  EXPECT_EQ(first.status().code(), Code::invalid_argument);
  EXPECT_EQ(first.status().message(),
            "Mismatched process sets: rank 0 (a#0) wants no process sets, but rank 1 (b#0) wants "
            "the process sets [0]");
  EXPECT_EQ(read(1, blobs).status().message(), first.status().message());
}

TEST_F(IntroductionTest, NamesTheProcessSetsOfItsRank) {
  WorldSpec spec(0, members_, 1, token_);
  spec.dynamic_process_sets = false;
  EXPECT_EQ(sets_text(spec, {}), "no process sets, and no dynamic ones");
  spec.process_sets = {{0}, {0, 1}};
  spec.dynamic_process_sets = true;
  EXPECT_EQ(sets_text(spec, {}), "the process sets [0], [0 to 1], and dynamic ones");
  EXPECT_EQ(sets_text(spec, Status(Code::invalid_argument, "rank 7")),
            "invalid process sets (rank 7)");
}

}  // namespace
}  // namespace hvd::runtime
