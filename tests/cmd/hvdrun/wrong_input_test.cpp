// Mistakes of a person, each against the real hvdrun: a clear error on stderr, an exit code
// that is not zero, nothing on stdout, and nothing started.
#include "tests/cmd/hvdrun/wrong_input.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

std::string fill(std::string text, const std::string& directory) {
  for (auto at = text.find("{dir}"); at != std::string::npos; at = text.find("{dir}")) {
    text.replace(at, 5, directory);
  }
  return text;
}

void make_executable(const fs::path& path) { fs::permissions(path, fs::perms{0755}); }

std::vector<WrongInput> all_rows() {
  auto rows = wrong_settings();
  for (auto& row : wrong_hosts_and_programs()) rows.push_back(std::move(row));
  return rows;
}

class WrongInputs : public testing::TestWithParam<WrongInput> {};

TEST_P(WrongInputs, EndWithAClearErrorAndAnExitCode) {
  const WrongInput& row = GetParam();
  const TemporaryDirectory directory;
  const std::string here = directory.path().string();
  make_executable(directory.file("p", fill(kScript, here)));
  for (const auto& [name, content] : row.files) {
    const auto path = directory.file(name, fill(content, here));
    if (content == kScript) make_executable(path);
    if (name == "t") fs::permissions(path, fs::perms{0600});
  }
  ProcessOptions options;
  options.working_directory = directory.path();
  options.environment = row.variables;
  options.close_stdin = row.close_stdin;
  Arguments command{binary("hvdrun")};
  for (const auto& word : row.arguments) command.push_back(fill(word, here));
  const ExitStatus status = run(command, options);
  EXPECT_EQ(status.code, row.code) << status.err;
  EXPECT_EQ(status.signal, 0);
  EXPECT_EQ(status.out, "");
  for (const auto& arguments : row.expected) {
    EXPECT_NE(status.err.find(fill(arguments, here)), std::string::npos)
        << "no '" << fill(arguments, here) << "' in:\n"
        << status.err;
  }
  EXPECT_TRUE(status.err.starts_with("hvdrun")) << status.err;
  EXPECT_FALSE(fs::exists(directory.path() / "started")) << "a worker was started";
}

INSTANTIATE_TEST_SUITE_P(Table, WrongInputs, testing::ValuesIn(all_rows()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(WrongInput, APortThatIsTakenIsNamed) {
  auto taken = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(taken.ok());
  const auto address = local_address(taken->get());
  ASSERT_TRUE(address.ok());
  const TemporaryDirectory directory;
  const auto status = run({binary("hvdrun"), "rendezvous", "--bind", address->to_string(),
                           "--token-file", (directory.path() / "token").string()});
  EXPECT_EQ(status.code, 1) << status.err;
  EXPECT_NE(status.err.find(address->to_string()), std::string::npos) << status.err;
  EXPECT_NE(status.err.find("in use"), std::string::npos) << status.err;
}

// Its controller may hang. Nothing of the question is left.
TEST(WrongInput, ASlurmThatDoesNotAnswerEndsTheWait) {
  const TemporaryDirectory directory;
  make_executable(directory.file("scontrol", "#!/bin/sh\nexec sleep 1000000\n"));
  ProcessOptions options;
  options.environment = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_JOB_NODELIST", "sn1"},
                         {"PATH", directory.path().string() + ":/usr/bin:/bin"}};
  const auto status =
      run({binary("hvdrun"), "--hosts-from", "slurm", "--start-timeout", "1", "./p"}, options);
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("scontrol --details show job 7 did not end within 1 s and was killed"),
            std::string::npos)
      << status.err;
}

TEST(WrongInput, ATokenFileThatOthersMayReadIsRefused) {
  const TemporaryDirectory directory;
  const auto token = directory.file("token", std::string(64, 'a') + "\n");
  fs::permissions(token, fs::perms{0644});
  const auto status = run(
      {binary("hvdrun"), "rendezvous", "--bind", "127.0.0.1:0", "--token-file", token.string()});
  EXPECT_EQ(status.code, 1) << status.err;
  EXPECT_NE(status.err.find(token.string()), std::string::npos) << status.err;
  EXPECT_EQ(status.err.find("aaaa"), std::string::npos) << "the token itself was shown";
}

// Files that may not be read or written, as an ordinary user.
class AsNobody : public testing::Test {
 protected:
  void SetUp() override {
    fs::permissions(directory_.path(), fs::perms{0755});
    // The build's folder may be unreadable for this user.
    for (const char* const name : {"hvdrun", "hvd-agent"}) {
      fs::copy_file(binary(name), directory_.path() / name);
    }
    if (::geteuid() == 0) {
      prefix_ = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    }
  }

  ExitStatus run_as_nobody(const Arguments& arguments) {
    Arguments command = prefix_;
    command.push_back(directory_.path() / "hvdrun");
    command.insert(command.end(), arguments.begin(), arguments.end());
    ProcessOptions options;
    options.working_directory = directory_.path();
    return run(command, options);
  }

  TemporaryDirectory directory_;
  Arguments prefix_;
};

TEST_F(AsNobody, FilesThatMayNotBeReadAreNamed) {
  fs::permissions(directory_.file("h", "a slots=1\n"), fs::perms::none);
  const auto hostfile = run_as_nobody({"-hostfile", "h", "true"});
  EXPECT_EQ(hostfile.code, 1);
  EXPECT_NE(hostfile.err.find("hostfile h: Permission denied"), std::string::npos) << hostfile.err;
  fs::permissions(directory_.file("c", ""), fs::perms::none);
  const auto config = run_as_nobody({"--config-file", "c", "true"});
  EXPECT_EQ(config.code, 1);
  EXPECT_NE(config.err.find("config file c: Permission denied"), std::string::npos) << config.err;
}

TEST_F(AsNobody, AnOutputFolderThatMayNotBeWrittenIsNamed) {
  fs::create_directory(directory_.path() / "logs");
  fs::permissions(directory_.path() / "logs", fs::perms{0555});
  const auto status = run_as_nobody({"--output-filename", "logs", "true"});
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.err.find("logs/rank.0/stdout: Permission denied"), std::string::npos)
      << status.err;
}

}  // namespace
}  // namespace hvd::test
