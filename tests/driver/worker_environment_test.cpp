#include "driver/run/worker_environment.h"

#include <gtest/gtest.h>
#include <map>

#include "base/protocol/agent_link.h"
#include "driver/job/plan.h"

namespace hvd::driver {
namespace {

JobEnvironment job() { return {"job7", 3, "127.0.0.1", 4711, "lo", "127.0.0.1", 2345}; }

std::map<std::string, std::string> of_rank(std::size_t rank,
                                           const std::vector<std::string>& base = {}) {
  const auto plan = plan_static({{"w0", 1}, {"w1", 2}}, 3, true);
  std::map<std::string, std::string> result;
  // The agent merges both in this way.
  agent_link::Program program;
  program.environment = base;
  agent_link::Launch launch;
  HostEnvironment host = place_in_world(plan->members, plan->members[rank]);
  host.cores = 7;
  host.workers = plan->members[rank].local_size;
  launch.environment = worker_environment(base, job(), plan->members[rank], host);
  for (const auto& entry : complete(program, launch).environment) {
    const auto equals = entry.find('=');
    EXPECT_TRUE(result.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second)
        << entry << " stands there twice";
  }
  return result;
}

TEST(WorkerEnvironment, tells_a_worker_who_it_is_in_our_names_horovods_and_torchs) {
  const std::map<std::string, std::string> expected{
      {"HVD_RANK", "2"},
      {"HVD_SIZE", "3"},
      {"HVD_LOCAL_RANK", "1"},
      {"HVD_LOCAL_SIZE", "2"},
      {"HVD_CROSS_RANK", "0"},
      {"HVD_CROSS_SIZE", "1"},
      {"HVD_HOSTNAME", "w1"},
      {"HVD_WORKER", "w1#1"},
      {"HVD_JOB_ID", "job7"},
      {"HVD_RENDEZVOUS_ADDR", "127.0.0.1"},
      {"HVD_RENDEZVOUS_PORT", "4711"},
      {"HOROVOD_HOSTNAME", "w1"},
      {"HOROVOD_RANK", "2"},
      {"HOROVOD_SIZE", "3"},
      {"HOROVOD_LOCAL_RANK", "1"},
      {"HOROVOD_LOCAL_SIZE", "2"},
      {"HOROVOD_CROSS_RANK", "0"},
      {"HOROVOD_CROSS_SIZE", "1"},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"},
      {"HOROVOD_GLOO_IFACE", "lo"},
      {"HOROVOD_CONTROLLER", "gloo"},
      {"HOROVOD_CPU_OPERATIONS", "gloo"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"RANK", "2"},
      {"WORLD_SIZE", "3"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", "2"},
      {"ROLE_WORLD_SIZE", "3"},
      {"TORCHELASTIC_RUN_ID", "job7"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"OMP_NUM_THREADS", "3"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "2345"},
  };
  EXPECT_EQ(of_rank(2), expected);
}

TEST(WorkerEnvironment, replaces_what_an_outer_job_left_and_keeps_the_rest) {
  const auto result = of_rank(0, {"PATH=/bin", "RANK=99", "HVD_RANK=99", "EMPTY=", "EQUALS=a=b"});
  EXPECT_EQ(result.at("RANK"), "0");
  EXPECT_EQ(result.at("HVD_RANK"), "0");
  EXPECT_EQ(result.at("PATH"), "/bin");
  EXPECT_EQ(result.at("EMPTY"), "");
  EXPECT_EQ(result.at("EQUALS"), "a=b");
}

TEST(WorkerEnvironment, leaves_the_number_of_threads_to_the_person) {
  EXPECT_EQ(of_rank(2, {"OMP_NUM_THREADS=5"}).at("OMP_NUM_THREADS"), "5");
  EXPECT_EQ(of_rank(0).at("OMP_NUM_THREADS"), "7");
  EXPECT_EQ(of_rank(0, {"PYTHONUNBUFFERED=0"}).at("PYTHONUNBUFFERED"), "0");
}

TEST(WorkerEnvironment, counts_restarts) {
  JobEnvironment job{"job7", 1, "127.0.0.1", 4711, "lo", "127.0.0.1", 2345};
  job.restarts = 3;
  job.max_restarts = -1;
  const auto environment = worker_environment({}, job, {}, {});
  EXPECT_EQ(value_of(environment, "TORCHELASTIC_RESTART_COUNT"), "3");
  EXPECT_EQ(value_of(environment, "TORCHELASTIC_MAX_RESTARTS"), "2147483647");
  EXPECT_EQ(value_of(environment, "OMP_NUM_THREADS"), "1");
}

TEST(WorkerEnvironment, leaves_the_choice_of_network_interfaces_to_the_person) {
  const auto result = of_rank(0, {"HOROVOD_GLOO_IFACE=eth7"});
  EXPECT_EQ(result.at("HOROVOD_GLOO_IFACE"), "eth7");
  EXPECT_EQ(result.at("NCCL_SOCKET_IFNAME"), "lo");
}

}  // namespace
}  // namespace hvd::driver
