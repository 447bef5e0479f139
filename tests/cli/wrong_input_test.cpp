// What a person can get wrong, each against the real hvdrun: a clear error on stderr, an exit code
// that is not zero, nothing on stdout, and nothing started.
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <sys/stat.h>
#include <unistd.h>

#include "base/socket.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct WrongInput {
  const char* name;
  Words words;                                    // for hvdrun; {dir} is the test's own folder
  int code;                                       // expected
  Words expected;                                 // each stands in stderr
  std::map<std::string, std::string> files = {};  // made in the test's folder
  std::map<std::string, std::string> variables = {};
  bool close_stdin = false;
};

void PrintTo(const WrongInput& row, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << row.name;
}

const std::string kScript = "#!/bin/sh\necho started >> {dir}/started\n";

// NOLINTNEXTLINE(cert-err58-cpp)
const std::vector<WrongInput> kRows = {
    // The command line.
    {"NoWords", {}, 2, {"no program to run", "--help"}},
    {"NoProgram", {"-np", "2"}, 2, {"no program to run"}},
    {"EmptyProgram", {"-np", "2", ""}, 2, {"no program to run"}},
    {"NpWithoutNumber", {"-np"}, 2, {"-np: needs a value"}},
    {"NpZero", {"-np", "0", "./p"}, 2, {"--num-proc=0", "from 1 to 100000"}},
    {"NpNegative", {"-np", "-1", "./p"}, 2, {"--num-proc=-1", "from 1 to 100000"}},
    {"NpWord", {"-np", "abc", "./p"}, 2, {"--num-proc=abc", "integer"}},
    {"NpFraction", {"-np", "1.5", "./p"}, 2, {"--num-proc=1.5", "integer"}},
    {"NpHuge", {"-np", "1000000", "./p"}, 2, {"--num-proc=1000000", "from 1 to 100000"}},
    {"NpBeyondNumbers",
     {"-np", "99999999999999999999999", "./p"},
     2,
     {"--num-proc=999", "integer"}},
    {"UnknownFlag", {"--bogus", "./p"}, 2, {"unknown option --bogus"}},
    {"MisspeltFlag", {"--num-prok", "2", "./p"}, 2, {"--num-prok", "did you mean --num-proc?"}},
    {"FlagWithNeedlessValue", {"--verbose=1", "./p"}, 2, {"--verbose: takes no value"}},
    {"BadTag", {"--tag-output=host", "./p"}, 2, {"--tag-output=host", "rank or none"}},
    {"NegativeGrace", {"--grace", "-3", "./p"}, 2, {"--grace=-3", "number from 0"}},
    {"SshPortThatIsNone", {"-p", "x", "./p"}, 2, {"--ssh-port=x", "from 1 to 65535"}},
    {"UnknownHostKeyPolicy", {"--ssh-host-key=no", "./p"}, 2, {"accept-new, strict or off"}},
    {"AdvertisedName", {"--advertise-address", "me", "./p"}, 2, {"IPv4 or IPv6 address"}},
    {"InterfaceWithoutName", {"--network-interface", "a,,b", "./p"}, 1, {"--network-interface"}},
    {"OrphansBeforeTheVerdict",
     {"--orphan-timeout", "1", "./p"},
     1,
     {"--orphan-timeout 1 is shorter than --heartbeat-timeout 3"}},
    {"MpiFlag", {"--mpi", "-np", "2", "./p"}, 2, {"--mpi: ", "not in this version"}},
    {"HostsTwice", {"-H", "a:1", "--hostfile", "h", "./p"}, 2, {"--hosts and --hostfile"}},
    {"HostsWithBlank", {"-H", "a:1", "b:2", "./p"}, 2, {"'b:2'", "without blanks: -H a:1,b:2"}},
    {"HostsWithCommaAndBlank", {"-H", "a:1,", "b:2", "./p"}, 2, {"without blanks: -H a:1,b:2"}},
    {"EnvironmentNameNotSet",
     {"--env", "HVD_NOT_SET_AT_ALL", "./p"},
     1,
     {"--env HVD_NOT_SET_AT_ALL"}},
    {"EnvironmentWithoutName", {"--env", "=x", "./p"}, 1, {"--env =x", "name"}},
    // Knobs.
    {"NegativeKnob",
     {"--cache-capacity", "-1", "./p"},
     2,
     {"--cache-capacity=-1", "integer from 0"}},
    {"NoiseAboveOne",
     {"--autotune-gaussian-process-noise", "1.5", "./p"},
     2,
     {"noise=1.5", "from 0 to 1"}},
    {"BadLogLevel", {"--log-level", "LOUD", "./p"}, 2, {"--log-level=LOUD", "TRACE, DEBUG"}},
    {"BadAffinity", {"--thread-affinity", "0,x", "./p"}, 2, {"--thread-affinity=0,x", "integers"}},
    {"BadHvdVariable",
     {"./p"},
     1,
     {"HVD_CYCLE_TIME=soon", "number"},
     {},
     {{"HVD_CYCLE_TIME", "soon"}}},
    {"BadHorovodVariable",
     {"./p"},
     1,
     {"HOROVOD_FUSION_THRESHOLD=64MB", "integer"},
     {},
     {{"HOROVOD_FUSION_THRESHOLD", "64MB"}}},
    {"BadStartTimeoutVariable",
     {"./p"},
     1,
     {"HOROVOD_START_TIMEOUT=-5"},
     {},
     {{"HOROVOD_START_TIMEOUT", "-5"}}},
    {"BadLogLevelVariable", {"./p"}, 1, {"HVD_LOG_LEVEL=shout"}, {}, {{"HVD_LOG_LEVEL", "shout"}}},
    // Hosts and hostfiles.
    {"HostWithBadSlots", {"-H", "a:x", "./p"}, 1, {"the slots of a must be a number", "\"x\""}},
    {"HostWithNoSlots", {"-H", "a:0", "./p"}, 1, {"the slots of a must be a number", "\"0\""}},
    {"HostWithoutName", {"-H", ":4", "./p"}, 1, {"the host's name is missing"}},
    {"HostWithTwoUsers", {"-H", "me@a,you@a", "./p"}, 1, {"the host a is named twice"}},
    {"HostWithUnknownKey", {"-H", "a:4:prot=1", "./p"}, 1, {"unknown key", "prot"}},
    {"HostWithoutLink", {"-H", "[fe80::1]:1", "./p"}, 1, {"[fe80::1%eth0]"}},
    {"HostNamedTwice", {"-H", "a:1,a:2", "./p"}, 1, {"a", "twice"}},
    {"HostUnknown", {"-H", "no-such-host.invalid:1", "./p"}, 1, {"no-such-host.invalid"}},
    {"NobodyAtThePortOfAll",
     {"-p", "1", "-H", "me@127.0.0.1:1", "./p"},
     1,
     {"127.0.0.1", "connect", "port 1:", "Connection refused"}},
    {"NobodyAtThePortOfOne",
     {"-p", "1", "-H", "127.0.0.1:1:port=2", "./p"},
     1,
     {"127.0.0.1:2", "connect", "port 2:", "Connection refused"}},
    {"HostElsewhere",
     {"--ssh-connect-timeout", "0.2", "-H", "192.0.2.1:1", "./p"},
     1,
     {"192.0.2.1", "connect"}},
    {"MissingHostfile", {"-hostfile", "none", "./p"}, 1, {"hostfile none: No such file"}},
    {"HostfileIsAFolder", {"-hostfile", "{dir}", "./p"}, 1, {"hostfile {dir}: Is a directory"}},
    {"EmptyHostfile", {"-hostfile", "h", "./p"}, 1, {"h: names no host"}, {{"h", "# nothing\n\n"}}},
    {"BadHostfileLine",
     {"-hostfile", "h", "./p"},
     1,
     {"h:2"},
     {{"h", "a slots=2\nb slots=many\n"}}},
    {"HostfileOfZeros",
     {"-hostfile", "/dev/zero", "./p"},
     1,
     {"hostfile /dev/zero", "larger than"}},
    {"HostfileFromClosedStdin",
     {"-hostfile", "-", "./p"},
     1,
     {"hostfile on standard input: Bad file descriptor"},
     {},
     {},
     true},
    {"HostfileFromEmptyStdin", {"-hostfile", "-", "./p"}, 1, {"standard input: names no host"}},
    {"MoreWorkersThanSlots",
     {"-np", "5", "-H", "localhost:2", "--no-oversubscribe", "./p"},
     1,
     {"Requested more processes (5) than there are available slots (2)"}},
    {"TooManySlots", {"-H", "a:60000,b:60000", "./p"}, 1, {"120,000 slots", "-np"}},
    // A world that changes.
    {"LeastOfNone", {"--min-np", "0", "./p"}, 2, {"--min-np=0", "from 1 to 100000"}},
    {"MostOfNone", {"--max-num-proc", "none", "./p"}, 2, {"--max-np=none", "integer"}},
    {"LeastAboveTheMost",
     {"--min-np", "3", "--max-np", "2", "--host-discovery-script", "./p", "./p"},
     1,
     {"--min-np 3 is more than --max-np 2"}},
    {"LeastAboveTheNumber", {"-np", "2", "--min-np", "3", "./p"}, 1, {"--min-np 3", "-np 2"}},
    {"MostBelowTheNumber", {"-np", "2", "--max-np", "1", "./p"}, 1, {"--max-np 1", "-np 2"}},
    {"LeastAboveTheSlots",
     {"-H", "localhost:2", "--min-np", "3", "./p"},
     1,
     {"--min-np 3 is more than the 2 slots"}},
    {"HostsAndAScript",
     {"-H", "a:1", "--host-discovery-script", "./p", "./p"},
     2,
     {"--hosts and --host-discovery-script: give one of them"}},
    {"ConfigOfAHostfileAndAScript",
     {"--config-file", "c", "./p"},
     1,
     {"c: --hostfile and --host-discovery-script: give one of them"},
     {{"c", "launch:\n  hostfile: h\nelastic:\n  host_discovery_script: ./p\n"}}},
    {"ScriptThatIsNot",
     {"--host-discovery-script", "./none.sh", "./p"},
     1,
     {"./none.sh", "not found"}},
    {"SparesOfAStaticJob", {"--spares", "1", "./p"}, 1, {"--spares: only a job whose world may"}},
    {"GraceToLeaveAStaticJob",
     {"--config-file", "c", "./p"},
     1,
     {"c:2: elastic.leave_grace_seconds: only a job whose world may change"},
     {{"c", "elastic:\n  leave_grace_seconds: 3\n"}}},
    {"IntervalWithoutAScript",
     {"--min-np", "1", "--discovery-interval", "1", "./p"},
     1,
     {"--discovery-interval: there is no --host-discovery-script"}},
    {"TimeoutWithoutAScript",
     {"--min-np", "1", "--discovery-timeout", "1", "./p"},
     1,
     {"--discovery-timeout: there is no --host-discovery-script"}},
    {"IntervalOfNothing",
     {"--discovery-interval", "0", "./p"},
     2,
     {"--discovery-interval=0", "number from 0.01"}},
    {"DiscoveryTimeoutOfNothing",
     {"--discovery-timeout", "0", "./p"},
     2,
     {"--discovery-timeout=0", "number from 0.01"}},
    {"ElasticTimeoutOfNothing", {"--elastic-timeout", "0", "./p"}, 2, {"--elastic-timeout=0"}},
    {"BadElasticTimeoutVariable",
     {"./p"},
     1,
     {"HOROVOD_ELASTIC_TIMEOUT=soon"},
     {},
     {{"HOROVOD_ELASTIC_TIMEOUT", "soon"}}},
    {"NegativeResetLimit", {"--reset-limit", "-1", "./p"}, 2, {"--reset-limit=-1"}},
    {"NegativePlannedResetLimit",
     {"--planned-reset-limit", "-1", "./p"},
     2,
     {"--planned-reset-limit=-1"}},
    {"NegativeSpares", {"--spares", "-1", "./p"}, 2, {"--spares=-1"}},
    {"NegativeRestarts", {"--restarts", "-1", "./p"}, 2, {"--restarts=-1"}},
    {"RestartsForgottenAtOnce",
     {"--restarts-forget-after", "0", "./p"},
     2,
     {"--restarts-forget-after=0"}},
    {"NegativeGraceToLeave", {"--leave-grace", "-1", "./p"}, 2, {"--leave-grace=-1"}},
    {"UnknownFailurePolicy",
     {"--failure-policy", "rack", "./p"},
     2,
     {"--failure-policy=rack", "slot, host"}},
    {"CooldownOfOneNumber",
     {"--blacklist-cooldown-range", "10"},
     2,
     {"--blacklist-cooldown-range: needs two values"}},
    {"CooldownTheWrongWayRound",
     {"--blacklist-cooldown-range", "100", "10", "./p"},
     2,
     {"--blacklist-cooldown-range=100 10", "the shorter first"}},
    {"CooldownOfWords",
     {"--blacklist-cooldown-range", "a", "b", "./p"},
     2,
     {"--blacklist-cooldown-range=a b", "two numbers of seconds"}},
    {"ElasticJobOfAgentsThatCome",
     {"--min-np", "1", "-np", "2", "--join-bind", "127.0.0.1:0", "./p"},
     1,
     {"--min-np and --join-bind"}},
    {"ElasticJobOfHorovodsClients",
     {"--min-np", "1", "--legacy-clients", "./p"},
     1,
     {"--min-np and --legacy-clients"}},
    // Config files.
    {"MissingConfig", {"--config-file", "none.yaml", "./p"}, 1, {"none.yaml: No such file"}},
    {"ConfigIsAFolder", {"--config-file", "{dir}", "./p"}, 1, {"Is a directory"}},
    {"ConfigIsNoYaml", {"--config-file", "c", "./p"}, 1, {"c:", "not YAML"}, {{"c", "a: {b\n"}}},
    {"UnknownConfigSection",
     {"--config-file", "c", "./p"},
     1,
     {"c:1: unknown section parms; did you mean params?"},
     {{"c", "parms:\n  cycle_time_ms: 1\n"}}},
    {"UnknownConfigKey",
     {"--config-file", "c", "./p"},
     1,
     {"c:2: unknown key params.cycle_time; did you mean cycle_time_ms?"},
     {{"c", "params:\n  cycle_time: 1\n"}}},
    {"ConfigValueOfWrongType",
     {"--config-file", "c", "./p"},
     1,
     {"c:2: params.cache_capacity: must be one value, but is a list"},
     {{"c", "params:\n  cache_capacity: [1, 2]\n"}}},
    {"ConfigValueOutOfRange",
     {"--config-file", "c", "./p"},
     1,
     {"c:2: launch.num_proc=0"},
     {{"c", "launch:\n  num_proc: 0\n"}}},
    {"ConfigForMpi",
     {"--config-file", "c", "./p"},
     1,
     {"c:1: controller", "not in this version"},
     {{"c", "controller: mpi\n"}}},
    // The program and where it runs.
    {"MissingProgram", {"-np", "2", "./none"}, 127, {"none", "No such file"}},
    {"ProgramNotInPath", {"-np", "2", "hvd-no-such-program"}, 127, {"hvd-no-such-program in PATH"}},
    {"ProgramHereButNotInPath",
     {"p-here"},
     127,
     {"./p-here is in the working directory"},
     {{"p-here", kScript}}},
    {"ProgramNotExecutable",
     {"-np", "2", "./text"},
     126,
     {"text", "Permission denied"},
     {{"text", "no program"}}},
    {"ProgramIsAFolder", {"-np", "2", "{dir}"}, 126, {"it is a directory"}},
    {"MissingWorkingDirectory",
     {"-wd", "none", "./p"},
     1,
     {"change directory", "none: No such file"}},
    {"WorkingDirectoryIsAFile", {"-wd", "f", "./p"}, 1, {"f: Not a directory"}, {{"f", ""}}},
    {"BadAgentPath",
     {"./p"},
     1,
     {"HVD_AGENT=/none/hvd-agent: No such file"},
     {},
     {{"HVD_AGENT", "/none/hvd-agent"}}},
    {"AgentIsAFolder", {"./p"}, 1, {"HVD_AGENT=", "Is a directory"}, {}, {{"HVD_AGENT", "/tmp"}}},
    {"AgentIsNoAgent",
     {"--start-timeout", "10", "./p"},
     1,
     {"agent"},
     {},
     {{"HVD_AGENT", "/bin/true"}}},
    // Output.
    {"OutputFolderIsAFile",
     {"--output-filename", "f", "./p"},
     1,
     {"--output-filename: make the folder f/rank.0: Not a directory"},
     {{"f", ""}}},
    {"OutputFolderCannotBeMade",
     {"--output-filename", "/proc/none", "./p"},
     1,
     {"--output-filename: make the folder /proc/none/rank.0"}},
    // Agents that come by themselves.
    {"JoinWithoutPort", {"--join-bind", "127.0.0.1", "./p"}, 1, {"--join-bind", "ADDRESS:PORT"}},
    {"JoinOfNobodyInParticular", {"--join-bind", "127.0.0.1:0", "./p"}, 1, {"-np"}},
    {"JoinOfAHostWithAPort",
     {"--join-bind", "127.0.0.1:0", "-H", "a:1:port=2", "./p"},
     1,
     {"the host a:2 has a port"}},
    {"JoinWithABadToken",
     {"--join-bind", "127.0.0.1:0", "-np", "1", "--token-file", "t", "./p"},
     1,
     {"token file t"},
     {{"t", "not a token\n"}}},
    {"JoinAtAForeignAddress",
     {"--join-bind", "192.0.2.1:0", "-np", "1", "--token-file", "t", "./p"},
     1,
     {"192.0.2.1"}},
    {"AgentWithoutAddress", {"agent"}, 2, {"hvdrun agent: needs --join tls://ADDRESS:PORT"}},
    {"AgentWithoutScheme", {"agent", "--join", "127.0.0.1:1"}, 2, {"tls://ADDRESS:PORT"}},
    {"AgentWithoutToken",
     {"agent", "--join", "tls://127.0.0.1:1", "--token-file", "t", "--join-timeout", "0"},
     1,
     {"token file t: No such file"}},
    {"AgentWithABadToken",
     {"agent", "--join", "tls://127.0.0.1:1", "--token-file", "t"},
     1,
     {"token file t"},
     {{"t", "not a token\n"}}},
    {"AgentOfAnUnknownHost",
     {"agent", "--join", "tls://no-such-host.invalid:1", "--token-file", "t", "--join-timeout",
      "0"},
     1,
     {"resolve no-such-host.invalid"},
     {{"t", std::string(64, 'a')}}},
    {"AgentOfNobody",
     {"agent", "--join", "tls://127.0.0.1:1", "--token-file", "t", "--join-timeout", "0"},
     1,
     {"connect to 127.0.0.1:1: Connection refused"},
     {{"t", std::string(64, 'a')}}},
    // hvdrun rendezvous.
    {"RendezvousWithoutAddress", {"rendezvous"}, 2, {"needs --bind ADDRESS:PORT"}},
    {"RendezvousWithAName", {"rendezvous", "--bind", "somewhere:80"}, 2, {"somewhere"}},
    {"RendezvousWithoutPort", {"rendezvous", "--bind", "127.0.0.1"}, 2, {"127.0.0.1"}},
    {"RendezvousPortTooHigh", {"rendezvous", "--bind", "127.0.0.1:70000"}, 2, {"70000"}},
    {"RendezvousUnknownFlag", {"rendezvous", "--bond", "x"}, 2, {"did you mean --bind?"}},
    {"RendezvousExtraWord", {"rendezvous", "--bind", "127.0.0.1:0", "x"}, 2, {"'x'"}},
    {"RendezvousForeignAddress",
     {"rendezvous", "--bind", "192.0.2.1:0", "--token-file", "t"},
     1,
     {"192.0.2.1"}},
    {"RendezvousBadToken",
     {"rendezvous", "--bind", "127.0.0.1:0", "--token-file", "t"},
     1,
     {"t"},
     {{"t", "not a token\n"}}},
    {"RendezvousTokenIsAFolder",
     {"rendezvous", "--bind", "127.0.0.1:0", "--token-file", "{dir}"},
     1,
     {"{dir}"}},
};

