#include "driver/journal/replay.h"

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/text.h"
#include "driver/journal/journal.h"
#include "driver/journal/journal_json.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

constexpr auto kMaxClock = static_cast<std::uint64_t>(Duration::max().count() / 8);

std::vector<std::string> texts_of(const Json& actions) {
  std::vector<std::string> texts;
  for (const auto& action : actions) texts.push_back(action.dump());
  return texts;
}

// No line of a journal is nested deeper, and all its numbers are whole.
Json parsed(const std::string& line) {
  constexpr int kMaxDepth = 32;
  const auto may_be = [](int depth, Json::parse_event_t /*event*/, const Json& value) {
    return depth < kMaxDepth && !value.is_number_float();
  };
  return Json::parse(line, may_be, false);
}

std::string text_at(const Json& json, const char* field) {
  const auto text = json.find(field);
  return text != json.end() && text->is_string() ? text->get<std::string>() : std::string();
}

// Makes the job of the first line.
Result<std::unique_ptr<Job>> begin(const Json& head, Replayed& replayed) {
  const auto schema = head.find("schema");
  if (schema == head.end() || !schema->is_number_integer()) {
    return Status(Code::data_loss, "it is not the journal of a job");
  }
  if (*schema != kJournalSchema) {
    return Status(Code::failed_precondition, cat("it is of schema ", schema->dump(),
                                                 "; this hvdrun reads schema ", kJournalSchema));
  }
  replayed.job_id = text_at(head, "job");
  replayed.build = text_at(head, "build");
  const auto start = head.find("start");
  auto job_start = job_start_from(start == head.end() ? Json() : *start);
  if (!job_start.ok()) return job_start.status();
  return job_start->make();
}

// The state machine trusts hvdrun that a host of an event is one of its hosts.
Status check(const Event& event, const Job& job) {
  const std::size_t hosts = job.hosts().size();
  return std::visit(
      [&](const auto& value) -> Status {
        if constexpr (requires { value.host == HostIndex{}; }) {
          if (value.host >= hosts) {
            return {Code::data_loss, cat("there is no host ", value.host, "; there are ", hosts)};
          }
        }
        return {};
      },
      event);
}

Status step(Job& job, const Json& line, std::size_t number, Replayed& replayed) {
  auto event = event_from(line);
  if (!event.ok()) return event.status();
  const auto clock = line.find("clock");
  if (clock == line.end() || !clock->is_number_unsigned() || *clock > kMaxClock) {
    return {Code::data_loss, "\"clock\" is missing or not a valid time"};
  }
  HVD_RETURN_IF_ERROR(check(*event, job));

  const auto actions = job.step(*event, TimePoint(Duration(clock->get<Duration::rep>())));
  Json now = Json::array();
  for (const auto& action : actions) {
    now.push_back(Json::parse(
        json_of(action, job.hosts()).dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  const auto then = line.find("actions");
  const Json decided = then == line.end() ? Json::array() : *then;
  ++replayed.events;
  replayed.actions += actions.size();
  if (decided != now) {
    replayed.difference = {number, json_of(*event, job.hosts()).dump(), texts_of(decided),
                           texts_of(now)};
  }
  return {};
}

}  // namespace

Result<Replayed> replay(std::istream& journal) {
  Replayed replayed;
  std::unique_ptr<Job> job;
  std::string text;
  for (std::size_t number = 1; std::getline(journal, text); ++number) {
    // A line without an end is not complete.
    if (journal.eof()) {
      replayed.is_cut_off = true;
      break;
    }
    const Json line = parsed(text);
    const std::string where = cat("line ", number);
    if (!line.is_object()) return Status(Code::data_loss, cat(where, ": it is not a JSON object"));

    if (!job) {
      auto begun = begin(line, replayed);
      if (!begun.ok()) return begun.status().with_context(where);
      job = std::move(*begun);
      continue;
    }
    if (line.contains("abridged")) {
      replayed.is_abridged = true;
      break;
    }
    HVD_RETURN_IF_ERROR(step(*job, line, number, replayed).with_context(where));
    if (replayed.difference) return replayed;
  }
  if (journal.bad()) return Status(Code::unavailable, "it cannot be read to its end");
  if (!job) return Status(Code::data_loss, "it has no complete line");
  replayed.is_finished = job->state() == JobState::finished;
  return replayed;
}

}  // namespace hvd::driver
