// What `hvdrun compare` says of two ledgers, and which lines it refuses.
#include "cmd/hvdrun/ledgers.h"

#include <gtest/gtest.h>
#include <sstream>

#include "base/text.h"
#include "tests/support/texts.h"

namespace hvd::cli {
namespace {

using test::contains;

Result<LedgerComparison> compare(const std::string& a, const std::string& b) {
  std::istringstream in_a(a);
  std::istringstream in_b(b);
  LedgerReader from_a(in_a, "a");
  LedgerReader from_b(in_b, "b");
  return compare_ledgers(from_a, from_b);
}

std::string line(int step, const std::string& digests, const std::string& samples = "") {
  return cat(R"({"step":)", step, R"(,"digests":{)", digests, "}",
             samples.empty() ? "" : cat(R"(,"samples":{)", samples, "}"), "}\n");
}

TEST(Ledgers, OfTheSameStepsAreAlike) {
  const std::string two = line(1, R"("w":"00")") + line(2, R"("w":"01","b":"02")");
  const auto same = compare(two, two);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_TRUE(same->is_alike);
  EXPECT_EQ(same->text, "2 steps, all alike\n");
  // Tensors are found by their names, and a run without shards says nothing of samples.
  const auto other =
      compare(line(1, R"("w":"01","b":"02")", R"("0":[1])"), line(1, R"("b":"02","w":"01")"));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->is_alike);
}

TEST(Ledgers, ThatDifferAreToldByTheFirstStepAndTheTensorThatWasAddedFirst) {
  const std::string head = line(1, R"("w":"00","b":"00","a":"00")");
  const auto compared = compare(head + line(2, R"("w":"00","b":"01","a":"01")") + line(3, ""),
                                head + line(2, R"("w":"00","b":"02","a":"02")") + line(3, ""));
  ASSERT_TRUE(compared.ok()) << compared.status().message();
  EXPECT_FALSE(compared->is_alike);
  EXPECT_EQ(compared->text,
            "step 2 is the first that differs, and in it \"b\" the first of 2 tensors, of 3:\n"
            "    01  a\n"
            "    02  b\n"
            "1 of the 3 steps that both have differ\n");
}

TEST(Ledgers, ThatLackATensorDiffer) {
  const auto in_a = compare(line(1, R"("w":"00","b":"01")"), line(1, R"("w":"00")"));
  ASSERT_TRUE(in_a.ok());
  EXPECT_FALSE(in_a->is_alike);
  EXPECT_TRUE(
      contains(in_a->text, "\"b\" the first of 1 tensor, of 2:\n    01  a\n    not there  b"))
      << in_a->text;
  const auto in_b = compare(line(1, R"("w":"00")"), line(1, R"("w":"00","b":"01")"));
  ASSERT_TRUE(in_b.ok());
  EXPECT_TRUE(contains(in_b->text, "    not there  a\n    01  b\n")) << in_b->text;
}

TEST(Ledgers, WithOtherSamplesDiffer) {
  const auto compared = compare(line(4, R"("w":"00")", R"("0":[1,2],"1":[3])"),
                                line(4, R"("w":"00")", R"("0":[1,2],"1":[4])"));
  ASSERT_TRUE(compared.ok());
  EXPECT_FALSE(compared->is_alike);
  EXPECT_TRUE(contains(compared->text, "the samples of shard 1 differ in step 4"))
      << compared->text;
  const auto fewer = compare(line(4, "", R"("0":[1],"2":[1])"), line(4, "", R"("0":[1])"));
  ASSERT_TRUE(fewer.ok());
  EXPECT_TRUE(contains(fewer->text, "the samples of shard 2 differ in step 4")) << fewer->text;
}

TEST(Ledgers, OfOtherStepsDiffer) {
  const auto compared = compare(line(1, "") + line(2, "") + line(3, "") + line(7, ""),
                                line(1, "") + line(3, "") + line(8, "") + line(9, ""));
  ASSERT_TRUE(compared.ok()) << compared.status().message();
  EXPECT_FALSE(compared->is_alike);
  EXPECT_EQ(compared->text,
            "the 2 steps that both have are alike\n"
            "only a has step 2\n"
            "only a has step 7\n"
            "only b has steps 8 to 9\n");
}

TEST(Ledgers, WithManyGapsAreToldInFewLines) {
  std::string a;
  std::string b;
  for (int step = 1; step <= 30; step += 3) {
    a += line(step, "") + line(step + 1, "");
    b += line(step, "");
  }
  const auto compared = compare(a, b);
  ASSERT_TRUE(compared.ok());
  EXPECT_TRUE(
      contains(compared->text, "and so on: only a has steps in 5 more places, up to step 29"))
      << compared->text;
}

TEST(Ledgers, WithABadLineAreErrorsThatNameFileLineAndReason) {
  const struct {
    std::string text;
    std::string said;
  } cases[] = {
      {"", "b: there is no step in it"},
      {line(1, "") + "\n", "b:2: it is not JSON"},
      {line(1, "") + "{\"step\":2", "b:2: the line is cut off"},
      {line(1, "") + line(2, "").substr(0, 9) + "\n", "b:2: it is not JSON"},
      {"[1]\n", "b:1: it is not an object"},
      {"{\"a\":{\"b\":{\"c\":{\"d\":1}}}}\n", "b:1: \"a\" is no field of a ledger"},
      {"{\"digests\":{}}\n", "b:1: \"step\" is missing"},
      {"{\"step\":1}\n", "b:1: \"digests\" is missing"},
      {line(0, ""), "b:1: \"step\" is not a whole number above 0"},
      {line(-1, ""), "b:1: \"step\" is not a whole number above 0"},
      {"{\"step\":1.0,\"digests\":{}}\n", "b:1: \"step\" is not a whole number above 0"},
      {"{\"step\":1,\"step\":2,\"digests\":{}}\n", "b:1: \"step\" stands twice in it"},
      {line(1, R"("w":"00","w":"01")"), "b:1: \"w\" stands twice in it"},
      {line(2, "") + line(2, ""), "b:2: step 2 stands after step 2"},
      {line(2, "") + line(3, "") + line(1, ""), "b:3: step 1 stands after step 3"},
      {"{\"step\":1,\"digests\":[]}\n", "b:1: \"digests\" is not an object"},
      {line(1, R"("w":"0g")"), "b:1: the digest of \"w\" is not a hexadecimal number"},
      {line(1, R"("w":"012")"), "b:1: the digest of \"w\" is not a hexadecimal number"},
      {line(1, R"("w":"")"), "b:1: the digest of \"w\" is not a hexadecimal number"},
      {line(1, R"("w":7)"), "b:1: the digest of \"w\" is not a hexadecimal number"},
      {line(1, R"("":"00")"), "b:1: a tensor has no name"},
      {line(1, R"("w\u001b[31m":0)"), "b:1: the digest of \"w\\x1b[31m\" is not"},
      {"{\"step\":1,\"digests\":{},\"samples\":7}\n", "b:1: \"samples\" is not an object"},
      {line(1, "", R"("one":[])"), "b:1: \"one\" is not the number of a shard"},
      {line(1, "", R"("01":[])"), "b:1: \"01\" is not the number of a shard"},
      {line(1, "", R"("0":[1.5])"),
       "b:1: the samples of shard 0 are not an array of whole numbers"},
      {line(1, "", R"("0":3)"), "b:1: the samples of shard 0 are not an array of whole numbers"},
  };
  const std::string good = line(1, "");
  for (const auto& wrong : cases) {
    const auto compared = compare(good, wrong.text);
    EXPECT_FALSE(compared.ok()) << wrong.text;
    EXPECT_TRUE(contains(compared.status().message(), wrong.said)) << compared.status().message();
    EXPECT_FALSE(compare(wrong.text, good).ok()) << wrong.text;
  }
}

// A difference in the first step is no answer if the second line is none.
TEST(Ledgers, AreReadToTheirEnds) {
  EXPECT_FALSE(compare(line(1, R"("w":"00")"), line(1, R"("w":"01")") + "no line\n").ok());
}

}  // namespace
}  // namespace hvd::cli