std::string fill(std::string text, const std::string& directory) {
  for (auto at = text.find("{dir}"); at != std::string::npos; at = text.find("{dir}")) {
    text.replace(at, 5, directory);
  }
  return text;
}

void make_executable(const fs::path& path) { fs::permissions(path, fs::perms{0755}); }

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
  Words command{binary("hvdrun")};
  for (const auto& word : row.words) command.push_back(fill(word, here));
  const ExitStatus status = run(command, options);
  EXPECT_EQ(status.code, row.code) << status.err;
  EXPECT_EQ(status.signal, 0);
  EXPECT_EQ(status.out, "");
  for (const auto& words : row.expected) {
    EXPECT_NE(status.err.find(fill(words, here)), std::string::npos)
        << "no '" << fill(words, here) << "' in:\n"
        << status.err;
  }
  EXPECT_TRUE(status.err.starts_with("hvdrun")) << status.err;
  EXPECT_FALSE(fs::exists(directory.path() / "started")) << "a worker was started";
}

INSTANTIATE_TEST_SUITE_P(Table, WrongInputs, testing::ValuesIn(kRows),
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

// Files that may not be read or written, as a user who is not root.
class AsNobody : public testing::Test {
 protected:
  void SetUp() override {
    fs::permissions(directory_.path(), fs::perms{0755});
    // Where this was built nobody may be allowed to look.
    for (const char* const name : {"hvdrun", "hvd-agent"}) {
      fs::copy_file(binary(name), directory_.path() / name);
    }
    if (::geteuid() == 0) {
      prefix_ = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    }
  }

  ExitStatus run_as_nobody(const Words& words) {
    Words command = prefix_;
    command.push_back(directory_.path() / "hvdrun");
    command.insert(command.end(), words.begin(), words.end());
    ProcessOptions options;
    options.working_directory = directory_.path();
    return run(command, options);
  }

  TemporaryDirectory directory_;
  Words prefix_;
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
  EXPECT_NE(status.err.find("logs/rank.0: Permission denied"), std::string::npos) << status.err;
}

}  // namespace
}  // namespace hvd::test
