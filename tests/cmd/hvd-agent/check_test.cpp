// Before anything is started: would a worker start here? The answer is what the launch itself would
// say.
#include <cerrno>
#include <filesystem>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/cmd/hvd-agent/agent_under_test.h"

namespace hvd::test {
namespace {

using agent_link::Check;
using agent_link::Checked;

Checked answer(AgentUnderTest& agent, const Check& check) {
  agent.checked.clear();
  agent.send(check.encode());
  if (!agent.until([&] { return !agent.checked.empty(); })) return {};
  return agent.checked.front();
}

void make_executable(const std::filesystem::path& path) {
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

TEST(AgentCheck, FindsWhatCanBeStarted) {
  AgentUnderTest agent;
  const std::string here = agent.directory().path();
  make_executable(agent.directory().file("script", "#!/bin/sh\n"));
  std::filesystem::create_directory(agent.directory().path() / "sub");
  make_executable(agent.directory().file("sub/deep", "#!/bin/sh\n"));
  const std::vector<Check> cases = {
      {here, "./script", ""},       {here, "sub/deep", ""},        {here + "/sub", "../script", ""},
      {here, here + "/script", ""}, {here, "sh", "/usr/bin:/bin"}, {here, "sh", ""},
      {here, "script", here},       {here, "script", "/bin:"},     {here, "deep", "/no/such:sub"},
      {"", "/bin/sh", ""},
  };
  for (const auto& check : cases) {
    const Checked checked = answer(agent, check);
    EXPECT_EQ(checked.failed, Checked::Step::nothing_wrong) << checked.message;
    EXPECT_EQ(checked.message, "");
    EXPECT_EQ(checked.error_number, 0);
  }
}

TEST(AgentCheck, SaysThatTheWorkingDirectoryCannotBeEntered) {
  AgentUnderTest agent;
  const auto plain = agent.directory().file("plain", "");
  Checked checked = answer(agent, {"/no/such/directory", "sh", "/bin"});
  EXPECT_EQ(checked.failed, Checked::Step::change_directory);
  EXPECT_EQ(checked.error_number, ENOENT);
  EXPECT_NE(checked.message.find("working directory /no/such/directory: No such file"),
            std::string::npos)
      << checked.message;
  checked = answer(agent, {plain, "sh", "/bin"});
  EXPECT_EQ(checked.failed, Checked::Step::change_directory);
  EXPECT_EQ(checked.error_number, ENOTDIR);
}

TEST(AgentCheck, SaysWhatTheLaunchWouldSay) {
  AgentUnderTest agent;
  const auto& directory = agent.directory();
  const std::string here = directory.path();
  directory.file("plain", "echo no\n");
  make_executable(directory.file("beside", "#!/bin/sh\n"));
  std::filesystem::create_directory(directory.path() / "folder");
  std::filesystem::create_directory(directory.path() / "bin");
  directory.file("bin/not-executable", "");
  std::filesystem::create_directory(directory.path() / "bin/a-folder");
  const std::string path = cat("/usr/bin:", here, "/bin");
  agent_link::Incarnation incarnation = 0;
  for (const std::string program :
       {"no-such-program", "beside", "./missing", "./plain", "./folder", "./plain/x", "/no/such",
        "not-executable", "a-folder", "./name with blanks"}) {
    auto launch = agent.launch_of(++incarnation, {program});
    launch.environment[0] = cat("PATH=", path);
    agent.send(launch.encode());
    ASSERT_TRUE(agent.until_over(incarnation));
    ASSERT_TRUE(agent.of(incarnation).failed.has_value()) << program;
    const Checked checked = answer(agent, {here, program, path});
    EXPECT_EQ(checked.failed, Checked::Step::find_program) << program;
    EXPECT_EQ(checked.error_number, agent.of(incarnation).failed->error_number) << program;
    EXPECT_EQ(cat("worker here#", incarnation, ": ", checked.message),
              agent.of(incarnation).failed->message);
  }
}

TEST(AgentCheck, RefusesWhatIsNoName) {
  AgentUnderTest agent;
  for (const auto& check : {Check{"/", "", "/bin"}, Check{"/", std::string("s\0h", 3), "/bin"},
                            Check{std::string("/\0", 2), "sh", "/bin"}}) {
    const Checked checked = answer(agent, check);
    EXPECT_EQ(checked.failed, Checked::Step::find_program);
    EXPECT_EQ(checked.error_number, EINVAL) << checked.message;
  }
}

TEST(AgentCheck, AnswersInTheOrderOfTheQuestions) {
  AgentUnderTest agent;
  std::string questions;
  constexpr std::size_t kCount = 40;
  for (std::size_t i = 0; i < kCount; ++i) questions += Check{"/", cat("./no-", i), ""}.encode();
  agent.send(questions + agent_link::Heartbeat{1}.encode());
  ASSERT_TRUE(agent.until([&] { return agent.checked.size() == kCount; }));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_NE(agent.checked[i].message.find(cat("./no-", i, " ")), std::string::npos)
        << agent.checked[i].message;
  }
  EXPECT_EQ(agent.acks.size(), 1U);
}

TEST(AgentCheck, StartsNothingAndLeavesTheAgentWhereItWas) {
  AgentUnderTest agent;
  const auto touched = agent.directory().path() / "touched";
  const auto program = agent.directory().file("program", cat("#!/bin/sh\n>", touched.string()));
  make_executable(program);
  const auto before = std::filesystem::read_symlink(cat("/proc/", agent.pid(), "/cwd"));
  EXPECT_EQ(answer(agent, {agent.directory().path(), "./program", ""}).failed,
            Checked::Step::nothing_wrong);
  EXPECT_EQ(std::filesystem::read_symlink(cat("/proc/", agent.pid(), "/cwd")), before);
  EXPECT_FALSE(std::filesystem::exists(touched));
  EXPECT_TRUE(eventually([&] {
    return processes_with_variable(AgentUnderTest::kMark, agent.mark()) ==
           std::vector<pid_t>{agent.pid()};
  }));
}

}  // namespace
}  // namespace hvd::test
