#include "base/knobs.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

namespace hvd {
namespace {

const Knob& knob(std::string_view variable) {
  const Knob* const found = find_knob_by_variable(variable);
  if (found == nullptr) throw std::runtime_error("no knob " + std::string(variable));
  return *found;
}

EnvironmentLookup environment(std::map<std::string, std::string> entries) {
  return [entries = std::move(entries)](std::string_view name) -> std::optional<std::string> {
    const auto found = entries.find(std::string(name));
    if (found == entries.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Knobs, EveryKnobHasItsOwnNamesAndADefaultThatIsAllowed) {
  std::set<std::string_view> names;
  for (const Knob& k : knobs()) {
    for (const auto name : {k.flag, k.config_key, k.variable, k.horovod_name}) {
      EXPECT_FALSE(name.empty()) << k.flag;
      EXPECT_TRUE(names.insert(name).second) << name << " is used twice";
    }
    EXPECT_FALSE(k.help.empty()) << k.flag;
    EXPECT_EQ(find_knob_by_variable(k.horovod_name), &k);
    if (k.default_text.empty()) continue;
    const auto value = knob_from_environment(
        k, environment({{std::string(k.variable), std::string(k.default_text)}}));
    ASSERT_TRUE(value.ok()) << value.status().message();
    EXPECT_EQ(*value, std::string(k.default_text));
  }
  EXPECT_EQ(find_knob_by_variable("HVD_NO_SUCH_THING"), nullptr);
}

TEST(Knobs, EveryTunableOfHorovodIsThere) {
  for (const char* const name : {"HOROVOD_FUSION_THRESHOLD",
                                 "HOROVOD_CYCLE_TIME",
                                 "HOROVOD_CACHE_CAPACITY",
                                 "HOROVOD_DYNAMIC_PROCESS_SETS",
                                 "HOROVOD_HIERARCHICAL_ALLREDUCE",
                                 "HOROVOD_HIERARCHICAL_ALLGATHER",
                                 "HOROVOD_TORUS_ALLREDUCE",
                                 "HOROVOD_AUTOTUNE",
                                 "HOROVOD_AUTOTUNE_LOG",
                                 "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
                                 "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
                                 "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
                                 "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
                                 "HOROVOD_TIMELINE",
                                 "HOROVOD_TIMELINE_MARK_CYCLES",
                                 "HOROVOD_STALL_CHECK_DISABLE",
                                 "HOROVOD_STALL_CHECK_TIME_SECONDS",
                                 "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
                                 "HOROVOD_MPI_THREADS_DISABLE",
                                 "HOROVOD_NUM_NCCL_STREAMS",
                                 "HOROVOD_THREAD_AFFINITY",
                                 "HOROVOD_GLOO_TIMEOUT_SECONDS",
                                 "NCCL_IB_DISABLE",
                                 "HOROVOD_LOG_LEVEL",
                                 "HOROVOD_LOG_HIDE_TIME"}) {
    EXPECT_NE(find_knob_by_variable(name), nullptr) << name;
  }
}

TEST(Knobs, AFlagsValueIsTurnedIntoTheEnvironmentsUnitAndSense) {
  EXPECT_EQ(*knob_environment_value(knob("HVD_FUSION_THRESHOLD"), "32"), "33554432");
  EXPECT_EQ(*knob_environment_value(knob("HVD_FUSION_THRESHOLD"), "0"), "0");
  EXPECT_EQ(*knob_environment_value(knob("HVD_CYCLE_TIME"), "2.5"), "2.5");
  EXPECT_EQ(*knob_environment_value(knob("HVD_AUTOTUNE"), "true"), "1");
  EXPECT_EQ(*knob_environment_value(knob("HVD_STALL_CHECK_DISABLE"), "1"), "0");
  EXPECT_EQ(*knob_environment_value(knob("HVD_STALL_CHECK_DISABLE"), "no"), "1");
  EXPECT_EQ(*knob_environment_value(knob("HVD_LOG_LEVEL"), "DEBUG"), "debug");
  EXPECT_EQ(*knob_environment_value(knob("HVD_THREAD_AFFINITY"), "0, 4,8"), "0,4,8");
  EXPECT_EQ(*knob_environment_value(knob("HVD_TIMELINE"), "/tmp/t.json"), "/tmp/t.json");
  EXPECT_EQ(*knob_environment_value(knob("HVD_PORT_RANGE"), "40000-40999"), "40000-40999");
}

TEST(Knobs, AValueThatIsNotAllowedIsRefusedWithTheFlagTheValueAndWhatIs) {
  const struct {
    const char* variable;
    const char* text;
    const char* message;
  } rows[] = {
      {"HVD_FUSION_THRESHOLD", "-1",
       "--fusion-threshold-mb=-1: must be an integer from 0 to 1048576"},
      {"HVD_FUSION_THRESHOLD", "1.5", "must be an integer"},
      {"HVD_FUSION_THRESHOLD", "99999999999999999999", "must be an integer"},
      {"HVD_FUSION_THRESHOLD", "", "must be an integer"},
      {"HVD_FUSION_THRESHOLD", "12 ", "must be an integer"},
      {"HVD_CYCLE_TIME", "-0.1", "--cycle-time-ms=-0.1: must be a number from 0 to 60000"},
      {"HVD_CYCLE_TIME", "nan", "must be a number"},
      {"HVD_CYCLE_TIME", "inf", "must be a number"},
      {"HVD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.01", "from 0 to 1"},
      {"HVD_AUTOTUNE", "maybe", "true or false"},
      {"HVD_SHARED_MEMORY", "2", "true or false"},
      {"HVD_LOG_LEVEL", "LOUD", "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"},
      {"HVD_LOG_LEVEL", "off", "TRACE"},
      {"HVD_THREAD_AFFINITY", "1,,2", "integers"},
      {"HVD_THREAD_AFFINITY", "1,x", "integers"},
      {"HVD_GLOO_TIMEOUT_SECONDS", "0", "--collective-timeout=0: must be an integer from 1 to"},
      {"HVD_TIMELINE", "", "not empty"},
      {"HVD_TRANSPORT", "tcp", "--transport=tcp: must be one of hvd, gloo-tcp"},
      {"HVD_DATA_SECURITY", "tls",
       "--data-security=tls: must be one of none, integrity, encrypted"},
      {"HVD_SOCKETS_PER_PAIR", "0", "--sockets-per-pair=0: "},
      {"HVD_SOCKETS_PER_PAIR", "17", "--sockets-per-pair=17: "},
      {"HVD_PORT_RANGE", "40000", "--port-range=40000: must be two ports from 1 to 65535 with a -"},
      {"HVD_PORT_RANGE", "0-40000", "--port-range=0-40000: "},
      {"HVD_PORT_RANGE", "40000-65536", "--port-range=40000-65536: "},
      {"HVD_PORT_RANGE", "40999-40000", "the smaller one first"},
  };
  for (const auto& row : rows) {
    const auto value = knob_environment_value(knob(row.variable), row.text);
    ASSERT_FALSE(value.ok()) << row.variable << "=" << row.text;
    EXPECT_NE(value.status().message().find(row.message), std::string::npos)
        << value.status().message();
  }
}

TEST(Knobs, OurVariableBeatsHorovodsAndAnEmptyOneSaysNothing) {
  const Knob& k = knob("HVD_FUSION_THRESHOLD");
  EXPECT_EQ(*knob_from_environment(k, environment({{"HOROVOD_FUSION_THRESHOLD", "7"}})), "7");
  EXPECT_EQ(*knob_from_environment(
                k, environment({{"HVD_FUSION_THRESHOLD", "8"}, {"HOROVOD_FUSION_THRESHOLD", "7"}})),
            "8");
  EXPECT_EQ(*knob_from_environment(
                k, environment({{"HVD_FUSION_THRESHOLD", ""}, {"HOROVOD_FUSION_THRESHOLD", "7"}})),
            "7");
  EXPECT_EQ(*knob_from_environment(k, environment({})), std::nullopt);
}

TEST(Knobs, AVariableIsInItsOwnUnitAndSenseAndItsErrorNamesIt) {
  EXPECT_EQ(*knob_from_environment(knob("HVD_STALL_CHECK_DISABLE"),
                                   environment({{"HOROVOD_STALL_CHECK_DISABLE", "1"}})),
            "1");
  const auto bad = knob_from_environment(knob("HVD_FUSION_THRESHOLD"),
                                         environment({{"HOROVOD_FUSION_THRESHOLD", "64MB"}}));
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(),
            "environment variable HOROVOD_FUSION_THRESHOLD=64MB: must be an integer from 0 to "
            "1099511627776");
}

}  // namespace
}  // namespace hvd
