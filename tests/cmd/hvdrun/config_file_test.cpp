#include "cmd/hvdrun/config_file.h"

#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace hvd::cli {
namespace {

TEST(ConfigFile, HorovodsKeysAreKnown) {
  const auto values = parse_config(R"(controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 5.5
  cache_capacity: 2048
  hierarchical_allreduce: true
  hierarchical_allgather: off
  torus_allreduce: no
autotune:
  enabled: true
  log_file: tune.csv
  warmup_samples: 4
  steps_per_sample: 11
  bayes_opt_max_samples: 21
  gaussian_process_noise: 0.5
timeline:
  filename: t.json
  mark_cycles: true
stall_check:
  enabled: false
  warning_time_seconds: 30
  shutdown_time_seconds: 90
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: [0, 4]
  gloo_timeout_seconds: 60
logging:
  level: INFO
  with_timestamp: false
)",
                                   "job.yaml");
  ASSERT_TRUE(values.ok()) << values.status().message();
  const std::map<std::string, std::string> expected{{"fusion-threshold-mb", "33554432"},
                                                    {"cycle-time-ms", "5.5"},
                                                    {"cache-capacity", "2048"},
                                                    {"hierarchical-allreduce", "1"},
                                                    {"hierarchical-allgather", "0"},
                                                    {"torus-allreduce", "0"},
                                                    {"autotune", "1"},
                                                    {"autotune-log-file", "tune.csv"},
                                                    {"autotune-warmup-samples", "4"},
                                                    {"autotune-steps-per-sample", "11"},
                                                    {"autotune-bayes-opt-max-samples", "21"},
                                                    {"autotune-gaussian-process-noise", "0.5"},
                                                    {"timeline-filename", "t.json"},
                                                    {"timeline-mark-cycles", "1"},
                                                    {"stall-check", "1"},
                                                    {"stall-check-warning-time-seconds", "30"},
                                                    {"stall-check-shutdown-time-seconds", "90"},
                                                    {"mpi-threads-disable", "1"},
                                                    {"num-nccl-streams", "2"},
                                                    {"thread-affinity", "0,4"},
                                                    {"collective-timeout", "60"},
                                                    {"log-level", "info"},
                                                    {"log-with-timestamp", "1"}};
  std::map<std::string, std::string> got;
  for (const auto& [flag, value] : *values) got[flag] = value.text;
  EXPECT_EQ(got, expected);
  EXPECT_EQ(values->at("cycle-time-ms").source, "job.yaml:4: params.cycle_time_ms");
}

TEST(ConfigFile, HvdsOwnKeysAreKnown) {
  const auto values = parse_config(
      "launch: {num_proc: 4, hosts: 'a:2,b:2', oversubscribe: no, grace_seconds: 1.5}\n"
      "output:\n  filename: logs\n  tag: none\n",
      "job.yaml");
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_EQ(values->at("num-proc").text, "4");
  EXPECT_EQ(values->at("hosts").text, "a:2,b:2");
  EXPECT_EQ(values->at("oversubscribe").text, "0");
  EXPECT_EQ(values->at("grace").text, "1.5");
  EXPECT_EQ(values->at("tag-output").text, "none");
}

TEST(ConfigFile, SshNetworkAndJoinHaveSections) {
  const auto values = parse_config(
      "ssh:\n  port: 2222\n  identity_file: [~/.ssh/a, 'b c']\n  host_key: strict\n"
      "  known_hosts_file: k\n  config_file: none\n  connect_timeout_seconds: 2.5\n"
      "  parallel: 4\n  agent_cache: /var/tmp/hvd\n"
      "network:\n  interface: eth0\n  advertise_address: 'fd00::1'\n"
      "  heartbeat_timeout_seconds: 1\n  orphan_timeout_seconds: 9\n"
      "join: {bind: '0.0.0.0:4000', token_file: t}\n",
      "job.yaml");
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_EQ(values->at("ssh-port").text, "2222");
  EXPECT_EQ(list_items(values->at("ssh-identity-file").text),
            (std::vector<std::string>{"~/.ssh/a", "b c"}));
  EXPECT_EQ(values->at("ssh-host-key").text, "strict");
  EXPECT_EQ(values->at("ssh-config").text, "none");
  EXPECT_EQ(values->at("ssh-connect-timeout").text, "2.5");
  EXPECT_EQ(values->at("agent-cache").text, "/var/tmp/hvd");
  EXPECT_EQ(values->at("network-interface").text, "eth0");
  EXPECT_EQ(values->at("advertise-address").text, "fd00::1");
  EXPECT_EQ(values->at("orphan-timeout").text, "9");
  EXPECT_EQ(values->at("join-bind").text, "0.0.0.0:4000");
}

