#include "discovery/watch.h"

#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "discovery/answer.h"

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

News Watch::take(const ScriptEnd& end) {
  if (!end.trouble.empty()) {
    const std::string said = last_lines(end.errors);
    return fail(end.trouble, said.empty() ? end.trouble : cat(end.trouble, "; it said: ", said));
  }
  auto hosts = parse_answer(end.output, slots_per_host_);
  if (!hosts) {
    // Rubbish may differ each time; that it is rubbish is one trouble.
    return fail("rubbish", cat("printed what names no hosts: ", hosts.status().message()));
  }
  News news;
  if (!std::exchange(trouble_, {}).empty()) {
    news.warning = cat("the discovery script ", script_, " answers again");
  }
  if (answer_ == *hosts) return news;
  answer_ = *hosts;
  news.hosts = *std::move(hosts);
  return news;
}

News Watch::fail(const std::string& kind, const std::string& text) {
  News news;
  const std::string what = cat("the discovery script ", script_, " ", text);
  if (!answer_) {
    news.fatal = {Code::unavailable, what};
  } else if (std::exchange(trouble_, kind) != kind) {
    news.warning = cat(what, "; its last answer stays in force");
  }
  return news;
}

}  // namespace hvd::discovery
