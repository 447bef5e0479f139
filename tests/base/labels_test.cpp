#include "base/labels.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using Labels = std::vector<std::string>;

TEST(Labels, HaveTheFormOfThoseOfKubernetes) {
  EXPECT_TRUE(check_labels({}).ok());
  EXPECT_TRUE(check_labels({"zone=eu-1", "example.com/gpu_type=H100.80", "spot="}).ok());
  EXPECT_TRUE(check_labels({std::string(63, 'k') + "=" + std::string(63, 'v')}).ok());

  for (const std::string& wrong :
       {std::string("zone"), std::string("=eu"), std::string(), std::string("zone=eu west"),
        std::string("zone=a=b"), std::string("zo ne=eu"), std::string("zone=eu/west"),
        std::string("zone=\n"), std::string("zone=\xC3\xBC"), std::string(64, 'k') + "=v",
        "k=" + std::string(64, 'v')}) {
    const Status status = check_labels({"good=1", wrong});
    EXPECT_EQ(status.code(), Code::invalid_argument) << wrong;
    EXPECT_NE(status.message().find("KEY=VALUE"), std::string::npos) << status.message();
  }
}

TEST(Labels, HaveEachKeyOnceAndAreNotTooMany) {
  const Status twice = check_labels({"zone=a", "zone=b"});
  EXPECT_EQ(twice.code(), Code::invalid_argument);
  EXPECT_EQ(twice.message(), "label zone is given twice");

  Labels many;
  for (std::size_t i = 0; i < kMaxLabels; ++i) many.push_back("k" + std::to_string(i) + "=");
  EXPECT_TRUE(check_labels(many).ok());
  many.push_back("one=more");
  EXPECT_EQ(check_labels(many).message(), "33 labels; there may be at most 32");
}

TEST(Labels, AreRequiredWithAValueOrWithAny) {
  EXPECT_TRUE(check_required_labels({"zone", "gpu=H100", "spot="}).ok());
  EXPECT_FALSE(check_required_labels({""}).ok());
  EXPECT_FALSE(check_required_labels({"zone", "zone=eu"}).ok());

  const Labels labels{"zone=eu", "spot="};
  EXPECT_TRUE(require_labels({"zone", "spot="}, labels).ok());
  EXPECT_TRUE(require_labels({"zone=eu", "spot"}, labels).ok());
  EXPECT_TRUE(require_labels({}, {}).ok());
  const Status refused = require_labels({"zone=us", "spot", "gpu"}, labels);
  EXPECT_EQ(refused.code(), Code::permission_denied);
  EXPECT_EQ(refused.message(),
            "the job requires the labels zone=us, gpu, which the host does not have");
  EXPECT_FALSE(require_labels({"zo"}, labels).ok());
}

}  // namespace
}  // namespace hvd
