// Real shells complete with the scripts that hvdrun prints, and troff reads its man page.
#include <algorithm>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/support/process.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

using Texts = std::vector<std::string>;

class CompletionTest : public testing::Test {
 protected:
  void print(const Texts& flags, const std::string& file) const {
    Texts command{binary("hvdrun")};
    command.insert(command.end(), flags.begin(), flags.end());
    const ExitStatus printed = run(command);
    ASSERT_EQ(printed.code, 0) << printed.err;
    directory_.file(file, printed.out);
  }

  // The output of a shell that has loaded the script, line by line. The files `hosts.txt` and
  // `logs/` are in its directory.
  Texts lines_of(const std::string& shell, const std::string& code) const {
    directory_.file("hosts.txt", "");
    std::filesystem::create_directory(directory_.path() / "logs");
    ProcessOptions options;
    options.working_directory = directory_.path();
    options.environment = {{"HOME", directory_.path()}};
    const ExitStatus status = run({shell, "-c", code}, options);
    EXPECT_EQ(status.code, 0) << status.err;
    EXPECT_EQ(status.err, "");
    Texts lines = split(status.out, '\n');
    std::erase(lines, "");
    return lines;
  }

  // The completions of the last of these words, as bash splits them.
  Texts bash(const Texts& words) const {
    std::string quoted;
    for (const auto& word : words) quoted += " " + shell_quote(word);
    return lines_of("bash", cat("source ./script; COMP_WORDS=(", quoted, "); COMP_CWORD=",
                                words.size() - 1, "; _hvdrun; printf '%s\\n' \"${COMPREPLY[@]}\""));
  }

  Texts fish(const std::string& line) const {
    Texts found = lines_of("fish", cat("source ./script; complete -C ", shell_quote(line)));
    for (auto& entry : found) entry = entry.substr(0, entry.find('\t'));
    return found;
  }

  TemporaryDirectory directory_;
};

TEST_F(CompletionTest, BashCompletesFlagsAndTheirValues) {
  print({"--print-completion", "bash"}, "script");
  EXPECT_EQ(lines_of("bash", "source ./script; complete -p hvdrun"),
            Texts{"complete -F _hvdrun hvdrun"});

  EXPECT_EQ(bash({"hvdrun", "--num"}), (Texts{"--num-proc", "--num-nccl-streams"}));
  EXPECT_EQ(bash({"hvdrun", "--transport", ""}), (Texts{"hvd", "gloo-tcp"}));
  EXPECT_EQ(bash({"hvdrun", "--transport", "=", "gl"}), Texts{"gloo-tcp"});
  EXPECT_EQ(bash({"hvdrun", "--transport", "="}), (Texts{"hvd", "gloo-tcp"}));
  EXPECT_EQ(bash({"hvdrun", "--log-level", "D"}), Texts{"DEBUG"});
  EXPECT_EQ(bash({"hvdrun", "-hostfile", ""}), (Texts{"hosts.txt", "logs", "script"}));
  EXPECT_EQ(bash({"hvdrun", "-wd", ""}), Texts{"logs"});
  EXPECT_EQ(bash({"hvdrun", "-np", ""}), Texts());
}

TEST_F(CompletionTest, BashFindsTheEndOfTheOptions) {
  print({"--print-completion", "bash"}, "script");
  EXPECT_EQ(bash({"hvdrun", "-np", "4", "-H", "a", ":", "4,b", ":", "4", "--transp"}),
            Texts{"--transport"});
  EXPECT_EQ(bash({"hvdrun", "--blacklist-cooldown-range", "1", "9", "--tag-o"}),
            Texts{"--tag-output"});
  EXPECT_EQ(bash({"hvdrun", "--tcp", "ho"}).back(), "hosts.txt");
  EXPECT_EQ(bash({"hvdrun", "--status-page", "ho"}).back(), "hosts.txt");
  // These are the program's own arguments.
  EXPECT_EQ(bash({"hvdrun", "-np", "2", "./train", "--num"}), Texts());
  EXPECT_EQ(bash({"hvdrun", "-np", "2", "./train", "ho"}), Texts{"hosts.txt"});
  EXPECT_EQ(bash({"hvdrun", "--", "./train", "ho"}), Texts{"hosts.txt"});
}

