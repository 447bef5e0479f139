#include "driver/journal/replay.h"

#include <memory>

#include "driver/journal/journal_json.h"
#include "driver/journal/journal_reader.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;

std::vector<std::string> texts_of(const Json& actions) {
  std::vector<std::string> texts;
  for (const auto& action : actions) texts.push_back(action.dump());
  return texts;
}

// As the journal has them.
Json written(const std::vector<Action>& actions, const Job& job) {
  Json json = Json::array();
  for (const auto& action : actions) {
    json.push_back(Json::parse(
        json_of(action, job.hosts()).dump(-1, ' ', false, Json::error_handler_t::replace)));
  }
  return json;
}

}  // namespace

Result<Replayed> replay(std::istream& journal) {
  JournalReader reader(journal);
  auto head = reader.head();
  if (!head.ok() && head.status().code() == Code::not_found) {
    return Status(Code::data_loss, head.status().message());
  }
  HVD_RETURN_IF_ERROR(head.status());
  Replayed replayed;
  replayed.job_id = std::move(head->job_id);
  replayed.build = std::move(head->build);
  const auto job = head->start.make();

  for (;;) {
    auto step = reader.next(*job);
    HVD_RETURN_IF_ERROR(step.status());
    if (!*step) break;
    const auto actions = job->step((*step)->event, (*step)->now);
    ++replayed.events;
    replayed.actions += actions.size();
    const Json now = written(actions, *job);
    if (now == (*step)->actions) continue;
    replayed.difference = {reader.line(), json_of((*step)->event, job->hosts()).dump(),
                           texts_of((*step)->actions), texts_of(now)};
    return replayed;
  }
  replayed.is_finished = job->state() == JobState::finished;
  replayed.is_cut_off = reader.is_cut_off();
  return replayed;
}

}  // namespace hvd::driver
