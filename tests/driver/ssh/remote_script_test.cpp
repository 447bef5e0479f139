// The command that runs on a host, here under the shells of this machine; the test takes the place
// of SSH.
#include "driver/ssh/remote_script.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

#include "base/security/crypto.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::driver::ssh {
namespace {

RemoteScript script_for(const std::string& agent) {
  utsname name{};
  ::uname(&name);
  const Digest digest = sha256(agent);
  return {.nonce = "0123abcd",
          .build_id = "1.0-test",
          .hash = to_hex(as_view(digest)),
          .size = agent.size(),
          .machine = static_cast<const char*>(name.machine)};
}

// A program that can be "the agent".
const std::string kAgent =
    "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho agent runs in $(umask), heard $(cat).\n";

class RemoteScriptUnderShells : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (::access(GetParam().c_str(), X_OK) != 0) GTEST_SKIP() << GetParam() << " is not here";
  }
  // The output of a login shell for the command with these bytes as standard input.
  test::ExitStatus say(const RemoteScript& script, const std::string& input) {
    const auto in = directory_.file("input", input);
    const auto command = directory_.file("command", remote_command(script));
    return test::run(
        {"sh", "-c", "umask 022; exec \"$1\" -c \"$(cat \"$2\")\" <\"$3\"", "sh", GetParam(),
         command.string(), in.string()},
        {.environment = {{"HOME", directory_.path().string()}, {"XDG_CACHE_HOME", ""}}});
  }
  std::filesystem::path cache() const { return directory_.path() / ".cache/hvd/agents"; }
  test::TemporaryDirectory directory_;
};

TEST_P(RemoteScriptUnderShells, ReceivesTheAgentAndBecomesIt) {
  const auto first = say(script_for(kAgent), first_line("") + kAgent);
  EXPECT_EQ(first.out, "0123abcd:need:\n0123abcd:ok:\nagent runs in 0022, heard .\n") << first.err;
  const auto second = say(script_for(kAgent), first_line("") + "words");
  EXPECT_EQ(second.out, "0123abcd:ok:\nagent runs in 0022, heard words.\n") << second.err;
}

TEST_P(RemoteScriptUnderShells, RefusesAnAgentThatArrivesShortOrChanged) {
  const auto cut = say(script_for(kAgent), first_line("") + kAgent.substr(0, 20));
  EXPECT_EQ(cut.out, cat("0123abcd:need:\n0123abcd:no:size 20 of ", kAgent.size(), " bytes\n"));
  std::string changed = kAgent;
  changed[40] = 'X';
  const auto wrong = say(script_for(kAgent), first_line("") + changed);
  EXPECT_TRUE(wrong.out.starts_with("0123abcd:need:\n0123abcd:no:hash ")) << wrong.out;
  EXPECT_TRUE(std::filesystem::is_empty(cache()));
}

TEST_P(RemoteScriptUnderShells, TakesAnyNameOfADirectory) {
  const auto odd = directory_.path() / "it's \"odd\" $HOME `x` \\n! *";
  const auto status = say(script_for(kAgent), first_line(odd.string()) + kAgent);
  EXPECT_TRUE(status.out.ends_with("heard .\n")) << status.out << status.err;
  EXPECT_TRUE(std::filesystem::exists(odd / "agents/hvd-agent-1.0-test"));
}

TEST_P(RemoteScriptUnderShells, SaysWhatIsWrongWithTheCache) {
  const auto file = directory_.file("file", "");
  const auto status = say(script_for(kAgent), first_line(file.string()) + kAgent);
  EXPECT_TRUE(status.out.starts_with("0123abcd:no:directory ")) << status.out;
}

TEST_P(RemoteScriptUnderShells, SaysThatTheAgentCannotRun) {
  const std::string broken = "#!/no/such/interpreter\n";
  const auto status = say(script_for(broken), first_line("") + broken);
  EXPECT_TRUE(status.out.starts_with("0123abcd:need:\n0123abcd:no:execute ")) << status.out;
}

INSTANTIATE_TEST_SUITE_P(Shells, RemoteScriptUnderShells,
                         testing::Values("/bin/sh", "/bin/bash", "/bin/zsh", "/bin/tcsh",
                                         "/usr/bin/fish"),
                         [](const auto& tested) {
                           return tested.param.substr(tested.param.rfind('/') + 1);
                         });

TEST(RemoteScript, HoldsNoCharacterThatShellsDisagreeOn) {
  const std::string command = remote_command(script_for("x"));
  const auto first = command.find('\'');
  const auto last = command.rfind('\'');
  const std::string inside = command.substr(first + 1, last - first - 1);
  EXPECT_EQ(inside.find_first_of("'\\!\n"), std::string::npos);
  EXPECT_LT(command.size(), 4096U);
}

}  // namespace
}  // namespace hvd::driver::ssh
