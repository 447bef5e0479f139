#include "cmd/hvdrun/environment.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace hvd::cli {
namespace {

using Entries = std::vector<std::string>;

bool has(const Entries& entries, const std::string& entry) {
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

Entries given(const Entries& own, const EnvironmentWords& words = {}, const Values& values = {}) {
  auto result = worker_environment(own, words, values);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : Entries{};
}

TEST(WorkerEnvironment, IsTheWholeEnvironmentButForAFew) {
  EXPECT_EQ(given({"PATH=/bin", "EMPTY=", "A=b=c", "OLDPWD=/x", "BASH_FUNC_f%%=() { :; }",
                   "_HOROVOD_SECRET_KEY=s", "HVD_AGENT=/a"}),
            (Entries{"A=b=c", "EMPTY=", "PATH=/bin", "PYTHONUNBUFFERED=1"}));
}

TEST(WorkerEnvironment, ExcludesByPatternAndIncludesAgain) {
  const Entries own{"AWS_ID=1", "AWS_REGION=r", "HOME=/h", "MY_SECRET_KEY=k"};
  EXPECT_EQ(given(own, {.set = {}, .excluded = {"AWS_*"}, .included = {"AWS_REGION"}}),
            (Entries{"AWS_REGION=r", "HOME=/h", "PYTHONUNBUFFERED=1"}));
  EXPECT_EQ(given(own, {.set = {}, .excluded = {"*"}, .included = {"MY_*"}}),
            (Entries{"MY_SECRET_KEY=k", "PYTHONUNBUFFERED=1"}));
}

TEST(WorkerEnvironment, EnvAddsAndReplaces) {
  const Entries own{"A=1", "OLDPWD=/x"};
  EXPECT_EQ(given(own, {.set = {"A=2=3", "B=", "OLDPWD"}, .excluded = {}, .included = {}}),
            (Entries{"A=2=3", "B=", "OLDPWD=/x", "PYTHONUNBUFFERED=1"}));
  EXPECT_TRUE(has(given({"PYTHONUNBUFFERED=0"}), "PYTHONUNBUFFERED=0"));
}

TEST(WorkerEnvironment, ANameThatIsNotSetIsAnErrorThatSaysWhatToDo) {
  const auto result = worker_environment({}, {.set = {"GONE"}, .excluded = {}, .included = {}}, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(),
            "--env GONE: is not set in hvdrun's own environment; give it a value: --env GONE=...");
  EXPECT_FALSE(
      worker_environment({}, {.set = {"=value"}, .excluded = {}, .included = {}}, {}).ok());
}

TEST(WorkerEnvironment, AKnobIsGivenByBothItsNames) {
  const auto entries = given({"HOROVOD_CYCLE_TIME=9", "HVD_CYCLE_TIME=8"}, {},
                             {{"cycle-time-ms", {"2", "--cycle-time-ms"}}, {"grace", {"3", ""}}});
  EXPECT_EQ(entries, (Entries{"HOROVOD_CYCLE_TIME=2", "HVD_CYCLE_TIME=2", "PYTHONUNBUFFERED=1"}));
}

}  // namespace
}  // namespace hvd::cli
