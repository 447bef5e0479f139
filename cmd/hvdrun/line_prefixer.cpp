#include "cmd/hvdrun/line_prefixer.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/text.h"

namespace hvd::cli {
namespace {

// As asctime(3) spells it, without its newline: "Tue Oct 13 10:54:25 2020".
std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::array<char, 64> text{};
  ::asctime_r(&parts, text.data());
  const std::string_view whole(text.data());
  return std::string(whole.substr(0, whole.find('\n')));
}

std::string tag_of(std::string_view who, std::size_t colour, std::string_view stream,
                   const PrefixStyle& style) {
  std::string tag = cat("[", who, "]<", stream, ">:");
  if (!style.colour) return tag;
  // The ones of the sixteen colours that can be read on black and on white, but for red.
  constexpr std::array kColours{32, 33, 34, 35, 36, 92, 94, 95};
  return cat("\x1b[", kColours.at(colour % kColours.size()), "m", tag, "\x1b[0m");
}

}  // namespace

std::string rank_tag(int rank, std::string_view stream, const PrefixStyle& style) {
  return tag_of(cat(rank), static_cast<std::size_t>(rank), stream, style);
}

std::string joiner_tag(std::string_view worker, std::string_view stream, const PrefixStyle& style) {
  return tag_of(worker, worker.size(), stream, style);
}

std::string own_lines(std::string_view lines, const PrefixStyle& style, bool is_error) {
  const bool is_red = is_error && style.colour;
  const std::string time = style.tagged && style.timestamp ? time_text() + " " : std::string();
  if (!is_red && time.empty()) return std::string(lines);

  std::string out;
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size() - 1);
    const auto line = lines.substr(0, lines[end] == '\n' ? end : end + 1);
    out += cat(time, is_red ? "\x1b[31m" : "", line, is_red ? "\x1b[0m" : "", "\n");
    lines.remove_prefix(end + 1);
  }
  return out;
}

void LinePrefixer::end_line(std::string& out, std::string_view rest, std::string_view end) {
  if (style_.timestamp) out += time_text();
  out += tag_;
  out += unfinished_;
  out += rest;
  out += end;
  unfinished_.clear();
}

std::string LinePrefixer::push(std::string_view bytes) {
  if (!style_.tagged) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);

  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        out += '\n';
        bytes.remove_prefix(1);
        continue;
      }
    }

    const auto end = bytes.find_first_of("\n\r");
    const auto room = kLongestLine - unfinished_.size();
    const auto length = end == std::string_view::npos ? bytes.size() : end;
    if (length > room) {
      end_line(out, bytes.substr(0, room), "\n");
      bytes.remove_prefix(room);
    } else if (end == std::string_view::npos) {
      unfinished_ += bytes;
      break;
    } else {
      after_return_ = bytes[end] == '\r';
      end_line(out, bytes.substr(0, end), bytes.substr(end, 1));
      bytes.remove_prefix(end + 1);
    }
  }
  return out;
}

std::string LinePrefixer::finish() {
  std::string out;
  if (!style_.tagged || unfinished_.empty()) return out;
  end_line(out, {}, "\n");
  return out;
}

}  // namespace hvd::cli