TEST_F(CompletionTest, BashKnowsTheSubcommands) {
  print({"--print-completion", "bash"}, "script");
  EXPECT_EQ(bash({"hvdrun", "rendezv"}), Texts{"rendezvous"});
  EXPECT_EQ(bash({"hvdrun", "agent", "--j"}), (Texts{"--join", "--join-timeout"}));
  EXPECT_EQ(bash({"hvdrun", "rendezvous", "--token-file", "ho"}), Texts{"hosts.txt"});
  EXPECT_EQ(bash({"hvdrun", "statu"}), Texts{"status"});
  EXPECT_EQ(bash({"hvdrun", "status", "--j"}), Texts{"--json"});
  EXPECT_EQ(bash({"hvdrun", "-np", "2", "rendezv"}), Texts());
}

TEST_F(CompletionTest, FishCompletes) {
  print({"--print-completion", "fish"}, "script");
  EXPECT_EQ(fish("hvdrun --num"), (Texts{"--num-nccl-streams", "--num-proc"}));
  EXPECT_EQ(fish("hvdrun --transport "), (Texts{"gloo-tcp", "hvd"}));
  EXPECT_EQ(fish("hvdrun --blacklist-cooldown-range 1 9 --tag-o"), Texts{"--tag-output"});
  EXPECT_EQ(fish("hvdrun --status-page --tag-o"), Texts{"--tag-output"});
  EXPECT_EQ(fish("hvdrun ./train --num"), Texts());
  EXPECT_EQ(fish("hvdrun rendezvo"), Texts{"rendezvous"});
  EXPECT_EQ(fish("hvdrun status --js"), Texts{"--json"});
  EXPECT_EQ(fish("hvdrun agent --jo"), (Texts{"--join", "--join-timeout"}));
}

// zsh completes only for a terminal, so one shell types to another through zpty.
TEST_F(CompletionTest, ZshCompletes) {
  print({"--print-completion", "zsh"}, "_hvdrun");
  // Ctrl-E prints the line as it is after completion and empties it.
  directory_.file("drive", R"(zmodload zsh/zpty
zpty shell 'TERM=dumb zsh -f -i'
zpty -w shell 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
zpty -w shell 'show() { print -r -- "LI""NE[$BUFFER]"; BUFFER=; }; zle -N show; bindkey "^E" show'
for line in 'hvdrun --transpo' 'hvdrun --transport gl' 'hvdrun agent --token-fi'; do
  zpty -w -n shell "$line"$'\t\C-e'
  zpty -r -m shell text '*LINE\[*\]*' || exit 1
  print -r -- "LINE[${text##*LINE\[}"
done
zpty -d shell
)");
  ProcessOptions options;
  options.working_directory = directory_.path();
  options.environment = {{"HOME", directory_.path()}};
  ASSERT_EQ(run({"zsh", "-n", directory_.path() / "_hvdrun"}, options).code, 0);
  const ExitStatus status = run({"zsh", "-f", directory_.path() / "drive"}, options);
  EXPECT_EQ(status.code, 0) << status.out << status.err;
  for (const char* const completed : {"LINE[hvdrun --transport", "LINE[hvdrun --transport gloo-tcp",
                                      "LINE[hvdrun agent --token-file"}) {
    EXPECT_TRUE(contains(status.out, completed)) << completed << " is not in:\n" << status.out;
  }
}

TEST_F(CompletionTest, TheManPageHasNoErrors) {
  print({"--print-man"}, "hvdrun.1");
  const ExitStatus shown = run(
      {"groff", "-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u", directory_.path() / "hvdrun.1"});
  EXPECT_EQ(shown.code, 0);
  EXPECT_EQ(shown.err, "");
  for (const char* const text : {"NAME", "SYNOPSIS", "EXIT", "--num-proc", "slot|host"}) {
    EXPECT_TRUE(contains(shown.out, text)) << text;
  }
}

}  // namespace
}  // namespace hvd::test