TEST(ConfigFile, AnEmptyOneSaysNothing) {
  EXPECT_TRUE(parse_config("", "f")->empty());
  EXPECT_TRUE(parse_config("# only a comment\n", "f")->empty());
}

TEST(ConfigFile, MistakesAreNamedWithTheirLine) {
  const std::pair<std::string, const char*> rows[] = {
      {"params:\n  cycle_time_m: 1\n",
       "f:2: unknown key params.cycle_time_m; did you mean cycle_time_ms?"},
      {"parms:\n  cycle_time_ms: 1\n", "f:1: unknown section parms; did you mean params?"},
      {"foo:\n  a: 1\n",
       "f:1: unknown section foo; known here: controller, launch, elastic, output, "
       "status_page, metrics, ssh, network, state, join, params, autotune, timeline, stall_check, "
       "library_options, logging"},
      {"params:\n  cycle_time_ms: 1\n---\nlaunch:\n  verbose: true\n",
       "f:3: a second YAML document; all settings must be in the first"},
      {"params:\n  mark_cycles: true\n",
       "f:2: unknown key params.mark_cycles; did you mean timeline.mark_cycles?"},
      {"logging:\n  hide_timestamp: true\n", "f:2: unknown key logging.hide_timestamp"},
      {"params:\n  cycle_time_ms: soon\n",
       "f:2: params.cycle_time_ms=soon: must be a number from 0 to 60000"},
      {"params:\n  fusion_threshold_mb: -1\n",
       "f:2: params.fusion_threshold_mb=-1: must be an integer"},
      {"params:\n\n  cache_capacity: [1]\n",
       "f:3: params.cache_capacity: must be one value, but is a list"},
      {"params:\n  cache_capacity:\n",
       "f:2: params.cache_capacity: must be one value, but is nothing"},
      {"params:\n  cache_capacity: {a: 1}\n", "but is a map"},
      {"autotune:\n  enabled: perhaps\n",
       "f:2: autotune.enabled=perhaps: must be 1 or 0, true or false"},
      {"autotune:\n  gaussian_process_noise: 2\n", "must be a number from 0 to 1"},
      {"library_options:\n  thread_affinity: [0, [1]]\n", "every item must be an integer"},
      {"params: 3\n", "f:1: params: must be a map of settings"},
      {"just words\n", "f:1: must be sections of settings"},
      {"- a\n- b\n", "must be sections of settings"},
      {"params:\n  cycle_time_ms: 1\n  cycle_time_ms: 2\n",
       "f:3: params.cycle_time_ms is given twice"},
      {"controller: mpi\n", "f:1: controller: mpi: launching through MPI is not in this version"},
      {"controller: carrier-pigeon\n", "controller: must be gloo"},
      {"ssh:\n  host_key: no\n", "f:2: ssh.host_key=no: must be accept-new, strict or off"},
      {"ssh:\n  identity_file: [a, '']\n", "every item must be a text that is not empty"},
      {"ssh:\n  known_hosts_file: [a]\n", "must be one value, but is a list"},
      {"network:\n  interfaces: eth0\n",
       "f:2: unknown key network.interfaces; did you mean interface?"},
      {"network:\n  advertise_address: here\n", "must be an IPv4 or IPv6 address"},
      {"output:\n  tag: host\n", "f:2: output.tag=host: must be rank or none"},
      {"params: {cycle_time_ms: 1\n", "not YAML"},
      {"params:\n\t- x\n", "not YAML"},
      {"launch: {hosts: 'a:1', hostfile: h}\n", "give one of them"},
      {std::string(100'000, '['), "not YAML"},
      {std::string("\0\1\2\xff", 4), "f"},
  };
  for (const auto& [text, expected] : rows) {
    const auto values = parse_config(text, "f");
    ASSERT_FALSE(values.ok()) << expected;
    EXPECT_NE(values.status().message().find(expected), std::string::npos)
        << values.status().message();
  }
}

TEST(ConfigFile, AFileThatCannotBeReadIsNamed) {
  const test::TemporaryDirectory directory;
  const auto missing = read_config_file((directory.path() / "none.yaml").string());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("none.yaml: No such file"), std::string::npos)
      << missing.status().message();
  const auto folder = read_config_file(directory.path().string());
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.status().message().find("directory"), std::string::npos);
  const auto huge = read_config_file("/dev/zero");
  ASSERT_FALSE(huge.ok());
  EXPECT_NE(huge.status().message().find("larger than 1,048,576 bytes"), std::string::npos);
}

}  // namespace
}  // namespace hvd::cli
