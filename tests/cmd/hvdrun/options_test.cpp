#include "cmd/hvdrun/options.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "base/text.h"

namespace hvd::cli {
namespace {

using Arguments = std::vector<std::string>;

CommandLine parsed(const Arguments& arguments) {
  auto line = parse_command_line(arguments);
  EXPECT_TRUE(line.ok()) << line.status().message();
  return line.ok() ? *line : CommandLine{};
}

std::string value(const CommandLine& line, std::string_view flag) {
  const auto found = line.values.find(flag);
  return found == line.values.end() ? "(none)" : found->second.text;
}

TEST(Options, EverythingFromTheFirstArgumentThatIsNoOptionIsTheCommand) {
  const auto line = parsed({"-np", "4", "-H", "a:2,b:2", "./train", "-np", "7", "--verbose", "--"});
  EXPECT_EQ(line.action, Action::run);
  EXPECT_EQ(value(line, "num-proc"), "4");
  EXPECT_EQ(value(line, "hosts"), "a:2,b:2");
  EXPECT_EQ(value(line, "verbose"), "(none)");
  EXPECT_EQ(line.command, (Arguments{"./train", "-np", "7", "--verbose", "--"}));
}

TEST(Options, TwoDashesEndTheOptions) {
  const auto line = parsed({"-np", "1", "--", "-odd-program", "-x"});
  EXPECT_EQ(line.command, (Arguments{"-odd-program", "-x"}));
}

TEST(Options, HorovodsFormsWork) {
  const std::vector<std::pair<Arguments, std::pair<const char*, const char*>>> rows = {
      {{"-np", "3"}, {"num-proc", "3"}},
      {{"-np=3"}, {"num-proc", "3"}},
      {{"--num-proc", "3"}, {"num-proc", "3"}},
      {{"--num-proc=3"}, {"num-proc", "3"}},
      {{"-H", "a:1"}, {"hosts", "a:1"}},
      {{"-Ha:1"}, {"hosts", "a:1"}},
      {{"-H=a:1"}, {"hosts", "a:1"}},
      {{"--hosts", "a:1"}, {"hosts", "a:1"}},
      {{"-hostfile", "f"}, {"hostfile", "f"}},
      {{"--hostfile", "f"}, {"hostfile", "f"}},
      {{"-prefix-timestamp"}, {"prefix-output-with-timestamp", "1"}},
      {{"--prefix-output-with-timestamp"}, {"prefix-output-with-timestamp", "1"}},
      {{"--no-oversubscribe"}, {"oversubscribe", "0"}},
      {{"--fusion-threshold-mb", "32"}, {"fusion-threshold-mb", "33554432"}},
      {{"--hierarchical-allreduce"}, {"hierarchical-allreduce", "1"}},
      {{"--no-hierarchical-allreduce"}, {"hierarchical-allreduce", "0"}},
      {{"--no-stall-check"}, {"stall-check", "1"}},  // as the environment spells it
      {{"--stall-check"}, {"stall-check", "0"}},
      {{"--log-level", "DEBUG"}, {"log-level", "debug"}},
      {{"--log-with-timestamp"}, {"log-with-timestamp", "0"}},
      {{"--log-without-timestamp"}, {"log-with-timestamp", "1"}},
      {{"--log-hide-timestamp"}, {"log-with-timestamp", "1"}},
      {{"--no-log-hide-timestamp"}, {"log-with-timestamp", "0"}},
      {{"--tcp"}, {"tcp", "1"}},
      {{"--thread-affinity", "0,2"}, {"thread-affinity", "0,2"}},
      {{"--output-filename", "-odd-name"}, {"output-filename", "-odd-name"}},
  };
  for (auto [arguments, expected] : rows) {
    arguments.emplace_back("./train");
    const auto line = parsed(arguments);
    EXPECT_EQ(value(line, expected.first), expected.second) << arguments[0];
    EXPECT_EQ(line.command, Arguments{"./train"}) << arguments[0];
  }
}

TEST(Options, EveryKnobIsAFlag) {
  const std::map<KnobType, std::string> texts{
      {KnobType::integer, "1"},       {KnobType::real, "1"},         {KnobType::text, "x"},
      {KnobType::log_level, "ERROR"}, {KnobType::integer_list, "1"}, {KnobType::port_range, "1-2"}};
  for (const Knob& knob : knobs()) {
    const std::string flag(knob.flag);
    if (knob.type != KnobType::boolean) {
      const std::string text =
          knob.choices.empty() ? texts.at(knob.type) : std::string(knob.default_text);
      EXPECT_NE(value(parsed({"--" + flag, text, "p"}), flag), "(none)") << flag;
      continue;
    }
    EXPECT_EQ(value(parsed({"--" + flag, "p"}), flag), knob.inverted ? "0" : "1");
    EXPECT_EQ(value(parsed({"--no-" + flag, "p"}), flag), knob.inverted ? "1" : "0");
  }
}

TEST(Options, TheLastOfARepeatedFlagWins) {
  EXPECT_EQ(value(parsed({"-np", "2", "--num-proc", "3", "p"}), "num-proc"), "3");
  EXPECT_EQ(value(parsed({"--autotune", "--no-autotune", "p"}), "autotune"), "0");
  EXPECT_EQ(value(parsed({"--no-autotune", "--autotune", "p"}), "autotune"), "1");
}

TEST(Options, EnvironmentArgumentsAddUp) {
  const auto line = parsed({"--env", "A=1", "--env", "B", "--env-exclude", "X*", "--env-exclude=Y",
                            "--env-include", "XA", "p"});
  EXPECT_EQ(line.environment.set, (Arguments{"A=1", "B"}));
  EXPECT_EQ(line.environment.excluded, (Arguments{"X*", "Y"}));
  EXPECT_EQ(line.environment.included, Arguments{"XA"});
}

TEST(Options, ActionsNeedNoProgram) {
  EXPECT_EQ(parsed({"-cb"}).action, Action::check_build);
  EXPECT_EQ(parsed({"--check-build"}).action, Action::check_build);
  EXPECT_EQ(parsed({"-v"}).action, Action::version);
  EXPECT_EQ(parsed({"--version"}).action, Action::version);
  EXPECT_EQ(parsed({"-h"}).action, Action::help);
  EXPECT_EQ(parsed({"--print-env"}).action, Action::print_env);
  EXPECT_EQ(parsed({"-np", "2", "--dry-run", "p"}).action, Action::dry_run);
  EXPECT_NE(parsed({"--help"}).help.find("-np, --num-proc N"), std::string::npos);
}

TEST(Options, TheRendezvousHasOptionsOfItsOwn) {
  const auto line = parsed({"rendezvous", "--bind", "127.0.0.1:0", "--token-file=t",
                            "--legacy-clients", "--port-range", "7000-7009"});
  EXPECT_EQ(line.action, Action::rendezvous);
  EXPECT_EQ(line.rendezvous.bind, "127.0.0.1:0");
  EXPECT_EQ(line.rendezvous.token_file, "t");
  EXPECT_EQ(line.rendezvous.port_range, "7000-7009");
  EXPECT_TRUE(line.rendezvous.legacy_clients);
  EXPECT_EQ(parsed({"-np", "1", "rendezvous"}).action, Action::run);
}

TEST(Options, AJoinTokenHasTerms) {
  const auto made = parsed({"token", "new", "--host", "b", "--expires", "30m", "--uses", "0", "a6",
                            "--file", "f"})
                        .job_command;
  EXPECT_EQ(made.subject, "new");
  EXPECT_EQ(made.argument, "a6");
  EXPECT_EQ(made.token.host, "b");
  EXPECT_EQ(made.token.time, std::chrono::minutes(30));
  EXPECT_EQ(made.token.uses, 0U);
  EXPECT_EQ(made.token.file, "f");

  const auto usual = parsed({"token", "new"}).job_command;
  EXPECT_EQ(usual.token.time, std::chrono::hours(1));
  EXPECT_EQ(usual.token.uses, 1U);
  for (const auto& [text, seconds] : std::map<std::string, int>{
           {"0", 0}, {"7", 7}, {"90s", 90}, {"2m", 120}, {"12h", 43'200}, {"7d", 604'800}}) {
    const auto line = parsed({"token", "new", "--expires", text});
    EXPECT_EQ(line.job_command.token.time, std::chrono::seconds(seconds)) << text;
  }
  const auto rotated = parsed({"token", "rotate", "3", "a6"}).job_command;
  EXPECT_EQ(rotated.token.id, "3");
  EXPECT_EQ(rotated.argument, "a6");
}

TEST(Options, WhatAJoinTokenCannotBeIsAnErrorOfUsage) {
  const std::vector<std::pair<Arguments, std::string>> rows{
      {{"token"}, "what shall be done?"},
      {{"token", "make"}, "what shall be done?"},
      {{"token", "revoke"}, "revoke: which one?"},
      {{"token", "rotate"}, "rotate: which one?"},
      {{"token", "new", "a", "b"}, "unexpected argument \"b\""},
      {{"token", "new", "--expires", "soon"}, "--expires=soon: must be a time"},
      {{"token", "new", "--expires", "-1s"}, "--expires=-1s: must be a time"},
      {{"token", "new", "--expires", "s"}, "--expires=s: must be a time"},
      {{"token", "new", "--expires", "4000000000d"}, "must be a time"},
      {{"token", "new", "--expires", "1000000001"}, "--expires=1000000001: must be a time"},
      {{"token", "new", "--uses", "1000000001"}, "--uses=1000000001: must be a number"},
      {{"token", "new", "--uses", "many"}, "--uses=many: must be a number"},
      {{"token", "new", "--uses", "-1"}, "--uses=-1: must be a number"},
      {{"token", "new", "--host", "a b"}, "--host"},
      {{"token", "list", "--uses", "1"}, "--uses: it has no effect with list"},
      {{"token", "rotate", "1", "--host", "b"}, "--host: it has no effect with rotate"},
      {{"token", "revoke", "1", "--file", "f"}, "--file: it has no effect with revoke"},
  };
  for (const auto& [arguments, why] : rows) {
    const auto line = parse_command_line(arguments);
    ASSERT_FALSE(line.ok()) << why;
    EXPECT_NE(line.status().message().find(why), std::string::npos) << line.status().to_string();
    EXPECT_TRUE(line.status().message().starts_with("hvdrun token: ")) << line.status().to_string();
  }
}

TEST(Options, OfAFlagThatIsGivenTwiceTheLastOneCountsInEveryCommand) {
  EXPECT_EQ(parsed({"rendezvous", "--bind", "127.0.0.1:1", "--bind=127.0.0.1:2"}).rendezvous.bind,
            "127.0.0.1:2");
  const auto line = parsed({"agent", "--join", "tls://a:1", "--join", "tls://b:2", "--slots=1",
                            "--slots=2", "--label", "x=1", "--label", "y=2"});
  EXPECT_EQ(line.agent.join.front().host, "b");
  EXPECT_EQ(line.agent.slots, 2);
  EXPECT_EQ(line.agent.labels, (std::vector<std::string>{"x=1", "y=2"}));
  EXPECT_TRUE(parsed({"status", "--json", "--json"}).job_command.json);
}

TEST(Options, AnAgentThatJoinsHasOptionsOfItsOwn) {
  const auto line = parsed({"agent", "--join", "tls://driver:4000"});
  EXPECT_EQ(line.action, Action::agent);
  EXPECT_EQ(line.agent.join.front().host, "driver");
  EXPECT_EQ(line.agent.join.front().port, 4000);
  EXPECT_EQ(line.agent.token_file, "hvd-token");
  EXPECT_EQ(line.agent.host, "");
  EXPECT_EQ(line.agent.slots, 0);
  EXPECT_EQ(line.agent.join_timeout, std::chrono::seconds(300));
  const auto more = parsed({"agent", "--join=tls://[fe80::1%eth0]:1", "--token-file", "t", "--host",
                            "h1", "--slots=4", "--join-timeout", "0.5"});
  EXPECT_EQ(more.agent.join.front().host, "fe80::1%eth0");
  EXPECT_EQ(more.agent.token_file, "t");
  EXPECT_EQ(more.agent.host, "h1");
  EXPECT_EQ(more.agent.slots, 4);
  EXPECT_EQ(more.agent.join_timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(parsed({"-np", "1", "agent"}).action, Action::run);
  const auto two = parsed({"agent", "--join", "tls://a:1,tls://[::1]:2"});
  ASSERT_EQ(two.agent.join.size(), 2U);
  EXPECT_EQ(two.agent.join.back().host, "::1");
  EXPECT_EQ(two.agent.join.back().port, 2);
}

TEST(Options, HorovodsSshFlagsAndOurs) {
  const auto line = parsed({"-p", "2222", "-i", "a,b", "--ssh-identity-file=c", "--ssh-host-key",
                            "off", "--disable-cache", "--network-interfaces", "eth0,ib0",
                            "--network-interface", "eth1", "p"});
  EXPECT_EQ(value(line, "ssh-port"), "2222");
  EXPECT_EQ(list_items(value(line, "ssh-identity-file")), (Arguments{"a,b", "c"}));
  EXPECT_EQ(value(line, "ssh-host-key"), "off");
  EXPECT_EQ(list_items(value(line, "network-interface")), (Arguments{"eth0,ib0", "eth1"}));
  EXPECT_EQ(line.command, Arguments{"p"});
}

// The next argument is the flag's value if it looks like an address, and else the program.
TEST(Options, TheStatusPageNeedsNoAddress) {
  for (const Arguments& flags : std::vector<Arguments>{{"--status-page"},
                                                       {"--status-page", "loopback:0"},
                                                       {"--status-page=loopback:0"},
                                                       {"--status-page", "--"}}) {
    Arguments words = flags;
    words.emplace_back("./train");
    const auto line = parsed(words);
    EXPECT_EQ(value(line, "status-page"), "loopback:0");
    EXPECT_EQ(line.command, Arguments{"./train"});
  }
  EXPECT_EQ(value(parsed({"./train"}), "status-page"), "(none)");
  EXPECT_EQ(value(parsed({"--status-page", "[::1]:80", "./train"}), "status-page"), "[::1]:80");
  // Mistakes that are no programs.
  for (const char* const address : {"localhost:80", "10.0.0.1"}) {
    const auto wrong = parse_command_line({"--status-page", address, "./t"});
    ASSERT_FALSE(wrong.ok()) << address;
    EXPECT_TRUE(wrong.status().message().starts_with(
        cat("--status-page: \"", address, "\" is not ADDRESS:PORT")))
        << wrong.status().message();
  }
  EXPECT_EQ(parsed({"--status-page", "-np", "2", "./t"}).command, Arguments{"./t"});
}

TEST(Options, ARangeIsTwoArgumentsOrOne) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--blacklist-cooldown-range", "10", "100", "p"},
                                             {"--blacklist-cooldown-range=10 100", "p"},
                                             {"--blacklist-cooldown-range=10,100", "p"}}) {
    const auto line = parse_command_line(arguments);
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_EQ(line->command, std::vector<std::string>{"p"});
    EXPECT_EQ(line->values.count("blacklist-cooldown-range"), 1U);
  }
}

