#include "bench/soak/agreement.h"

#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "driver/status/job_status.h"
#include "tests/driver/metrics/metric_text.h"
#include "tests/support/process.h"

namespace hvd::soak {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kPause{500};

Told told_by(const Json& status) {
  Told told;
  told.generation = status.at("world").at("generation");
  told.size = status.at("world").at("members").size();
  told.worlds = status.at("worlds").size();
  for (const Json& world : status.at("worlds")) {
    if (world.at("entry").is_object()) ++told.entered;
  }
  return told;
}

std::optional<Told> told_by_status(const std::string& job_id) {
  const auto asked = test::run({test::binary("hvdrun"), "status", job_id, "--json"});
  if (asked.code != 0) return std::nullopt;
  return told_by(Json::parse(asked.out));
}

// As a browser that follows a link, from the network of hvdrun.
std::optional<Told> told_by_page(const std::string& job_id, pid_t hvdrun) {
  const auto link = test::run({test::binary("hvdrun"), "page", job_id});
  if (link.code != 0) return std::nullopt;
  constexpr const char* kBrowser =
      "import sys, urllib.request as request\n"
      "browser = request.build_opener(request.ProxyHandler({}))\n"
      "address, token = browser.open(sys.argv[1], timeout=10).url.split('/#')\n"
      "fields = {'Authorization': 'Bearer ' + token}\n"
      "status = request.Request(address + '/status', headers=fields)\n"
      "print(browser.open(status, timeout=10).read().decode())\n";
  const auto asked = test::run({"nsenter", "--target", cat(hvdrun), "--net", "/usr/bin/python3",
                                "-c", kBrowser, std::string(trim(link.out))});
  if (asked.code != 0) return std::nullopt;
  return told_by(Json::parse(asked.out));
}

std::optional<Told> told_by_metrics(const std::string& job_id) {
  const auto asked = test::run({test::binary("hvdrun"), "metrics", job_id});
  if (asked.code != 0) return std::nullopt;
  Told told;
  for (const auto& [name, value] : test::metric_values(asked.out)) {
    const auto number = static_cast<std::uint64_t>(value);
    if (name == "hvd_world_generation") told.generation = number;
    if (name == "hvd_world_size") told.size = number;
    if (name == "hvd_workers_started_total") told.started = number;
    if (name == "hvd_world_entry_seconds_count{part=\"connect\"}") told.entered = number;
    if (name.starts_with("hvd_worlds_formed_total{")) told.worlds += number;
  }
  return told;
}

std::string text_of(const Told& told) {
  return cat("generation ", told.generation, " of ", told.size, ", ", told.worlds, " worlds, ",
             told.entered, " of them at work, ", told.started, " workers started");
}

}  // namespace

const Told& EventReader::read() {
  in_.clear();  // it was at the end of what there was
  std::string text;
  while (std::getline(in_, text)) {
    incomplete_ += text;
    if (in_.eof()) break;
    add(std::exchange(incomplete_, {}));
  }
  return told_;
}

void EventReader::add(const std::string& line) {
  const Json json = Json::parse(line);
  if (job_id_.empty()) {
    job_id_ = json.at("job");
    return;
  }
  const std::string event = json.at("event");
  if (event == "launched") ++told_.started;
  if (event == "world_entered" && json.at("generation") == told_.generation) ++told_.entered;
  for (const Json& action : json.value("actions", Json::array())) {
    if (action.at("action") != "publish_world") continue;
    const Json& world = action.at("world");
    if (world.at("state") != "effective") continue;
    ++told_.worlds;
    told_.generation = world.at("generation");
    told_.size = world.at("members").size();
  }
}

std::string disagreement(const Told& before, const Told& told, const Told& after) {
  const auto is_between = [](auto least, auto value, auto most) {
    return least <= value && value <= most;
  };
  const bool is_same_world =
      before.generation == told.generation && told.generation == after.generation;
  if (is_between(before.generation, told.generation, after.generation) &&
      is_between(before.worlds, told.worlds, after.worlds) &&
      is_between(before.entered, told.entered, after.entered) &&
      is_between(before.started, told.started, after.started) &&
      (!is_same_world || told.size == before.size)) {
    return {};
  }
  return cat(text_of(told), "; but told before: ", text_of(before),
             ", and after: ", text_of(after));
}

Agreement::Agreement() : thread_([this] { run(); }) {}

void Agreement::follow(const std::filesystem::path& file, pid_t hvdrun) {
  const std::lock_guard lock(mutex_);
  events_.emplace(file);
  trusts_events_ = true;
  hvdrun_ = hvdrun;
}

void Agreement::distrust_events() {
  const std::lock_guard lock(mutex_);
  if (events_) events_->read();  // at least who the job is
  trusts_events_ = false;
}

void Agreement::pause() {
  const std::lock_guard lock(mutex_);
  events_.reset();
}

void Agreement::stop() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string Agreement::errors() const {
  if (!error_.empty()) return cat(error_, "\n");
  if (4 * looks_ >= tries_) return {};
  return cat("of ", tries_, " questions to the job only ", looks_, " were answered\n");
}

void Agreement::run() {
  while (!ends_ && error_.empty()) {
    try {
      look();
    } catch (const std::exception& error) {
      error_ = cat("the answers of the job: ", error.what());
    }
    std::this_thread::sleep_for(kPause);
  }
}

std::optional<Told> Agreement::reference() {
  if (trusts_events_) return events_->read();
  return told_by_status(events_->job_id());
}

void Agreement::look() {
  const std::lock_guard lock(mutex_);
  if (!events_ || (!trusts_events_ && events_->job_id().empty())) return;
  const auto before = reference();
  if (before && before->generation == 0) return;  // it has not begun
  ++tries_;
  const auto status = told_by_status(events_->job_id());
  const auto metrics = told_by_metrics(events_->job_id());
  const auto page = told_by_page(events_->job_id(), hvdrun_);
  const auto after = reference();
  if (!before || !status || !metrics || !page || !after) return;
  ++looks_;

  // `hvdrun status` and the page do not have this number.
  const auto with_starts = [&before](Told told) {
    told.started = before->started;
    return told;
  };
  compare("hvdrun metrics", *before, trusts_events_ ? *metrics : with_starts(*metrics), *after);
  compare("hvdrun status", *before, with_starts(*status), *after);
  compare("the page", *before, with_starts(*page), *after);
}

void Agreement::compare(const char* source, const Told& before, Told told, Told after) {
  // The oldest worlds are forgotten.
  if (before.worlds >= driver::kMaxPastWorlds) {
    after.worlds = told.worlds = before.worlds;
    after.entered = told.entered = before.entered;
  }
  const auto wrong = disagreement(before, told, after);
  if (wrong.empty() || !error_.empty()) return;
  error_ = cat(source, " tells ", wrong, trusts_events_ ? " (events)" : " (hvdrun status)");
}

}  // namespace hvd::soak
