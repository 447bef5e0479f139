// The main job on hosts where nothing of ours is installed.
#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class TrainingOnHostsTest : public ManyHostsTest {
 protected:
  // Two or four hosts that hold the program and its text, and nothing else.
  void make_training_bed(int hosts) {
    make_bed({.hosts = hosts});
    for (int number = 1; number <= hosts; ++number) {
      host(number).place(binary("train"));
      host(number).place(kText);
    }
  }
  static Words training(Words words, const std::string& steps = "12") {
    words.insert(words.end(),
                 {"--steps", steps, "--log-every", "3", "--batch", "64", "--hidden", "48"});
    return words;
  }
  // Without the speed, which is never the same twice; the last line has a digest of all weights.
  static Words curve_of(const std::string& output) {
    Words lines;
    for (const auto& line : lines_of_rank(output, 0)) {
      lines.push_back(line.starts_with("step") ? line.substr(0, line.find("  ", 12)) : line);
    }
    return lines;
  }
  static Words curve_on_one_host(const std::string& workers) {
    const ExitStatus end = run([&] {
      Words words{binary("hvdrun"),       "-np",           workers,  "-H",
                  "localhost:" + workers, binary("train"), "--text", kText};
      return training(words);
    }());
    EXPECT_EQ(end.code, 0) << end.err;
    return curve_of(end.out);
  }
};

TEST_F(TrainingOnHostsTest, SixteenWorkersOnTwoHostsLearnWhatSixteenOnOneDo) {
  make_training_bed(2);
  const ExitStatus end =
      run_job(training({"-np", "16", "-H", bed().host_list(4), "./train", "--text", "LICENSE"}));
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const auto curve = curve_of(end.out);
  ASSERT_GE(curve.size(), 6U) << end.out;
  EXPECT_TRUE(curve.back().starts_with("weights identical on all 16 workers")) << end.out;
  EXPECT_EQ(curve, curve_on_one_host("16"));
}

TEST_F(TrainingOnHostsTest, FourWorkersOnFourHostsLearnWhatFourOnOneDo) {
  make_training_bed(4);
  const ExitStatus end =
      run_job(training({"-np", "4", "-H", bed().host_list(1), "./train", "--text", "LICENSE"}));
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_TRUE(curve_of(end.out).back().starts_with("weights identical on all 4 workers"))
      << end.out;
  EXPECT_EQ(curve_of(end.out), curve_on_one_host("4"));
}

TEST_F(TrainingOnHostsTest, ATrainingGoesOnAfterACutWithinTheLeaseAsIfNothingHadBeen) {
  make_training_bed(2);
  const Words words{
      "--heartbeat-timeout", "20", "-H", bed().host_list(2), "./train", "--text", "LICENSE"};
  const ExitStatus calm = run_job(training(words, "200"));
  ASSERT_EQ(calm.code, 0) << calm.err;
  Process& job = start(training(words, "200"));
  ASSERT_TRUE(job.wait_for_output("step")) << job.err();
  bed().cut(host(1), host(2));
  bed().cut_off(host(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the fault itself
  bed().heal();
  const ExitStatus end = job.wait(std::chrono::seconds(120));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(curve_of(end.out), curve_of(calm.out));
}

}  // namespace
}  // namespace hvd::test
