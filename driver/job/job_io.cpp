#include "driver/job/job_io.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/machine/child_process.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr int kMaxRanges = 8;
constexpr std::size_t kMaxNames = 5;

std::string workers_text(const std::string& host, Incarnation incarnation) {
  return incarnation == kEveryWorker ? cat("workers of ", host)
                                     : cat("incarnation ", incarnation, " of ", host);
}

struct ActionText {
  const std::vector<std::string>& hosts;

  std::string operator()(const action::PublishWorld& action) const {
    std::vector<std::string> members;
    for (const auto& member : action.world.members) members.push_back(member.worker());
    return cat("publish ", action.world.state == WorldState::proposed ? "proposed " : "",
               action.world.last ? "last " : "", "world, generation ", action.world.generation,
               ": ", join(members, " "), action.why.empty() ? "" : cat(" (", action.why, ")"));
  }
  std::string operator()(const action::StartAgent& action) const {
    return cat("start agent of ", hosts[action.host]);
  }
  std::string operator()(const action::ChooseAddresses& /*action*/) const {
    return "choose addresses";
  }
  std::string operator()(const action::PlanStands& /*action*/) const { return "the plan stands"; }
  std::string operator()(const action::VoidCommits& action) const {
    return cat("void the commits before generation ", action.generation);
  }
  std::string operator()(const action::FindAddress& action) const {
    return cat("find address of ", hosts[action.host]);
  }
  std::string operator()(const action::Launch& action) const {
    const auto& member = action.member;
    if (member.rank < 0) {
      return cat("launch ", member.worker(), " incarnation ", member.incarnation, " to join at ",
                 member.address);
    }
    return cat("launch ", member.worker(), " incarnation ", member.incarnation, " rank ",
               member.rank, " local ", member.local_rank, "/", member.local_size, " cross ",
               member.cross_rank, "/", member.cross_size, member.address.empty() ? "" : " at ",
               member.address);
  }
  std::string operator()(const action::StopWorkers& action) const {
    return cat("stop ", workers_text(hosts[action.host], action.incarnation), ", grace ",
               action.grace.count(), " ms: ", action.reason);
  }
  std::string operator()(const action::KillWorkers& action) const {
    return cat("kill ", workers_text(hosts[action.host], action.incarnation));
  }
  std::string operator()(const action::DescribeWorker& action) const {
    return cat("describe ", workers_text(hosts[action.host], action.incarnation));
  }
  std::string operator()(const action::ShutDownAgent& action) const {
    return cat("shut down agent of ", hosts[action.host]);
  }
  std::string operator()(const action::DropAgent& action) const {
    return cat("drop agent of ", hosts[action.host]);
  }
  std::string operator()(const action::Say& action) const {
    const bool warns = action.to == action::Say::To::warning;
    return cat(warns                                  ? "warn: "
               : action.to == action::Say::To::notice ? "notice: "
                                                      : "say: ",
               action.text);
  }
  std::string operator()(const action::Answer& action) const {
    return cat(action.accepted ? "accept: " : "refuse: ", action.text);
  }
  std::string operator()(const action::Finish& action) const {
    std::string text = cat("finish ", action.exit_code, ": ", action.reason);
    if (action.failure) {
      const auto& failure = *action.failure;
      text += cat(" [first failure: rank ", failure.rank, " host ", failure.host, " slot ",
                  failure.slot, " pid ", failure.pid, ": ", failure.cause, "]");
      for (const auto& host : failure.hosts) {
        text += cat("\n    ", host.name, ": ", name_of(host.error.step), ": ", host.error.message);
      }
    }
    return text;
  }
};

}  // namespace

std::string to_text(const Action& action, const std::vector<std::string>& hosts) {
  return std::visit(ActionText{hosts}, action);
}

std::string stopping_text(int signal_number, std::size_t workers, std::chrono::milliseconds grace) {
  const std::string begin = cat("interrupted by ", signal_text(signal_number), ": ");
  if (workers == 0) return cat(begin, "no worker runs; giving up");
  const std::string counted = cat(workers, workers == 1 ? " worker" : " workers");
  if (signal_number == SIGQUIT) return cat(begin, "killing ", counted);
  return cat(begin, "stopping ", counted, " (SIGTERM now, SIGKILL after ", seconds_text(grace),
             "); a second signal kills at once");
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (number >= 1024 && unit + 1 < kUnits.size()) {
    number /= 1024;
    ++unit;
  }
  return cat(std::round(number * 10) / 10, " ", kUnits[unit]);
}

