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
  return result.ok() ? result->entries : Entries{};
}

Entries from_host(const Entries& own, const EnvironmentWords& words = {}) {
  auto result = worker_environment(own, words, {});
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->host_variables : Entries{};
}

TEST(WorkerEnvironment, IsTheWholeEnvironmentButForAFew) {
  EXPECT_EQ(given({"PATH=/bin", "EMPTY=", "A=b=c", "OLDPWD=/x", "BASH_FUNC_f%%=() { :; }",
                   "_HOROVOD_SECRET_KEY=s", "HVD_AGENT=/a"}),
            (Entries{"A=b=c", "EMPTY=", "PATH=/bin", "PYTHONUNBUFFERED=1"}));
}

TEST(WorkerEnvironment, ExcludesByPatternAndIncludesAgain) {
  const Entries own{"AWS_ID=1", "AWS_REGION=r", "LANG=C", "MY_SECRET_KEY=k"};
  EXPECT_EQ(given(own, {.set = {}, .excluded = {"AWS_*"}, .included = {"AWS_REGION"}}),
            (Entries{"AWS_REGION=r", "LANG=C", "PYTHONUNBUFFERED=1"}));
  EXPECT_EQ(given(own, {.set = {}, .excluded = {"*"}, .included = {"MY_*"}}),
            (Entries{"MY_SECRET_KEY=k", "PYTHONUNBUFFERED=1"}));
}

TEST(WorkerEnvironment, EnvAddsAndReplaces) {
  const Entries own{"A=1", "OLDPWD=/x"};
  EXPECT_EQ(given(own, {.set = {"A=2=3", "B=", "OLDPWD"}, .excluded = {}, .included = {}}),
            (Entries{"A=2=3", "B=", "OLDPWD=/x", "PYTHONUNBUFFERED=1"}));
  EXPECT_TRUE(has(given({"PYTHONUNBUFFERED=0"}), "PYTHONUNBUFFERED=0"));
}

TEST(WorkerEnvironment, WhatIsEachHostsOwnBusinessStaysThere) {
  const Entries own{"HOME=/home/me",     "USER=me",         "SSH_AUTH_SOCK=/tmp/s",
                    "SSH_NEW=1",         "XDG_SOMETHING=x", "PATH=/bin",
                    "DISPLAY=:0",        "TERM=xterm",      "CUDA_VISIBLE_DEVICES=0",
                    "LD_LIBRARY_PATH=/l"};
  EXPECT_EQ(given(own),
            (Entries{"LD_LIBRARY_PATH=/l", "PATH=/bin", "PYTHONUNBUFFERED=1", "TERM=xterm"}));
  const auto names = from_host(own);
  for (const char* const name : {"HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "SSH_NEW",
                                 "XDG_SOMETHING", "DISPLAY", "CUDA_VISIBLE_DEVICES"}) {
    EXPECT_TRUE(has(names, name)) << name;
  }
  EXPECT_FALSE(has(names, "PATH"));
  EXPECT_TRUE(has(from_host({}), "HOME")) << "a host may have what is not set here";
}

TEST(WorkerEnvironment, WhatIsAskedForByNameIsCarried) {
  const EnvironmentWords words{.set = {"HOME", "TMPDIR=/fast"}, .excluded = {}, .included = {}};
  EXPECT_EQ(given({"HOME=/h", "USER=me"}, words),
            (Entries{"HOME=/h", "PYTHONUNBUFFERED=1", "TMPDIR=/fast"}));
  const auto names = from_host({"HOME=/h", "USER=me"}, words);
  EXPECT_FALSE(has(names, "HOME"));
  EXPECT_FALSE(has(names, "TMPDIR"));
  EXPECT_TRUE(has(names, "USER"));
}

TEST(WorkerEnvironment, WhatIsExcludedDoesNotComeFromTheHostEither) {
  const auto names = from_host({}, {.set = {}, .excluded = {"SSH_*"}, .included = {"SSH_TTY"}});
  EXPECT_FALSE(has(names, "SSH_AUTH_SOCK"));
  EXPECT_TRUE(has(names, "SSH_TTY"));
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
