// The journal of a job, which hvdrun replays.
#include <sstream>

#include "driver/journal/journal_json.h"
#include "driver/journal/replay.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;

void read_event(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) return;
  const auto event = driver::event_from(json);
  if (!event.ok()) return fuzz::must_explain(event.status());
  const auto written = driver::json_of(*event, {});
  const auto again = driver::event_from(written);
  fuzz::must(again.ok() && driver::json_of(*again, {}) == written, "an event is read as written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::istringstream journal{std::string(input.rest())};
  const auto replayed = driver::replay(journal);
  if (!replayed.ok()) fuzz::must_explain(replayed.status());
  while (!input.at_end()) read_event(input.line());
  return 0;
}
