// Settings that a worker reads from its environment: an unreadable value is an error, which names
// the variable, and never the same as a variable that is not set.
#include "worker/process/settings.h"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace hvd::worker {
namespace {

EnvironmentLookup with(std::string variable, std::string value) {
  return [variable = std::move(variable),
          value = std::move(value)](std::string_view name) -> std::optional<std::string> {
    if (name == variable) return value;
    return std::nullopt;
  };
}

void expect_refused(const Status& status, const std::string& variable, const std::string& value) {
  EXPECT_EQ(status.code(), Code::invalid_argument) << variable << "=" << value;
  EXPECT_NE(status.message().find(variable + "=" + value), std::string::npos) << status.message();
}

TEST(WorkerSettings, RefuseValuesThatCannotBeRead) {
  const std::multimap<std::string, std::string> bad{
      {"HVD_FUSION_THRESHOLD", "64MB"},
      {"HVD_CYCLE_TIME", "fast"},
      {"HVD_CACHE_CAPACITY", "-1"},
      {"HVD_DETERMINISTIC", "maybe"},
      {"HVD_DYNAMIC_PROCESS_SETS", "2"},
      {"HVD_HIERARCHICAL_ALLREDUCE", "ture"},
      {"HVD_AUTOTUNE", "on off"},
      {"HVD_AUTOTUNE_WARMUP_SAMPLES", "three"},
      {"HVD_SHARED_MEMORY", "-"},
      {"HVD_NUM_NCCL_STREAMS", "1.5"},
      {"HVD_STALL_CHECK_TIME_SECONDS", "60s"},
      {"HVD_STALL_CHECK_DISABLE", "no way"},
      {"HVD_GLOO_TIMEOUT_SECONDS", "nan"},
      {"HVD_TRANSPORT", "gloo_tcp"},
      {"HVD_SOCKETS_PER_PAIR", "0x2"},
      {"HVD_DATA_SECURITY", "tls"},
      {"HVD_PORT_RANGE", "40000"},
      {"HVD_PORT_RANGE", "40999-40000"},
      {"HVD_PORT_RANGE", "0-9"},
      {"HVD_START_TIMEOUT", "soon"},
      {"HVD_INIT_TIMEOUT", "1m"},
      {"HVD_TIMELINE_MARK_CYCLES", "sometimes"},
      {"HOROVOD_FUSION_THRESHOLD", "64MB"},
  };
  for (const auto& [variable, value] : bad) {
    expect_refused(settings_from_environment(with(variable, value)).status(), variable, value);
  }
}

EnvironmentLookup with_all(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(WorkerSettings, ListenersTakePortsOfTheRangeAndLeaveMasterPortToTheProgram) {
  const auto settings = settings_from_environment(
      with_all({{"HVD_PORT_RANGE", "40000-40999"}, {"MASTER_PORT", "40007"}}));
  ASSERT_TRUE(settings.ok()) << settings.status().message();
  EXPECT_EQ(settings->config.ports.range, (PortRange{40000, 40999}));
  EXPECT_EQ(settings->config.ports.avoided, 40007);

  const auto any = settings_from_environment(with("MASTER_PORT", "40007"));
  ASSERT_TRUE(any.ok());
  EXPECT_FALSE(any->config.ports.range);
}

TEST(WorkerSettings, RefuseARangeOfPortsForATransportThatTakesNone) {
  const auto settings = settings_from_environment(
      with_all({{"HVD_PORT_RANGE", "40000-40999"}, {"HVD_TRANSPORT", "gloo-tcp"}}));
  expect_refused(settings.status(), "HVD_PORT_RANGE", "40000-40999");
  EXPECT_NE(settings.status().message().find("is for HVD_TRANSPORT=hvd"), std::string::npos);
}

TEST(WorkerSettings, RefuseProtectionWhereNothingIsProtected) {
  for (const auto& [variable, value] :
       std::multimap<std::string, std::string>{{"HVD_TRANSPORT", "gloo-tcp"},
                                               {"HVD_CPU_OPERATIONS", "mpi"},
                                               {"HVD_CPU_OPERATIONS", "ccl"}}) {
    const auto settings = settings_from_environment(
        with_all({{"HVD_DATA_SECURITY", "encrypted"}, {variable, value}}));
    expect_refused(settings.status(), "HVD_DATA_SECURITY", "encrypted");
    EXPECT_NE(settings.status().message().find(value + " protects nothing"), std::string::npos);
    EXPECT_TRUE(settings_from_environment(with(variable, value)).ok()) << value;
  }
  const auto usual = settings_from_environment(with_all({}));
  ASSERT_TRUE(usual.ok());
  EXPECT_EQ(usual->config.data_security, Protection::integrity);
  const auto encrypted = settings_from_environment(with("HVD_DATA_SECURITY", "encrypted"));
  ASSERT_TRUE(encrypted.ok());
  EXPECT_EQ(encrypted->config.data_security, Protection::encrypted);
}

TEST(WorkerSettings, RefuseCoresLimitsAndLogLevelsThatCannotBeRead) {
  expect_refused(core_from_environment(with("HVD_THREAD_AFFINITY", "0,x"), 1, 2).status(),
                 "HVD_THREAD_AFFINITY", "0,x");
  expect_refused(core_from_environment(with("HVD_THREAD_AFFINITY", "0,4"), 2, 3).status(),
                 "HVD_THREAD_AFFINITY", "0,4");
  expect_refused(on_device_limit(with("HVD_STATE_ON_DEVICE_LIMIT", "half")).status(),
                 "HVD_STATE_ON_DEVICE_LIMIT", "half");
  expect_refused(apply_log_settings(with("HVD_LOG_LEVEL", "LOUD"), "rank 0"), "HVD_LOG_LEVEL",
                 "LOUD");
}

TEST(WorkerSettings, AStateIsWrittenEverySoOftenOnlyToAFile) {
  const auto both = state_file(with_all({{"HVD_STATE_FILE", "f"}, {"HVD_STATE_EVERY", "1.5"}}));
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_EQ(both->file, "f");
  EXPECT_EQ(both->every, std::chrono::milliseconds(1'500));
  EXPECT_EQ(state_file(with("HVD_STATE_FILE", "f"))->every.count(), 0);
  EXPECT_EQ(state_file(with_all({}))->file, "");
  expect_refused(state_file(with("HVD_STATE_EVERY", "1.5")).status(), "HVD_STATE_EVERY", "1.5");
  expect_refused(state_file(with("HVD_STATE_EVERY", "soon")).status(), "HVD_STATE_EVERY", "soon");
}

int core_of(const std::string& cores, int local_rank, int local_size) {
  const auto core =
      core_from_environment(with("HVD_THREAD_AFFINITY", cores), local_rank, local_size);
  EXPECT_TRUE(core.ok()) << core.status().message();
  return core.ok() ? *core : -2;
}

TEST(WorkerSettings, CoresAreOneForAllOrOneForEachLocalRank) {
  EXPECT_EQ(core_of("3", 1, 2), 3);
  EXPECT_EQ(core_of("0,4", 1, 2), 4);
  EXPECT_EQ(core_of("", 0, 1), -1) << "not set";
}

}  // namespace
}  // namespace hvd::worker
