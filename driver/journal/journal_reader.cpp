#include "driver/journal/journal_reader.h"

#include <utility>
#include <variant>

#include "base/text.h"
#include "driver/journal/journal.h"
#include "driver/journal/journal_json.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

constexpr auto kMaxClock = static_cast<std::uint64_t>(Duration::max().count() / 8);

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

std::vector<std::string> texts_at(const Json& json, const char* field) {
  std::vector<std::string> texts;
  const auto list = json.find(field);
  if (list == json.end() || !list->is_array()) return texts;
  for (const auto& text : *list) {
    if (text.is_string()) texts.push_back(text.get<std::string>());
  }
  return texts;
}

// The state machine trusts hvdrun that a host of an event is one of its hosts.
Status check(const Event& event, const Job& job) {
  const std::size_t hosts = job.hosts().size();
  const auto check_host = [hosts](HostIndex host) -> Status {
    if (host < hosts) return {};
    return {Code::data_loss, cat("there is no host ", host, "; there are ", hosts)};
  };
  if (const auto* const quiet = std::get_if<event::Quiet>(&event)) {
    for (const auto* const words : {&quiet->heard, &quiet->unserved}) {
      for (const auto& word : *words) HVD_RETURN_IF_ERROR(check_host(word.host));
    }
  }
  return std::visit(
      [&](const auto& value) -> Status {
        if constexpr (requires { value.host == HostIndex{}; }) return check_host(value.host);
        return {};
      },
      event);
}

}  // namespace

Status JournalReader::with_line(const Status& status) const {
  return status.with_context(cat("line ", line_));
}

Result<std::optional<Json>> JournalReader::next_line() {
  if (!std::getline(journal_, text_) || journal_.eof()) {
    if (journal_.bad()) return Status(Code::unavailable, "it cannot be read to its end");
    is_cut_off_ = is_cut_off_ || !text_.empty();
    return std::optional<Json>();
  }
  ++line_;
  Json line = parsed(text_);
  text_ += '\n';
  if (!line.is_object()) return with_line({Code::data_loss, "it is not a JSON object"});
  whole_ += text_.size();
  return std::optional(std::move(line));
}

Result<JournalHead> JournalReader::head() {
  auto line = next_line();
  HVD_RETURN_IF_ERROR(line.status());
  if (!*line) return Status(Code::not_found, "it has no complete line");
  const auto schema = (*line)->find("schema");
  if (schema == (*line)->end() || !schema->is_number_integer()) {
    return with_line({Code::data_loss, "it is not the journal of a job"});
  }
  if (*schema != kJournalSchema) {
    return with_line(
        {Code::failed_precondition,
         cat("it is of schema ", schema->dump(), "; this hvdrun reads schema ", kJournalSchema)});
  }
  JournalHead head;
  head.job_id = text_at(**line, "job");
  head.build = text_at(**line, "build");
  head.command = texts_at(**line, "command");
  head.directory = text_at(**line, "directory");
  const auto start = (*line)->find("start");
  auto job_start = job_start_from(start == (*line)->end() ? Json() : *start);
  if (!job_start.ok()) return with_line(job_start.status());
  head.start = std::move(*job_start);
  return head;
}

Result<std::optional<JournalStep>> JournalReader::next(const Job& job) {
  auto line = next_line();
  HVD_RETURN_IF_ERROR(line.status());
  if (!*line) return std::optional<JournalStep>();
  auto event = event_from(**line);
  if (!event.ok()) return with_line(event.status());
  const auto clock = (*line)->find("clock");
  if (clock == (*line)->end() || !clock->is_number_unsigned() || *clock > kMaxClock) {
    return with_line({Code::data_loss, "\"clock\" is missing or not a valid time"});
  }
  if (const Status known = check(*event, job); !known.ok()) return with_line(known);
  const auto actions = (*line)->find("actions");
  return std::optional(JournalStep{std::move(*event),
                                   TimePoint(Duration(clock->get<Duration::rep>())),
                                   actions == (*line)->end() ? Json::array() : *actions});
}

}  // namespace hvd::driver
