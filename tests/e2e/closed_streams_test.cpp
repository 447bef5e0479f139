// Programs that print although they have closed their standard streams, or were started without
// them: the output must not get into hvd's connections, locks and memory.
#include <ostream>
#include <string>

#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

// The way between the workers, and the flags of hvdrun that choose it.
struct Transport {
  const char* name;
  Words flags;
};

std::ostream& operator<<(std::ostream& out, const Transport& transport) {
  return out << transport.name;
}

class ClosedStreamsTest : public JobTest, public testing::WithParamInterface<Transport> {
 protected:
  void expect_all_work(const Words& command) {
    Words words{"-np", "3"};
    words.insert(words.end(), GetParam().flags.begin(), GetParam().flags.end());
    words.insert(words.end(), command.begin(), command.end());
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 0) << end.err;
  }
};

TEST_P(ClosedStreamsTest, AProgramWithoutThemWorks) {
  const std::string command = "exec " + binary("e2e_works") + " --steps 50 --print";
  expect_all_work({"sh", "-c", command + " <&- >&- 2>&-"});
}

TEST_P(ClosedStreamsTest, AProgramThatClosesThemAfterInitWorks) {
  expect_all_work({binary("e2e_works"), "--steps", "50", "--close", "--print"});
}

INSTANTIATE_TEST_SUITE_P(All, ClosedStreamsTest,
                         testing::Values(Transport{"SharedMemory", {}},
                                         Transport{"Connections", {"--no-shared-memory"}}),
                         [](const auto& instance) { return instance.param.name; });

class ClosedStreamsElasticTest : public ElasticJobTest {};

TEST_F(ClosedStreamsElasticTest, TheNextWorldLeavesTheirNumbersFree) {
  Process& job = start_training({"-np", "3", "--min-np", "2", "--no-shared-memory"}, {"--closed"});
  const auto world = step_logs().wait_for_world(3);
  ASSERT_NE(world, 0) << step_logs().summary() << job.err();
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary() << job.err();
  kill_rank(2);
  ASSERT_NE(step_logs().wait_for_world(3, world), 0) << step_logs().summary() << job.err();
  EXPECT_TRUE(step_logs().wait_for_steps_more(5)) << step_logs().summary() << job.err();
  finish(job);
}

}  // namespace
}  // namespace hvd::test
