#include "discovery/watch.h"

#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "discovery/hosts.h"

namespace hvd::discovery {
namespace {

constexpr std::size_t kMaxLinesShown = 5;  // of a script's standard error

// The last lines, in one: "cannot connect / giving up".
std::string last_lines(std::string_view errors) {
  std::vector<std::string> lines;
  for (const auto& line : split(errors, '\n')) {
    std::string text = printable(trim(line));
    if (!text.empty()) lines.push_back(std::move(text));
  }
  if (lines.size() > kMaxLinesShown) lines.erase(lines.begin(), lines.end() - kMaxLinesShown);
  return join(lines, " / ");
}

}  // namespace

Update Watch::take(const ScriptEnd& end) {
  if (!end.error.empty()) {
    const std::string said = last_lines(end.standard_error);
    return fail(end.error, said.empty() ? end.error : cat(end.error, "; it said: ", said));
  }
  auto hosts = parse_answer(end.output, slots_per_host_);
  if (!hosts) {
    // Invalid output may differ each time, but it counts as one kind of failure.
    return fail("rubbish", cat("printed an invalid list of hosts: ", hosts.status().message()));
  }
  Update update;
  if (!std::exchange(failure_, {}).empty()) {
    update.warning = cat("the discovery script ", script_, " answers again");
  }
  if (answer_ == *hosts) return update;
  answer_ = *hosts;
  update.hosts = *std::move(hosts);
  return update;
}

Update Watch::fail(const std::string& kind, const std::string& text) {
  Update update;
  const std::string what = cat("the discovery script ", script_, " ", text);
  if (!answer_) {
    update.fatal = {Code::unavailable, what};
  } else if (std::exchange(failure_, kind) != kind) {
    update.warning = cat(what, "; its last answer stays in force");
  }
  return update;
}

}  // namespace hvd::discovery
