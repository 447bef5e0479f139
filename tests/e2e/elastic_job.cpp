#include "tests/e2e/elastic_job.h"

#include <csignal>

namespace hvd::test {

namespace fs = std::filesystem;

Process& ElasticJobTest::start_training(const Words& flags, const Words& program_flags) {
  Words words = flags;
  words.insert(words.end(), {binary("elastic_steps"), "--log", (directory() / "step_logs").string(),
                             "--orders", (directory() / "orders").string(), "--until",
                             (directory() / "enough").string(), "--verify"});
  words.insert(words.end(), program_flags.begin(), program_flags.end());
  return start(words);
}

ExitStatus ElasticJobTest::finish(Process& job, const StepLogRules& rules) {
  say_enough();
  ExitStatus end = job.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(step_logs_.errors(rules), "") << end.err;
  expect_nobody_left("the job");
  return end;
}

pid_t ElasticJobTest::pid_of_rank(int rank) {
  step_logs_.read();
  const auto members = step_logs_.members();
  if (static_cast<std::size_t>(rank) >= members.size()) {
    ADD_FAILURE() << "there is no rank " << rank << "\n" << step_logs_.summary();
    return -1;
  }
  return members[static_cast<std::size_t>(rank)]->pid;
}

void ElasticJobTest::kill_rank(int rank, int signal_number) {
  const pid_t pid = pid_of_rank(rank);
  if (pid <= 0) return;
  EXPECT_EQ(kill_one(pid, signal_number), 0);
}

void ElasticJobTest::replace_file(const std::string& name, const std::string& content) {
  const std::string made = directory_file("made", content);
  fs::rename(made, directory() / name);
}

void ElasticJobTest::order(const std::string& worker, const std::string& point,
                           const std::string& action) {
  replace_file("orders/" + worker + "." + point, action + "\n");
}

bool ElasticJobTest::was_obeyed(const std::string& worker, const std::string& point) const {
  return !fs::exists(directory() / ("orders/" + worker + "." + point));
}

std::string ElasticJobTest::discovery_script(const std::string& first_answer) {
  discover(first_answer);
  discover_by("cat " + (directory() / "hosts").string());
  return (directory() / "discover.sh").string();
}

void ElasticJobTest::discover(const std::string& answer) { replace_file("hosts", answer); }

void ElasticJobTest::discover_by(const std::string& commands) {
  const std::string made = directory_file("made", "#!/bin/sh\n" + commands + "\n");
  fs::permissions(made, fs::perms::owner_all);
  fs::rename(made, directory() / "discover.sh");
}

}  // namespace hvd::test