TEST(Options, WrongArgumentsAreRefusedAndNamed) {
  const std::vector<std::pair<Arguments, const char*>> rows = {
      {{}, "no program to run"},
      {{"-np", "2"}, "no program to run"},
      {{"-np", "2", ""}, "no program to run"},
      {{"-np"}, "-np: needs a value"},
      {{"-np", "0", "p"}, "--num-proc=0: must be an integer from 1 to 100000"},
      {{"-np", "-1", "p"}, "--num-proc=-1: must be"},
      {{"-np", "abc", "p"}, "--num-proc=abc: must be"},
      {{"-np", "99999999999999999999", "p"}, "must be an integer"},
      {{"-np=", "p"}, "-np: needs a value"},
      {{"-H", "", "p"}, "-H: needs a value"},
      {{"--bogus", "p"}, "unknown option --bogus"},
      {{"--num-prok", "2", "p"}, "did you mean --num-proc?"},
      {{"--np", "2", "p"}, "did you mean -np?"},
      {{"-x", "p"}, "unknown option -x"},
      {{"--num-proc2=3", "p"}, "unknown option --num-proc2"},
      {{"--verbose=yes", "p"}, "--verbose: takes no value"},
      {{"--tag-output", "host", "p"}, "--tag-output=host: must be rank or none"},
      {{"--blacklist-cooldown-range", "10", "5", "p"}, "the shorter first"},
      {{"--blacklist-cooldown-range=10", "p"}, "two numbers of seconds"},
      {{"-p", "0", "p"}, "--ssh-port=0: must be an integer from 1 to 65535"},
      {{"-p", "p"}, "--ssh-port=p: must be an integer"},
      {{"-i"}, "-i: needs a value"},
      {{"--ssh-host-key", "never", "p"}, "--ssh-host-key=never: must be accept-new, strict or off"},
      {{"--ssh-connect-timeout", "0", "p"}, "--ssh-connect-timeout=0: must be a number from 0.1"},
      {{"--ssh-parallel", "0", "p"}, "--ssh-parallel=0: must be an integer from 1 to 1000"},
      {{"--advertise-address", "me.example", "p"},
       "--advertise-address=me.example: must be an IPv4 or IPv6 address"},
      {{"--advertise-address", "10.0.0.300", "p"}, "must be an IPv4 or IPv6 address"},
      {{"--heartbeat-timeout", "0.05", "p"}, "--heartbeat-timeout=0.05: must be a number from 0.1"},
      {{"--mpi", "p"}, "launching through MPI is not in this version"},
      {{"--jsrun", "p"}, "launching through jsrun (LSF) is not in this version"},
      {{"--nproc_per_node", "4", "p"},
       "--nproc_per_node 4: -np 4, or -H HOST:4 (a flag of torchrun)"},
      {{"--nproc-per-node=gpu", "p"}, "--nproc-per-node gpu: -H HOST, without slots: one worker"},
      {{"--nproc-per-node"}, "--nproc-per-node: -np N, or -H HOST:N"},
      {{"--standalone", "p"}, "--standalone: not needed, since hvdrun holds the rendezvous"},
      {{"-m", "train"}, "-m train: hvdrun [options] python -m train"},
      {{"--master-port", "1234", "p"}, "--master-port 1234: not needed"},
      {{"--shutdown-timeout=7", "p"}, "--shutdown-timeout 7: --grace 7"},
      {{"--max-restarts", "-1", "p"}, "--max-restarts=-1: must be an integer from 0"},
      {{"--grow-delay", "soon", "p"}, "--grow-delay=soon: must be a number from 0"},
      {{"-H", "a:1", "-hostfile", "f", "p"}, "--hosts and --hostfile: give one of them"},
      {{"-H", "a:1", "b:2"}, "hosts are separated by commas without blanks: -H a:1,b:2"},
      {{"-H", "a:1,", "b:2", "./train"}, "without blanks: -H a:1,b:2"},
      {{"-H", "a:1", "b:2,", "c:3", "./train"}, "without blanks: -H a:1,b:2,c:3"},
      {{"rendezvous"}, "needs --bind ADDRESS:PORT"},
      {{"rendezvous", "--bind"}, "--bind: needs a value"},
      {{"rendezvous", "--bond", "x"}, "unknown option --bond; did you mean --bind?"},
      {{"rendezvous", "--bind", "x:1", "extra"}, "unexpected argument 'extra'"},
      {{"agent"}, "hvdrun agent: needs --join tls://ADDRESS:PORT"},
      {{"agent", "--join", "a:1"}, "--join a:1: must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "http://a:1"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://a"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://:1"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://a:0"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://::1:4000"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://a:1/path"}, "must be tls://ADDRESS:PORT"},
      {{"agent", "--join", "tls://a:1", "--slots", "0"}, "--slots=0: must be an integer from 1"},
      {{"agent", "--join", "tls://a:1", "--join-timeout", "-1"}, "--join-timeout=-1: must be a"},
      {{"agent", "--join", "tls://a:1", "--token-fil", "f"}, "did you mean --token-file?"},
      {{"agent", "--join", "tls://a:1", "train"}, "unexpected argument 'train'"},
  };
  for (const auto& [arguments, expected] : rows) {
    const auto line = parse_command_line(arguments);
    ASSERT_FALSE(line.ok()) << expected;
    EXPECT_NE(line.status().message().find(expected), std::string::npos) << line.status().message();
  }
}

// The flags of torch 2.15 and of torch 1.13, in both spellings.
TEST(Options, EveryFlagOfTorchrunIsKnownOrAnswered) {
  const std::set<std::string> are_ours{"max-restarts", "local-ranks-filter"};
  for (const std::string name : {"nnodes",
                                 "nproc-per-node",
                                 "rdzv-backend",
                                 "rdzv-endpoint",
                                 "rdzv-id",
                                 "rdzv-conf",
                                 "standalone",
                                 "max-restarts",
                                 "monitor-interval",
                                 "start-method",
                                 "event-log-handler",
                                 "role",
                                 "module",
                                 "no-python",
                                 "run-path",
                                 "log-dir",
                                 "redirects",
                                 "tee",
                                 "log-line-prefix-template",
                                 "local-ranks-filter",
                                 "duplicate-stdout-filters",
                                 "duplicate-stderr-filters",
                                 "node-rank",
                                 "master-addr",
                                 "master-port",
                                 "local-addr",
                                 "logs-specs",
                                 "numa-binding",
                                 "signals-to-handle",
                                 "shutdown-timeout",
                                 "virtual-local-rank"}) {
    for (const char between : {'-', '_'}) {
      std::string flag = "--" + name;
      std::replace(flag.begin() + 2, flag.end(), '-', between);
      const auto line = parse_command_line({flag, "3", "./train"});
      const bool is_answered =
          !line.ok() && line.status().message().find("(a flag of torchrun)") != std::string::npos;
      EXPECT_TRUE(is_answered || (line.ok() && are_ours.contains(name))) << flag;
    }
  }
}

TEST(Options, HelpNamesTheValuesOfAFlagThatHasOnlySome) {
  const auto line = parse_command_line({"--help"});
  ASSERT_TRUE(line.ok());
  for (const char* const shown : {"--transport hvd|gloo-tcp ", "--failure-policy slot|host ",
                                  "--ssh-host-key accept-new|strict|off "}) {
    EXPECT_NE(line->help.find(shown), std::string::npos) << shown;
  }
  // Horovod's word is taken, but there is more than Gloo.
  EXPECT_EQ(line->help.find("all there is"), std::string::npos);
  const auto agent = parse_command_line({"agent", "--help"});
  ASSERT_TRUE(agent.ok());
  EXPECT_NE(agent->help.find("without GPUs one for each core"), std::string::npos) << agent->help;
}

// A far-fetched suggestion would mislead people.
TEST(Options, SuggestsAFlagOnlyWhereOneIsNear) {
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"--np", "-np"},
      {"--host", "--hosts"},
      {"--hsots", "--hosts"},
      {"-verbose", "--verbose"},
      {"--hosts-file", "--hostfile"},
      {"--num-prok", "--num-proc"},
      {"--mni-np", "--min-np"},
      {"--tranpsort", "--transport"},
      {"--hostdiscovery-script", "--host-discovery-script"},
      {"--cycle-times-ms", "--cycle-time-ms"},
      {"--no-oversubscibe", "--no-oversubscribe"},
      // Flags of other launchers.
      {"-n", ""},
      {"-x", ""},
      {"-q", ""},
      {"-c", ""},
      {"-N", ""},
      {"--n", ""},
      {"--hostname", ""},
      {"--log", ""},
      {"--tag", ""},
      {"--ntasks", ""},
      {"--map-by", ""},
      {"--bind-to", ""},
      {"--allow-run-as-root", ""},
      {"--bogus", ""},
  };
  for (const auto& [word, near] : rows) {
    const auto line = parse_command_line({word, "p"});
    ASSERT_FALSE(line.ok()) << word;
    const std::string wanted =
        cat("unknown option ", word, near.empty() ? "" : cat("; did you mean ", near, "?"), " (");
    EXPECT_EQ(line.status().message().substr(0, wanted.size()), wanted) << line.status().message();
  }
}

TEST(Options, AProgramWithAColonIsNoHostWithoutHosts) {
  EXPECT_EQ(parsed({"-np", "1", "tool:2"}).command, Arguments{"tool:2"});
}

TEST(Settings, FlagBeatsFileBeatsEnvironment) {
  const Values flags{{"grace", {"1", "flag"}}};
  const Values file{{"grace", {"2", "file"}}, {"cycle-time-ms", {"2", "file"}}};
  const Values environment{{"grace", {"3", "environment"}},
                           {"cycle-time-ms", {"3", "environment"}},
                           {"cache-capacity", {"3", "environment"}}};
  const Values all = merge(merge(flags, file), environment);
  EXPECT_EQ(all.at("grace").source, "flag");
  EXPECT_EQ(all.at("cycle-time-ms").source, "file");
  EXPECT_EQ(all.at("cache-capacity").source, "environment");
}

TEST(Settings, HostsThatWereTypedHideTheHostfileOfTheConfigFile) {
  const Values all = merge({{"hosts", {"a:1", "flag"}}}, {{"hostfile", {"f", "file"}}});
  EXPECT_EQ(all.count("hostfile"), 0U);
}

}  // namespace
}  // namespace hvd::cli
