// `hvdrun --events FILE` and `hvdrun replay FILE`.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/e2e/elastic_job.h"

namespace hvd::test {
namespace {

using Json = nlohmann::json;

class JournalTest : public ElasticJobTest {
 protected:
  std::string file() const { return (directory() / "events").string(); }
  std::vector<Json> lines() const {
    std::vector<Json> all;
    std::ifstream in(file());
    for (std::string line; std::getline(in, line);) {
      all.push_back(Json::parse(line, nullptr, false));
    }
    return all;
  }
  void expect_replayed(const std::string& how) {
    const ExitStatus replayed = run_job({"replay", file()});
    EXPECT_EQ(replayed.code, 0) << replayed.err;
    const auto checked =
        run({"/usr/bin/python3", HVD_SOURCE_DIR "/tests/driver/journal/check_schema.py",
             HVD_SOURCE_DIR "/docs/events.schema.json", file()});
    EXPECT_EQ(checked.code, 0) << checked.err;
    for (const auto& text : {how, std::string("; all decisions agree\n")}) {
      EXPECT_NE(replayed.out.find(text), std::string::npos) << replayed.out;
    }
  }
};

TEST_F(JournalTest, TellsOfAnElasticJobWithALoss) {
  Process& job = start_training({"--events", file(), "-np", "3", "--min-np", "2"});
  ASSERT_TRUE(step_logs().wait_for_step(5)) << job.err();
  expect_replayed("and the job goes on");
  kill_rank(1);
  ASSERT_TRUE(step_logs().wait_for_steps_more(5)) << job.err();
  ASSERT_TRUE(eventually([&] {
    const auto all = lines();
    return std::any_of(all.begin(), all.end(), [](const Json& line) {
      return line.value("event", "") == "world_entered" && line.at("generation") != 1;
    });
  })) << job.err();
  finish(job);
  expect_replayed("up to the end of the job");

  const auto all = lines();
  EXPECT_EQ(all.at(0).at("schema"), 3);
  EXPECT_EQ(all.at(0).at("elastic"), true);
  EXPECT_FALSE(all.at(0).at("command").empty());
  bool killed = false;
  std::set<std::string> events;
  std::set<std::string> actions;
  std::string why;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const Json& line = all[i];
    events.insert(line.at("event"));
    if (line.at("event") == "exited" && line.at("signal_number") == SIGKILL) {
      killed = true;
      EXPECT_EQ(line.at("host_name"), "localhost");
    }
    for (const Json& action : line.value("actions", Json::array())) {
      actions.insert(action.at("action"));
      if (action.at("action") == "publish_world")
        why = cat(why, action.at("why").get<std::string>());
    }
  }
  EXPECT_TRUE(killed);
  EXPECT_EQ(events.count("quiet"), 1U);
  EXPECT_NE(why.find("SIGKILL"), std::string::npos) << why;
  for (const char* const event : {"begin", "hosts_found", "agent_ready", "launched", "initialised",
                                  "worker_ready", "done", "agent_gone"}) {
    EXPECT_EQ(events.count(event), 1U) << event;
  }
  for (const char* const action : {"start_agent", "launch", "publish_world", "finish"}) {
    EXPECT_EQ(actions.count(action), 1U) << action;
  }
  EXPECT_EQ(all.back().at("actions").back().at("exit_code"), 0);
}

TEST_F(JournalTest, TellsOfAStaticJobThatFails) {
  EXPECT_EQ(run_job({"--events", file(), "-np", "2", "sh", "-c", "exit 3"}).code, 3);
  expect_replayed("up to the end of the job");
  EXPECT_EQ(lines().back().at("actions").back().at("failure").at("cause"), "exited with code 3");
}

// hvdrun may be killed at any point.
TEST_F(JournalTest, OfAKilledHvdrunIsWholeUpToThen) {
  Process& job = start({"--events", file(), "-np", "1", "sleep", "1000"});
  ASSERT_TRUE(eventually([&] { return lines().size() > 4; }));
  crash(job);
  expect_replayed("");
}

TEST_F(JournalTest, IsKeptWhenNobodyNamesAFile) {
  const std::string kept = (directory() / "state").string();
  const auto with_state_in = [](const std::string& where, Words words) {
    words.insert(words.begin(), {"env", cat("HVD_EVENTS_DIR=", where), binary("hvdrun")});
    return words;
  };
  const ExitStatus failed = run(with_state_in(kept, {"-np", "1", "sh", "-c", "exit 3"}));
  EXPECT_EQ(failed.code, 3) << failed.err;
  const auto named = failed.err.find(cat("; events in ", kept, "/"));
  ASSERT_NE(named, std::string::npos) << failed.err;
  const auto begin = named + std::string_view("; events in ").size();
  const std::string journal = failed.err.substr(begin, failed.err.find('\n', begin) - begin);
  EXPECT_EQ(run_job({"replay", journal}).code, 0) << journal;

  // A job that went well is kept, too, and says nothing of it.
  const ExitStatus well = run(with_state_in(kept, {"-np", "1", "true"}));
  EXPECT_EQ(well.err.find("events in"), std::string::npos) << well.err;
  const auto files = [&kept] {
    return std::distance(std::filesystem::directory_iterator(kept), {});
  };
  EXPECT_EQ(files(), 2);
  EXPECT_EQ(run(with_state_in(kept, {"--events", "none", "-np", "1", "true"})).code, 0);
  EXPECT_EQ(files(), 2);

  // A job that cannot begin leaves nothing.
  EXPECT_EQ(run(with_state_in(kept, {"--metrics-bind", "203.0.113.1:1", "-np", "1", "true"})).code,
            1);
  EXPECT_EQ(files(), 2);
  const ExitStatus nowhere = run(with_state_in("/proc/nowhere", {"-np", "1", "true"}));
  EXPECT_EQ(nowhere.code, 0) << nowhere.err;
  EXPECT_NE(nowhere.err.find("the events of this job are not kept: make the directory "),
            std::string::npos)
      << nowhere.err;
}

TEST_F(JournalTest, EndsTheJobBeforeItBeginsIfItCannotBeWritten) {
  const ExitStatus end = run_job({"--events", file() + "/no/file", "-np", "1", "echo", "started"});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("--events: open events file "), std::string::npos) << end.err;
}

TEST_F(JournalTest, AtItsSizeLimitIsLostWithAWarning) {
  const ExitStatus end =
      run({"prlimit", "--fsize=100", binary("hvdrun"), "--events", file(), "-np", "1", "true"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("its journal (--events) ends here: write "), std::string::npos) << end.err;
}

// It is lost, and the job is not.
TEST_F(JournalTest, OnAFullDiskIsLostWithAWarning) {
  const ExitStatus end = run_job({"--events", "/dev/full", "-np", "1", "true"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("its journal (--events) ends here: write /dev/full"), std::string::npos)
      << end.err;
}

TEST_F(JournalTest, ReplayRefusesAFileThatIsNoJournal) {
  EXPECT_EQ(run_job({"replay"}).code, 2);
  EXPECT_EQ(run_job({"replay", "a", "b"}).code, 2);
  for (const auto& [name, error] : std::vector<std::pair<std::string, std::string>>{
           {file(), "open "},
           {directory().string(), "is a directory"},
           {directory_file("empty"), "no complete line"},
           {directory_file("rubbish", "rubbish\n"), "rubbish: line 1: it is not a JSON object"}}) {
    const ExitStatus end = run_job({"replay", name});
    EXPECT_EQ(end.code, 1) << name;
    EXPECT_NE(end.err.find(error), std::string::npos) << end.err;
  }
}

}  // namespace
}  // namespace hvd::test