std::string exit_text(const event::Exited& event) {
  std::string how = end_text(event.exit_code, event.signal_number, event.core_dumped);
  if (!event.out_of_memory) return how;
  if (event.memory_limit == 0) return how + ": out of memory";
  return cat(how, ": out of memory (the memory limit of its control group is ",
             bytes_text(event.memory_limit), ")");
}

std::string names_text(const std::vector<std::string>& names) {
  std::size_t shown = names.size();
  if (shown > kMaxNames) shown = kMaxNames - 1;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  if (shown < names.size()) text += cat(" and ", names.size() - shown, " more");
  return text;
}

std::string range_text(const std::vector<int>& numbers) {
  std::string text;
  int ranges = 0;
  for (std::size_t first = 0; first < numbers.size();) {
    if (++ranges > kMaxRanges) return text + cat(", ... (", numbers.size(), " in all)");
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += cat(numbers[first]);
    if (last > first) text += cat("-", numbers[last]);
    first = last + 1;
  }
  return text;
}

std::string counted(std::size_t number, std::string_view what) {
  return cat(number, " ", what, number == 1 ? "" : "s");
}

std::string ranks_text(const std::vector<int>& ranks) {
  return cat(ranks.size() == 1 ? "rank " : "ranks ", range_text(ranks));
}

// "3.1 ms", "214 ms", "1.3 s"
static std::string short_time_text(Duration time) {
  const double milliseconds = std::chrono::duration<double, std::milli>(time).count();
  std::array<char, 32> text{};
  if (milliseconds >= 999.5) {
    std::snprintf(text.data(), text.size(), "%.1f s", milliseconds / 1000);  // NOLINT: bounded
  } else {
    std::snprintf(text.data(), text.size(), milliseconds < 9.95 ? "%.1f ms" : "%.0f ms",  // NOLINT
                  milliseconds);
  }
  return text.data();
}

std::string entry_text(const event::WorldEntered& entered) {
  std::vector<std::string> parts;
  const auto add = [&parts](Duration time, std::string_view what) {
    if (time > Duration::zero()) parts.push_back(cat(short_time_text(time), " ", what));
  };
  add(entered.leave, "to leave the previous world");
  add(entered.wait, "until hvdrun announced the new one");
  add(entered.connect, "to connect");
  add(entered.vote, "to agree on the state");
  add(entered.sync, entered.received == 0
                        ? std::string("to load it")
                        : cat("until all had it (", bytes_text(entered.received), " received)"));
  add(entered.step, "for the first step");
  const std::string redone = entered.redone == 0
                                 ? ""
                                 : cat("; ", counted(entered.redone, "step"),
                                       entered.redone == 1 ? " is done again" : " are done again");
  return cat(short_time_text(entered.time()), ": ", join(parts, ", "), redone);
}

std::string absent_text(const std::string& doing, int rank_that_waits, std::size_t absent,
                        std::chrono::milliseconds waited, std::chrono::milliseconds limit) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(waited);
  const auto others = absent > 1
                          ? cat("; ", absent - 1, absent == 2 ? " other" : " others", " likewise")
                          : std::string();
  const auto most = limit.count() == 0 ? std::string("for as long as it lives")
                                       : cat("at most ", seconds_text(limit), " (--init-timeout)");
  return cat(" has not called hvd::init for ",
             seconds_text(whole.count() > 0 ? std::chrono::milliseconds(whole) : waited),
             ", and rank ", rank_that_waits, " waits for it there, ", most, ": ", doing, others);
}

std::string left_text(TimePoint deadline, TimePoint now) {
  if (deadline == kNever) return {};
  const auto rest = std::max(Duration::zero(), deadline - now);
  return cat(" (", seconds_text(rest), " left)");
}

}  // namespace hvd::driver
