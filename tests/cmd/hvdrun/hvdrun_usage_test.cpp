// Output of hvdrun that starts nothing.
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/process.h"
#include "tests/support/texts.h"

namespace hvd::test {
namespace {

TEST(HvdrunUsage, HelpVersionAndCheckBuildEndWithZero) {
  const auto help = run({binary("hvdrun"), "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(contains(help.out, "-np, --num-proc N")) << help.out;
  EXPECT_TRUE(contains(help.out, "--[no-]stall-check")) << help.out;
  const auto version = run({binary("hvdrun"), "-v"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("hvdrun 0.")) << version.out;
  const auto build = run({binary("hvdrun"), "-cb"});
  EXPECT_EQ(build.code, 0);
  EXPECT_TRUE(contains(build.out, "[X] Gloo")) << build.out;
}

TEST(HvdrunUsage, TheDryRunShowsThePlanAndWarnsOfOversubscription) {
  const auto status =
      run({binary("hvdrun"), "-np", "16", "-H", "a:4,b:4", "--dry-run", "./train", "a b"});
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_TRUE(contains(status.out, "15    b     7     7 of 8     1 of 2")) << status.out;
  EXPECT_TRUE(contains(status.out, ": ./train 'a b'\n")) << status.out;
  EXPECT_TRUE(status.err.starts_with("hvdrun: warning: ")) << status.err;
}

TEST(HvdrunUsage, AProgramThatStartsAnotherOneElsewhereHasAWarning) {
  const auto elsewhere = run(
      {binary("hvdrun"), "-np", "2", "--dry-run", "/usr/bin/docker", "run", "image", "./train"});
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_TRUE(
      contains(elsewhere.err, "hvdrun: warning: docker starts the program outside of the worker"))
      << elsewhere.err;
  EXPECT_TRUE(contains(elsewhere.err, "run hvdrun inside of the container")) << elsewhere.err;
  const auto here = run({binary("hvdrun"), "-np", "2", "--dry-run", "sudo", "./train"});
  EXPECT_FALSE(contains(here.err, "outside of the worker")) << here.err;
}

struct Useless {
  Arguments flags;
  std::string warning;  // "": there is none
};

TEST(HvdrunUsage, AFlagThatAnotherOneMakesUselessHasAWarning) {
  const std::string check = " has no effect with --no-stall-check";
  const std::vector<Useless> rows{
      {{"--autotune-log-file", "t"}, "--autotune-log-file has no effect without --autotune"},
      {{"--no-autotune", "--autotune-warmup-samples", "1"},
       "--autotune-warmup-samples has no effect without --autotune"},
      {{"--autotune-steps-per-sample", "1"},
       "--autotune-steps-per-sample has no effect without --autotune"},
      {{"--autotune", "--autotune-steps-per-sample", "1"}, ""},
      {{"--no-stall-check", "--stall-check-warning-time-seconds", "1"},
       "--stall-check-warning-time-seconds" + check},
      {{"--no-stall-check", "--stall-check-shutdown-time-seconds", "1"},
       "--stall-check-shutdown-time-seconds" + check},
      {{"--stall-check-shutdown-time-seconds", "1"}, ""},
      {{"--tag-output", "none", "--prefix-output-with-timestamp"},
       "--prefix-output-with-timestamp has no effect with --tag-output none"},
      {{"--tag-output", "none", "--no-prefix-output-with-timestamp"}, ""},
      {{"--prefix-output-with-timestamp"}, ""},
      {{"--timeline-mark-cycles"}, "--timeline-mark-cycles has no effect without --timeline"},
      {{"--timeline-mark-cycles", "--timeline-filename", "DYNAMIC"},
       "--timeline-mark-cycles has no effect with --timeline-filename DYNAMIC"},
      {{"--timeline-mark-cycles", "--timeline-filename", "t"}, ""},
      {{"--ssh-host-key", "off", "--ssh-known-hosts", "k"},
       "--ssh-known-hosts has no effect with --ssh-host-key off"},
      {{"--ssh-known-hosts", "k"}, ""},
  };
  for (const Useless& row : rows) {
    Arguments words{binary("hvdrun"), "--dry-run"};
    words.insert(words.end(), row.flags.begin(), row.flags.end());
    words.emplace_back("p");
    const auto status = run(words);
    EXPECT_EQ(status.code, 0) << status.err;
    const bool is_warned = !row.warning.empty();
    EXPECT_EQ(status.err.empty(), !is_warned) << status.err;
    if (is_warned)
      EXPECT_TRUE(status.err.starts_with("hvdrun: warning: " + row.warning)) << status.err;
  }
}

TEST(HvdrunUsage, AUselessSettingIsNamedByItsKeyAndNotWarnedOfInTheEnvironment) {
  const TemporaryDirectory directory;
  const auto file = directory.file("job.yaml", "autotune: {log_file: t}\n").string();
  const auto keyed = run({binary("hvdrun"), "--config-file", file, "--dry-run", "p"});
  EXPECT_EQ(keyed.err, "hvdrun: warning: " + file +
                           ":1: autotune.log_file has no effect without --autotune\n");
  ProcessOptions options;
  options.environment = {{"HOROVOD_AUTOTUNE_LOG", "t"}};
  EXPECT_EQ(run({binary("hvdrun"), "--dry-run", "p"}, options).err, "");
}

TEST(HvdrunUsage, WithoutHostsItIsThisMachine) {
  const auto one = run({binary("hvdrun"), "--dry-run", "p"});
  EXPECT_TRUE(contains(one.out, "0     localhost  0     0 of 1     0 of 1\nin ")) << one.out;
  EXPECT_FALSE(contains(one.out, "\n1 ")) << one.out;
  const auto three = run({binary("hvdrun"), "-np", "3", "--dry-run", "p"});
  EXPECT_TRUE(contains(three.out, "2     localhost  2     2 of 3     0 of 1\nin ")) << three.out;
  EXPECT_EQ(three.err, "");
}

TEST(HvdrunUsage, WithoutNpEverySlotIsTaken) {
  const auto status =
      run({binary("hvdrun"), "-H", "a:1,b", "--slots-per-host", "2", "--dry-run", "p"});
  EXPECT_TRUE(contains(status.out, "2     b     1     1 of 2     0 of 1\nin ")) << status.out;
}

TEST(HvdrunUsage, FlagBeatsFileBeatsEnvironment) {
  const TemporaryDirectory directory;
  const auto file = directory.file("job.yaml",
                                   "params:\n  cycle_time_ms: 2\n  cache_capacity: 2\n"
                                   "launch:\n  num_proc: 2\n");
  ProcessOptions options;
  options.environment = {{"HOROVOD_CYCLE_TIME", "1"},
                         {"HOROVOD_CACHE_CAPACITY", "1"},
                         {"HOROVOD_NUM_NCCL_STREAMS", "1"}};
  const auto status = run({binary("hvdrun"), "--config-file", file.string(), "--cycle-time-ms", "3",
                           "--print-env", "p"},
                          options);
  EXPECT_EQ(status.code, 0) << status.err;
  for (const char* const line :
       {"HVD_CYCLE_TIME=3\n", "HOROVOD_CYCLE_TIME=3\n", "HVD_CACHE_CAPACITY=2\n",
        "HOROVOD_CACHE_CAPACITY=2\n", "HVD_NUM_NCCL_STREAMS=1\n", "HOROVOD_NUM_NCCL_STREAMS=1\n"}) {
    EXPECT_TRUE(contains(status.out, line)) << line << " in:\n" << status.out;
  }
  const auto plan = run({binary("hvdrun"), "--config-file", file.string(), "--dry-run", "p"});
  EXPECT_TRUE(contains(plan.out, "\n1     localhost")) << plan.out;
  EXPECT_FALSE(contains(plan.out, "\n2     localhost")) << plan.out;
}

TEST(HvdrunUsage, PrintEnvShowsWhatIsPassedAndWhatIsNot) {
  ProcessOptions options;
  options.environment = {{"HVD_TEST_SEEN", "a b"}, {"OLDPWD", "/x"}, {"HVD_TEST_HIDDEN", "h"}};
  const auto status = run(
      {binary("hvdrun"), "--env", "ADDED=1", "--env-exclude", "*HIDDEN", "--print-env"}, options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_TRUE(contains(status.out, "HVD_TEST_SEEN='a b'\n")) << status.out;
  EXPECT_TRUE(contains(status.out, "ADDED=1\n")) << status.out;
  EXPECT_FALSE(contains(status.out, "OLDPWD")) << status.out;
  EXPECT_FALSE(contains(status.out, "HIDDEN")) << status.out;
}

TEST(HvdrunUsage, PrintEnvSaysWhatEachHostAdds) {
  ProcessOptions options;
  options.environment = {{"HOME", "/somewhere"}, {"USER", "me"}};
  const auto status = run({binary("hvdrun"), "--env", "USER", "--print-env"}, options);
  EXPECT_TRUE(contains(status.out, "\n# from each host, where it has them: ")) << status.out;
  EXPECT_TRUE(contains(status.out, " HOME ")) << status.out;
  EXPECT_FALSE(contains(status.out, "/somewhere")) << status.out;
  EXPECT_TRUE(contains(status.out, "USER=me\n")) << status.out;
}

TEST(HvdrunUsage, TheWorkersPwdIsWhereTheyStart) {
  ProcessOptions options;
  options.environment = {{"PWD", "/elsewhere"}};
  const auto status = run({binary("hvdrun"), "-wd", "/usr", "--print-env"}, options);
  EXPECT_TRUE(contains(status.out, "PWD=/usr\n")) << status.out;
}

TEST(HvdrunUsage, TheDryRunOfHostsThatJoinMakesNoToken) {
  const TemporaryDirectory directory;
  ProcessOptions options;
  options.working_directory = directory.path();
  const auto status =
      run({binary("hvdrun"), "--join-bind", "0.0.0.0:4000", "-np", "3", "--dry-run", "p"}, options);
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_TRUE(status.out.starts_with("3 workers on the hosts that join\n")) << status.out;
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "hvd-token"));
}

TEST(HvdrunUsage, AnOutputThatIsFullOrClosedIsAnError) {
  const auto full = run({"sh", "-c", "exec " + binary("hvdrun") + " --version > /dev/full"});
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(contains(full.err, "No space left on device")) << full.err;
  const auto closed = run({"sh", "-c", "exec " + binary("hvdrun") + " --version >&-"});
  EXPECT_EQ(closed.code, 1);
  EXPECT_TRUE(contains(closed.err, "Bad file descriptor")) << closed.err;
}

TEST(HvdrunUsage, TheRendezvousServesByItselfAndMakesItsToken) {
  const TemporaryDirectory directory;
  ProcessOptions options;
  options.working_directory = directory.path();
  Process process({binary("hvdrun"), "rendezvous", "--bind", "127.0.0.1:0"}, options);
  ASSERT_TRUE(process.wait_for_output("http://127.0.0.1:")) << process.err();
  EXPECT_GE(read_file(directory.path() / "hvd-token").size(), 64U);
  process.signal(SIGTERM);
  const auto status = process.wait();
  EXPECT_EQ(status.code, 0) << status.err;
}

}  // namespace
}  // namespace hvd::test
