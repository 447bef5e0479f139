// Journals of jobs. That each decision of a job is taken again is tested with all jobs of the
// golden scripts and some of each simulation (kept_journal.h).
#include "driver/journal/journal.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string_view>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "driver/journal/journal_json.h"
#include "driver/journal/journal_reader.h"
#include "driver/journal/replay.h"
#include "tests/driver/journal/kept_journal.h"
#include "tests/support/process.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

// Each kind of event once, with another value in each field than it begins with.
const std::vector<Event>& all_events() {
  static const std::vector<Event> kAll{
      event::Begin{},
      event::HostProgress{1, Step::host_key},
      event::AgentReady{2, {3, 4}},
      event::HostFailed{1, {Step::find_program, "there is no \"train\"\n", 127}},
      event::AddressesChosen{{"10.0.0.1", "fe80::1"}},
      event::Heard{1},
      event::Unserved{2},
      event::AgentGone{1, "was killed"},
      event::AgentBroken{1, "it lies"},
      event::Launched{1, 2, 345},
      event::LaunchFailed{1, 2, 8, "Exec format error"},
      event::Initialised{1, 2},
      event::Done{1, 2},
      event::Exited{1, 2, 3, 9, true, true, 1ULL << 63U},
      event::HostsFound{{{{"a", 4, 8, "me@a", "me", 2222, "10.0.0.1"}, true, true}, {{"b", 0}}}},
      event::DiscoveryFailed{"no such script"},
      event::AddressFound{1, "10.0.0.2", "10.0.0.1:4711"},
      event::HostLeaves{1, true, milliseconds(30'000)},
      event::WorkerReady{1, 2},
      event::LeaveRequested{1, 2},
      event::WorkerLeft{1, 2, "no memory", true},
      event::Described{1, 2, "it sleeps"},
      event::Committed{1, 2, 3},
      event::Saving{1, 2, 30, 4, true},
      event::WorldEntered{2, 3, Duration(1), Duration(20), Duration(300), Duration(4'000),
                          Duration(50'000), Duration(600'000), 7'000'000, 12},
      event::StopRequested{15},
      event::SuspendRequested{10},
      event::FoundSlow{1, 2, false},
      event::DrainRequested{"b", true},
      event::ScaleRequested{3},
      event::Resumed{std::chrono::nanoseconds(1'234'567'890'123)},
      event::TakenOver{2, std::chrono::nanoseconds(1'234'567'890)},
      event::Quiet{{{1, Duration(2)}, {0, Duration(30)}}, {{2, Duration(400)}}},
      event::Tick{},
  };
  return kAll;
}

// Has gone through no step.
const Job& idle() {
  static const Job kIdle{JobOptions{}};
  return kIdle;
}

// An elastic job with heartbeats, one worker on each host, and what it writes down.
class JobWithJournal {
 public:
  explicit JobWithJournal(std::size_t hosts) : start_(start()), job_(start_.make()) {
    happens(event::Begin{});
    event::HostsFound found;
    for (std::size_t host = 0; host < hosts; ++host) found.hosts.push_back({{cat("h", host), 1}});
    happens(found);
    for (HostIndex host = 0; host < hosts; ++host) {
      happens(event::AgentReady{host, {}});
      happens(event::AddressFound{host, cat("10.0.0.", host)});
    }
    for (const auto& worker : job_->workers()) {
      happens(event::Launched{worker.host, worker.member.incarnation, 11});
      happens(event::Initialised{worker.host, worker.member.incarnation});
    }
  }

  std::vector<Action> happens(const Event& event) {
    auto actions = job_->step(event, now_);
    journal_.step(event, actions, *job_, now_);
    return actions;
  }
  // Each host but `silent` is heard every third of a second, and ticks come when they are due.
  // Returns what was decided.
  std::vector<Action> pass(std::chrono::seconds time, std::optional<HostIndex> silent = {}) {
    std::vector<Action> decided;
    const auto take = [&](const std::vector<Action>& actions) {
      decided.insert(decided.end(), actions.begin(), actions.end());
    };
    for (const TimePoint end = now_ + time; now_ < end;) {
      const TimePoint turn = now_ + milliseconds(333);
      for (HostIndex host = 0; host < job_->hosts().size(); ++host) {
        now_ += std::chrono::microseconds(7);
        if (host != silent) take(happens(event::Heard{host}));
        if (host % 5 == 0) take(happens(event::Unserved{host}));
      }
      while (job_->next_deadline() <= turn) {
        now_ = std::max(now_, job_->next_deadline());
        take(happens(event::Tick{}));
      }
      now_ = turn;
    }
    return decided;
  }

  void stand_still(std::chrono::seconds time) { now_ += time; }

  const Job& job() const { return *job_; }
  TimePoint now() const { return now_; }
  const std::string& text() { return journal_.text(); }
  std::string wrong() { return journal_.wrong(); }

 private:
  static JobStart start() {
    JobStart start;
    start.options.job_id = "a0";
    start.options.heartbeat_timeout = milliseconds(3'000);
    start.options.orphan_timeout = milliseconds(9'000);
    start.options.pace = milliseconds(100);
    return start;
  }

  JobStart start_;
  std::unique_ptr<Job> job_;
  KeptJournal journal_{start_};
  TimePoint now_{std::chrono::hours(1)};
};

// Two hosts, quiet for a while, and then the job is stopped.
std::string journal_of_a_job() {
  JobWithJournal job(2);
  job.pass(std::chrono::seconds(2));
  job.happens(event::Described{0, 1, "it runs"});
  job.pass(std::chrono::seconds(70));
  job.happens(event::StopRequested{SIGINT});
  EXPECT_EQ(job.wrong(), "");
  return job.text();
}

Result<Replayed> replay_text(const std::string& text) {
  std::istringstream in(text);
  return replay(in);
}

TEST(JournalJson, EachEventComesBackFromIt) {
  std::vector<bool> seen(std::variant_size_v<Event>);
  for (const auto& event : all_events()) {
    seen[event.index()] = true;
    const Json json = json_of(event, {});
    const auto again = event_from(Json::parse(json.dump()));
    ASSERT_TRUE(again.ok()) << json << again.status().to_string();
    EXPECT_EQ(again->index(), event.index()) << json;
    EXPECT_EQ(json_of(*again, {}), json);
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << "an event is not tried here";
}

// A field that is missing, or is of another kind, is an error that names it.
// Files are read by programs that know these names.
TEST(JournalJson, NamesStandForWhatTheySay) {
  EXPECT_EQ(json_of(Event(event::Heard{}), {}).at("event"), "heard");
  EXPECT_EQ(json_of(Event(event::Unserved{}), {}).at("event"), "unserved");
  EXPECT_EQ(json_of(Event(event::Initialised{}), {}).at("event"), "initialised");
  EXPECT_EQ(json_of(Event(event::Done{}), {}).at("event"), "done");
  EXPECT_EQ(json_of(Event(event::AgentGone{}), {}).at("event"), "agent_gone");
  EXPECT_EQ(json_of(Event(event::AgentBroken{}), {}).at("event"), "agent_broken");
  EXPECT_EQ(json_of(Event(event::WorkerReady{}), {}).at("event"), "worker_ready");
  EXPECT_EQ(json_of(Event(event::LeaveRequested{}), {}).at("event"), "leave_requested");
  EXPECT_EQ(json_of(Event(event::HostLeaves{}), {}).at("event"), "host_leaves");
  EXPECT_EQ(json_of(Event(event::StopRequested{}), {}).at("event"), "stop_requested");
  EXPECT_EQ(json_of(Event(event::SuspendRequested{}), {}).at("event"), "suspend_requested");
  EXPECT_EQ(json_of(Action(action::StartAgent{}), {}).at("action"), "start_agent");
  EXPECT_EQ(json_of(Action(action::FindAddress{}), {}).at("action"), "find_address");
  EXPECT_EQ(json_of(Action(action::DropAgent{}), {}).at("action"), "drop_agent");
  EXPECT_EQ(json_of(Action(action::KillWorkers{}), {}).at("action"), "kill_workers");
  EXPECT_EQ(json_of(Action(action::DescribeWorker{}), {}).at("action"), "describe_worker");
  EXPECT_EQ(json_of(Action(action::ChooseAddresses{}), {}).at("action"), "choose_addresses");
  EXPECT_EQ(json_of(Action(action::PlanStands{}), {}).at("action"), "plan_stands");
}

TEST(JournalJson, AnEventThatLacksAFieldIsRefused) {
  for (const auto& event : all_events()) {
    const Json json = json_of(event, {});
    for (const auto& [field, value] : json.items()) {
      Json lacks = json;
      lacks.erase(field);
      EXPECT_FALSE(event_from(lacks).ok()) << lacks;
      Json wrong = json;
      wrong[field] = Json::array({Json::array()});
      EXPECT_FALSE(event_from(wrong).ok()) << wrong;
    }
  }
  const auto unknown = event_from(Json{{"event", "no such\x1b one"}});
  EXPECT_NE(unknown.status().message().find("no event is called"), std::string::npos);
  EXPECT_EQ(unknown.status().message().find('\x1b'), std::string::npos);
  EXPECT_FALSE(event_from(Json::array()).ok());
}

TEST(JournalJson, TheStartOfEachKindOfJobComesBackFromIt) {
  JobOptions options;
  options.job_id = "a0";
  options.local_hosts = {"a"};
  options.elastic.budget.policy = FailurePolicy::host;
  options.elastic.jitter_seed = ~0ULL;
  WorldMember member;
  member.host = "a";
  for (const JobStart& start :
       {JobStart{options, JobStart::Elastic{}}, JobStart{options, std::vector{member}},
        JobStart{options, PlanRequest{{{"a", 0}}, 3, false}}}) {
    const Json json = json_of(start);
    const auto again = job_start_from(Json::parse(json.dump()));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(again->workers.index(), start.workers.index());
    EXPECT_EQ(json_of(*again), json);
  }
}

// Each kind of action once.
const std::vector<Action>& all_actions() {
  static const std::vector<Action> kAll{
      action::PublishWorld{{"a0", 1, WorldState::effective, {{0, "a", 0, 1, "10.0.0.1"}}},
                           "b is gone"},
      action::StartAgent{1},
      action::ChooseAddresses{},
      action::PlanStands{},
      action::FindAddress{1},
      action::VoidCommits{2},
      action::Launch{1, {0, "a", 0, 1, "10.0.0.1"}},
      action::StopWorkers{1, 2, milliseconds(5'000), "enough"},
      action::KillWorkers{1},
      action::DescribeWorker{1, 2},
      action::ShutDownAgent{1, 3},
      action::DropAgent{1},
      action::Say{action::Say::To::warning, "b is gone"},
      action::Answer{true, "host b is drained"},
      action::Finish{1, JobFailure{1, "a", 0, 1, 7, "exited", {{"a", {}}}}, "over"},
      action::Finish{},
  };
  return kAll;
}

TEST(JournalSchema, DescribesEachEventAndEachAction) {
  std::set<std::size_t> kinds;
  for (const auto& action : all_actions()) kinds.insert(action.index());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Action>) << "an action is not tried here";

  WorldMember member;
  std::string text;
  for (const JobStart& start : {JobStart{}, JobStart{{}, std::vector{member}},
                                JobStart{{}, PlanRequest{{{"a", 0}}, 3, false}}}) {
    text += journal_head({.id = "a0"}, start);
  }
  for (const auto& event : all_events()) text += journal_line(event, {}, {}, {}, {});
  for (const auto& action : all_actions()) {
    text += journal_line(event::Begin{}, {action}, {}, {}, {});
  }
  const test::TemporaryDirectory directory;
  const auto checked =
      test::run({"/usr/bin/python3", HVD_SOURCE_DIR "/tests/driver/journal/check_schema.py",
                 HVD_SOURCE_DIR "/docs/events.schema.json", directory.file("journal", text)});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(checked.out, cat(1 + std::variant_size_v<Event>, " kinds of lines fit\n"));
}

// As the job that is told of all events, up to the last moment.
TEST(QuietStretches, LeadToTheSameJob) {
  JobWithJournal written(100);
  const std::size_t begun = written.text().size();
  EXPECT_EQ(written.pass(std::chrono::hours(1)).size(), 0U);
  const std::string text = written.text();
  EXPECT_LT(text.size() - begun, 10'000U) << "of 100 hosts in an hour";

  std::istringstream in(text);
  JournalReader reader(in);
  const auto head = reader.head();
  ASSERT_TRUE(head.ok()) << head.status().to_string();
  const auto again = head->start.make();
  TimePoint last{};
  for (;;) {
    const auto step = reader.next(*again);
    ASSERT_TRUE(step.ok()) << step.status().to_string();
    if (!*step) break;
    EXPECT_GE((*step)->now, last);
    last = (*step)->now;
    again->step((*step)->event, last);
  }
  const TimePoint now = written.now();
  EXPECT_LT(now - last, std::chrono::seconds(1));
  EXPECT_EQ(again->longest_silence(now), written.job().longest_silence(now));
  EXPECT_EQ(again->own_time(now), written.job().own_time(now));
  EXPECT_EQ(again->waiting_for(now), written.job().waiting_for(now));
}

// Each verdict on a host is the one that was written, at the same tick.
TEST(QuietStretches, HoldTheLastWordOfEachHost) {
  for (int late = 0; late < 40; ++late) {
    JobWithJournal job(6);
    job.pass(std::chrono::seconds(100 + late));
    job.happens(event::Described{0, 1, "it runs"});
    job.pass(std::chrono::seconds(late % 3));
    EXPECT_NE(job.pass(std::chrono::seconds(20), HostIndex{3}).size(), 0U) << "a host was silent";
    job.pass(std::chrono::seconds(5));
    ASSERT_EQ(job.wrong(), "") << late;
  }
}

// A gap in which nothing was noted is another matter than a stretch in which nothing happened.
TEST(QuietStretches, HoldNoHoldUp) {
  JobWithJournal job(2);
  const auto lines = [&] { return std::count(job.text().begin(), job.text().end(), '\n'); };
  const auto begun = lines();
  job.pass(std::chrono::seconds(5));
  EXPECT_EQ(lines(), begun + 1);
  job.stand_still(std::chrono::seconds(5));
  const auto said = job.happens(event::Tick{});
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(std::get<action::Say>(said[0]).text.find("was held up"), std::string::npos);
  job.pass(std::chrono::seconds(5));
  EXPECT_EQ(job.wrong(), "");
}

TEST(QuietStretches, OfAHostThatIsNotThereAreRefused) {
  const std::string head = journal_head({.id = "a0"}, {});
  for (const char* const words :
       {"\"heard\": [[7, 1]], \"unserved\": []", "\"heard\": [], \"unserved\": [[7, 1]]"}) {
    const auto replayed =
        replay_text(cat(head, "{\"event\": \"quiet\", \"clock\": 1, ", words, "}\n"));
    ASSERT_FALSE(replayed.ok());
    EXPECT_NE(replayed.status().message().find("line 2: there is no host 7"), std::string::npos);
  }
}

TEST(Replay, ADecisionThatIsAnotherOneNowIsShownWithItsLine) {
  std::string text = journal_of_a_job();
  const auto at = text.find("10.0.0.1");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 8, "10.9.9.9");
  const auto replayed = replay_text(text);
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  ASSERT_TRUE(replayed->difference);
  EXPECT_FALSE(replayed->difference->then.empty());
  EXPECT_NE(replayed->difference->then, replayed->difference->now);
}

// As after a crash of hvdrun, or while it runs.
TEST(Replay, AJournalMayEndAnywhere) {
  const std::string text = journal_of_a_job();
  const std::size_t head = text.find('\n') + 1;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const auto replayed = replay_text(text.substr(0, size));
    EXPECT_EQ(replayed.ok(), size >= head) << size;
    if (!replayed.ok()) continue;
    EXPECT_FALSE(replayed->difference) << size;
    EXPECT_EQ(replayed->is_cut_off, text[size - 1] != '\n') << size;
    EXPECT_FALSE(replayed->is_finished);
  }
}

// The next driver gets each step up to there, and no part of one.
TEST(JournalReader, GivesTheWholeLinesOfAJournalThatIsCutAnywhere) {
  const std::string text = journal_of_a_job();
  const std::size_t head = text.find('\n') + 1;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    SCOPED_TRACE(size);
    const std::string_view part = std::string_view(text).substr(0, size);
    const auto lines = static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
    const std::size_t whole = part.rfind('\n') == std::string_view::npos ? 0 : part.rfind('\n') + 1;
    std::istringstream in((std::string(part)));
    JournalReader reader(in);
    const auto begun = reader.head();
    if (size < head) {
      EXPECT_EQ(begun.status().code(), Code::not_found);
      EXPECT_EQ(reader.is_cut_off(), size > 0);
      continue;
    }
    ASSERT_TRUE(begun.ok()) << begun.status().to_string();
    const auto job = begun->start.make();
    std::string again = reader.text();
    for (;;) {
      const auto step = reader.next(*job);
      ASSERT_TRUE(step.ok()) << step.status().to_string();
      if (!*step) break;
      again += reader.text();
      job->step((*step)->event, (*step)->now);
    }
    EXPECT_EQ(again, text.substr(0, whole));
    EXPECT_EQ(reader.whole(), whole);
    EXPECT_EQ(reader.line(), lines);
    EXPECT_EQ(reader.is_cut_off(), whole != size);
    // It stays at its end.
    const auto more = reader.next(*job);
    ASSERT_TRUE(more.ok());
    EXPECT_FALSE(*more);
  }
}

// Lines that were lost, came twice or in another order end in an error or a difference.
TEST(Replay, ALineInAWrongPlaceHarmsNothing) {
  std::vector<std::string> lines;
  std::istringstream in(journal_of_a_job());
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  std::mt19937 random(1);
  const auto any = [&] { return 1 + random() % (lines.size() - 1); };
  int wrong = 0;
  for (int run = 0; run < 2'000; ++run) {
    auto some = lines;
    for (int change = 0; change < 3; ++change) {
      if (random() % 2 == 0) std::swap(some[any()], some[any()]);
      if (random() % 2 == 0) some[any()] = lines[any()];
    }
    const auto replayed = replay_text(join(some, ""));
    if (!replayed.ok() || replayed->difference) ++wrong;
  }
  EXPECT_GT(wrong, 1'000);
}

TEST(Replay, AFileThatIsNoJournalIsRefusedWithTheLine) {
  const std::string head = journal_head({.id = "a0"}, {});
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"", "no complete line"},
           {"hello\n", "line 1: it is not a JSON object"},
           {"{}\n", "line 1: it is not the journal of a job"},
           {"{\"schema\": 2}\n", "line 1: it is of schema 2; this hvdrun reads schema 3"},
           {"{\"schema\": 3}\n", "line 1: it is not the beginning of a job"},
           {head + "[1]\n", "line 2: it is not a JSON object"},
           {head + "{\"event\": \"begin\"}\n", "line 2: \"clock\" is missing"},
           {head + "{\"event\": \"heard\", \"host\": 7, \"clock\": 1}\n",
            "line 2: there is no host 7"},
           {head + "{\"event\": \"heard\", \"host\": -1, \"clock\": 1}\n",
            "line 2: there is no host"},
           {head + "{\"event\": \"heard\", \"host\": 0.9, \"clock\": 1}\n", "type must be number"},
           {head + "{\"event\": \"heard\", \"host\": 1e300, \"clock\": 1}\n",
            "type must be number"},
           {head + "{\"event\": \"begin\", \"clock\": 9223372036854775807}\n",
            "or not a valid time"},
           {head + "{\"event\": \"begin\", \"clock\": -1}\n", "or not a valid time"},
           {head + "{\"event\": \"resumed\", \"stopped\": -9223372036854775808, \"clock\": 1}\n",
            "is not a valid time"},
           {"{\"schema\": 3, \"job\": 5, \"build\": [], \"start\": {}}\n", "'options' not found"},
           {"{\"schema\": 3, \"start\": " + std::string(200'000, '[') + "\n", "line 1: "},
           {head + "{\"event\": \"begin\", \"clock\": 1, \"actions\": " +
                std::string(200'000, '[') + std::string(200'000, ']') + ", \"clock\": -1}\n",
            "or not a valid time"}}) {
    const auto replayed = replay_text(text);
    ASSERT_FALSE(replayed.ok()) << text;
    EXPECT_NE(replayed.status().message().find(error), std::string::npos)
        << replayed.status().message();
  }
}

class JournalFile : public testing::Test {
 protected:
  std::string file() const { return directory_.path() / "journal"; }
  std::string content() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(JournalFile, IsTheUsersAloneAndReplacesAnOlderOne) {
  std::ofstream(file()) << "old";
  std::filesystem::remove(file());
  ASSERT_TRUE(Journal::create(file()).ok());
  struct stat about {};
  ASSERT_EQ(::stat(file().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);

  auto journal = Journal::create(file());
  ASSERT_TRUE(journal.ok());
  const JobStart start;
  EXPECT_TRUE(journal->begin({.id = "a0"}, start).ok());
  EXPECT_TRUE(journal->flush().ok());
  EXPECT_EQ(content(), journal_head({.id = "a0"}, start));
  EXPECT_TRUE(journal->step(event::Begin{}, {}, idle(), {}, {}).ok());
  EXPECT_TRUE(journal->flush().ok());
  EXPECT_EQ(content(),
            journal_head({.id = "a0"}, start) + journal_line(event::Begin{}, {}, {}, {}, {}));
}

// Neither is an older journal lost before the new one begins.
TEST_F(JournalFile, IsLeftAloneWhileAnotherHvdrunWritesIt) {
  auto first = Journal::create(file());
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(first->begin({.id = "a0"}, {}).ok());
  const auto second = Journal::create(file());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("is in use by another hvdrun"), std::string::npos);

  first = Status(Code::unavailable, "closed");
  auto third = Journal::create(file());
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  EXPECT_EQ(content(), journal_head({.id = "a0"}, {}));
  ASSERT_TRUE(third->begin({.id = "b1"}, {}).ok());
  ASSERT_TRUE(third->flush().ok());
  EXPECT_EQ(content(), journal_head({.id = "b1"}, {}));
}

// Nobody reads at first, and later too slowly.
TEST_F(JournalFile, MayBeAPipeAndNeverHoldsUpHvdrun) {
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_FALSE(Journal::create(file()).ok());
  const UniqueFd reader(::open(file().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  auto journal = Journal::create(file());
  ASSERT_TRUE(journal.ok()) << journal.status().to_string();
  Status written = journal->begin({.id = "a0"}, {});
  for (int line = 0; written.ok() && line < 10'000; ++line) {
    written = journal->step(event::Begin{}, {}, idle(), {}, {});
  }
  if (written.ok()) written = journal->flush();
  EXPECT_FALSE(written.ok());
}

// The next hvdrun appends to what the one before has left.
TEST_F(JournalFile, IsGoneOnWithAfterItsLastWholeLine) {
  const std::string text = journal_of_a_job();
  for (std::size_t size = 0; size <= text.size(); ++size) {
    std::ofstream(file(), std::ios::trunc) << text.substr(0, size);
    auto journal = Journal::resume(file());
    ASSERT_TRUE(journal.ok()) << size << journal.status().to_string();
    std::size_t whole = content().size();
    ASSERT_EQ(content(), text.substr(0, whole)) << size;
    ASSERT_TRUE(whole == 0 || text[whole - 1] == '\n') << size;
    ASSERT_EQ(text.find('\n', whole) >= size, true) << size << ": a whole line was cut";
    while (whole < text.size()) {
      const std::size_t end = text.find('\n', whole) + 1;
      ASSERT_TRUE(journal->copy(text.substr(whole, end - whole)).ok());
      whole = end;
    }
    // The disk takes its time.
    ASSERT_TRUE((size == text.size() ? journal->sync() : journal->flush()).ok()) << size;
    ASSERT_EQ(content(), text) << size;
  }
  const auto replayed = replay_text(content());
  ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
  EXPECT_FALSE(replayed->difference);
}

TEST_F(JournalFile, IsGoneOnWithAfterATailOfAnySize) {
  const std::string line = journal_line(event::Begin{}, {}, {}, {}, {});
  for (const std::size_t tail : {65'535U, 65'536U, 65'537U, 200'000U}) {
    std::ofstream(file(), std::ios::trunc) << line << std::string(tail, 'x');
    ASSERT_TRUE(Journal::resume(file()).ok());
    EXPECT_EQ(content(), line) << tail;
    std::ofstream(file(), std::ios::trunc) << std::string(tail, 'x');
    ASSERT_TRUE(Journal::resume(file()).ok());
    EXPECT_EQ(content(), "") << tail;
  }
}

TEST_F(JournalFile, IsNotGoneOnWithWhileAnotherHvdrunWritesIt) {
  const auto first = Journal::create(file());
  ASSERT_TRUE(first.ok());
  const auto second = Journal::resume(file());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("is in use by another hvdrun"), std::string::npos);
}

TEST_F(JournalFile, IsNamedInTheErrorIfItCannotBeCreated) {
  const auto journal = Journal::create(file() + "/journal");
  ASSERT_FALSE(journal.ok());
  EXPECT_NE(journal.status().message().find(file()), std::string::npos);
}

// As on a full disk: the error is told once, and nothing is written after the gap.
TEST_F(JournalFile, EndsWhereItCannotGrow) {
  auto journal = Journal::create("/dev/full");
  ASSERT_TRUE(journal.ok()) << journal.status().to_string();
  Status failed = journal->begin({.id = "a0"}, {});
  if (failed.ok()) failed = journal->flush();
  EXPECT_EQ(failed.code(), Status::from_errno("", ENOSPC).code());
  EXPECT_NE(failed.message().find("/dev/full"), std::string::npos);
  EXPECT_TRUE(journal->step(event::Begin{}, {}, idle(), {}, {}).ok());
  EXPECT_TRUE(journal->flush().ok());
  EXPECT_FALSE(journal->is_open());
  EXPECT_EQ(journal->missing(), 2U);
}

TEST_F(JournalFile, EndsBeforeItIsLargerThanItMayBe) {
  const std::string head = journal_head({.id = "a0"}, {});
  const std::string line = journal_line(event::Begin{}, {}, {}, {}, {});
  auto journal = Journal::create(file(), head.size() + line.size());
  ASSERT_TRUE(journal->begin({.id = "a0"}, {}).ok());
  EXPECT_TRUE(journal->step(event::Begin{}, {}, idle(), {}, {}).ok());
  const Status full = journal->step(event::Begin{}, {}, idle(), {}, {});
  EXPECT_EQ(full.code(), Code::resource_exhausted);
  EXPECT_NE(full.message().find(file()), std::string::npos) << full.message();
  EXPECT_TRUE(journal->step(event::Begin{}, {}, idle(), {}, {}).ok()) << "the error is told once";
  EXPECT_FALSE(journal->is_open());
  ASSERT_TRUE(journal->flush().ok());
  EXPECT_EQ(journal->missing(), 2U) << "one too many, and one after the end";
  EXPECT_EQ(content(), head + line);
}

class KeptJournals : public testing::Test {
 protected:
  KeptJournals() { ::setenv("HVD_EVENTS_DIR", directory().c_str(), 1); }
  ~KeptJournals() override { ::unsetenv("HVD_EVENTS_DIR"); }

  std::string directory() const { return parent_.path() / "state"; }
  static std::string id_of(int job) { return cat("00000000000000", job < 10 ? "0" : "", job); }
  std::string journal_of(int job) const { return cat(directory(), "/", id_of(job), ".jsonl"); }
  // The job has ended: its file is not written any more.
  void add_journal(int job) {
    ASSERT_TRUE(create_kept_journal(id_of(job)).ok());
    const auto time =
        std::filesystem::file_time_type::clock::now() - std::chrono::hours(1'000 - job);
    std::filesystem::last_write_time(journal_of(job), time);
  }
  std::size_t count() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(directory()), {}));
  }

 private:
  test::TemporaryDirectory parent_;
};

TEST_F(KeptJournals, AreThoseOfTheLastJobs) {
  for (int job = 0; job < 25; ++job) add_journal(job);
  EXPECT_EQ(count(), kKeptJournals);
  EXPECT_FALSE(std::filesystem::exists(journal_of(4)));
  EXPECT_TRUE(std::filesystem::exists(journal_of(5)));
  struct stat about {};
  ASSERT_EQ(::stat(directory().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0700U);
}

TEST_F(KeptJournals, OfAJobThatRunsAndFilesOfOthersStay) {
  const auto running = create_kept_journal(id_of(0));
  ASSERT_TRUE(running.ok()) << running.status().to_string();
  std::filesystem::last_write_time(journal_of(0), {});
  for (const char* const mine : {"notes.txt", "data.jsonl", "0123456789abcdeg.jsonl"}) {
    std::ofstream(directory() + "/" + mine) << "mine";
    std::filesystem::last_write_time(directory() + "/" + mine, {});
  }
  std::filesystem::create_directory(directory() + "/" + id_of(98) + ".jsonl");
  std::filesystem::create_symlink("/dev/null", journal_of(99));
  for (int job = 1; job < 30; ++job) add_journal(job);
  EXPECT_TRUE(std::filesystem::exists(journal_of(0)));
  EXPECT_EQ(count(), kKeptJournals + 5);
}

TEST_F(KeptJournals, NeedADirectoryThatIsClosedToOthers) {
  std::filesystem::create_directory(directory());
  std::filesystem::permissions(directory(), std::filesystem::perms{0755});
  const auto open_to_others = create_kept_journal("0");
  ASSERT_FALSE(open_to_others.ok());
  EXPECT_NE(open_to_others.status().message().find("HVD_EVENTS_DIR names another one"),
            std::string::npos);
  EXPECT_EQ(count(), 0U);
}

}  // namespace
}  // namespace hvd::driver
