// The requests of people to a running elastic job: to drain a host or a slot, to use it again, and
// to change the size of the world. Each request has one answer. One that is refused changes
// nothing.
#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

// "from 2 (--min-np) to 8 workers (--max-np, or -np without it)"
std::string limits_text(const Limits& limits) {
  const int least = std::max(limits.least, 1);
  if (limits.most == 0) {
    return cat("from ", least, " (--min-np) to ", counted(kMaxWorkers, "worker"));
  }
  return cat("from ", least, " (--min-np) to ",
             counted(static_cast<std::size_t>(limits.most), "worker"),
             " (--max-np, or -np without it)");
}

}  // namespace

// ---- answers ----

void Job::refuse(std::string why) { actions_.emplace_back(action::Answer{false, std::move(why)}); }

void Job::accept(const std::string& text) {
  actions_.emplace_back(action::Answer{true, text});
  notice(cat("on request, ", text));
}

// Empty if the job can be asked for something now.
std::string Job::why_no_request() const {
  if (!policy_.changes_world) {
    return "its hosts and workers stay as they are, since it is not elastic (--min-np, --max-np, "
           "--max-restarts or --host-discovery-script make a job elastic)";
  }
  if (stop_has_begun()) return "it is ending";
  if (state_ == JobState::ending) return "it is ending, since its work is done";
  if (is_to_suspend()) return "it is being suspended";
  if (state_ != JobState::running && state_ != JobState::waiting) return "no worker runs yet";
  return {};
}

// ---- hosts ----

void Job::on(const event::DrainRequested& event) {
  std::string why = why_no_request();
  if (why.empty()) {
    why = event.undo ? why_not_used_again(event.host_name) : why_not_drained(event.host_name);
  }
  if (!why.empty()) return refuse(std::move(why));
  if (event.undo) {
    const DrainTarget target(event.host_name);
    roster_.use_again(event.host_name);
    trust_slots_of(target.host);
    accept(cat(target.text(), " is used again",
               roster_.find_named(target.host) != nullptr ? "" : " when it is named"));
  } else {
    drain(event.host_name);
  }
  decide_within(kAtOnce);
}

std::string Job::why_not_drained(const std::string& name) const {
  const DrainTarget target(name);
  const event::FoundHost* const named = roster_.find_named(target.host);
  if (named == nullptr && (target.slot || !hosts_.current(name))) {
    std::set<std::string> names;
    for (const auto& one : roster_.named()) names.insert(one.host.name);
    for (const auto& [current, index] : hosts_.current()) names.insert(current);
    return cat("it has no host ", quoted(target.host), ", but ",
               names.empty() ? "none at all" : names_text({names.begin(), names.end()}));
  }
  if (target.slot && (*target.slot < 0 || *target.slot >= roster_.slots_of(named->host))) {
    return cat("host ", target.host, " has no slot ", *target.slot,
               ": they count from 0, and it has ", roster_.slots_of(named->host));
  }
  int left = 0;
  for (const auto& found : roster_.used()) {
    if (found.host.name != target.host) {
      left += roster_.ready_slots(found.host, now_);
    } else if (target.slot) {
      left += roster_.ready_slots(found.host, now_, target.slot);
    }
  }
  const int least = std::max(options_.elastic.limits.least, 1);
  if (left >= least || roster_.requests().drained.contains(name)) return {};
  return cat("without ", target.text(), " it would have ", left, left == 1 ? " slot" : " slots",
             " ready, and it needs at least ", least, " (--min-np)");
}

std::string Job::why_not_used_again(const std::string& name) const {
  const auto& drained = roster_.requests().drained;
  if (drained.contains(name)) return {};
  const char* const what = DrainTarget(name).slot ? "slot " : "host ";
  if (drained.empty()) return cat(what, quoted(name), " is not drained, nor is any other");
  return cat(what, quoted(name),
             " is not drained; those that are: ", names_text({drained.begin(), drained.end()}));
}

void Job::drain(const std::string& name) {
  const DrainTarget target(name);
  if (!roster_.drain(name)) {
    actions_.emplace_back(action::Answer{true, cat(target.text(), " is drained already")});
    return;
  }
  const auto workers = static_cast<std::size_t>(
      std::count_if(workers_.live().begin(), workers_.live().end(), [&](std::size_t index) {
        const WorldMember& member = workers_[index].member;
        return member.host == target.host && member.slot == target.slot.value_or(member.slot);
      }));
  const std::string text = cat(target.text(), " is drained");
  if (workers == 0) return accept(cat(text, ": no worker is there"));
  accept(cat(text, ": ", counted(workers, "worker"), " there ", workers == 1 ? "leaves" : "leave",
             is_plain_group() ? " with a restart of all, or at a commit if hvd::init() is called"
                              : " at the next commit"));
}

// ---- the size ----

void Job::on(const event::ScaleRequested& event) {
  std::string why = why_no_request();
  if (!why.empty()) return refuse(std::move(why));
  const Limits& limits = options_.elastic.limits;
  const int most = limits.most == 0 ? static_cast<int>(kMaxWorkers) : limits.most;
  if (event.size < std::max(limits.least, 1) || event.size > most) {
    return refuse(cat("it cannot have ", event.size, event.size == 1 ? " worker" : " workers",
                      ": its world may have ", limits_text(limits)));
  }
  const auto wanted = static_cast<std::size_t>(event.size);
  const std::size_t now = worlds_.in_force().members.size();
  if (wanted > now && has_grown_enough()) {
    return refuse(cat("its world has ", counted(now, "worker"),
                      " and grows no more, since it has had ",
                      counted(static_cast<std::size_t>(planned_resets_), "planned change"),
                      " (--planned-reset-limit)"));
  }
  roster_.set_size(event.size);
  // The size that somebody asks for is worth a restart of all, also with slots that may fail again.
  group_.trust_all();

  const int room = roster_.ready_slots(now_);
  std::string text =
      cat("the job is scaled to ", counted(wanted, "worker"), "; its world has ", now, " now");
  if (room < event.size)
    text += cat(", and ", room, room == 1 ? " slot is" : " slots are", " ready");
  accept(text);
  decide_within(kAtOnce);
}

// ---- words ----

// Why the world has no place for this worker any more.
std::string Job::release_reason(const JobWorker& worker) const {
  const std::string host = cat("host ", worker.member.host);
  const Requests& requests = roster_.requests();
  if (requests.drained.contains(worker.member.host)) return host + " is drained";
  if (requests.is_drained(worker.member.host, worker.member.slot)) {
    return cat("slot ", worker.member.worker(), " is drained");
  }
  const event::FoundHost* const there = roster_.find_used(worker.member.host);
  if (there == nullptr) return host + " is no longer named";
  if (worker.member.slot >= roster_.slots_of(there->host)) return host + " has fewer slots now";
  if (requests.size == 0) return "the world has more workers than --max-np";
  return cat("the job was scaled to ", counted(static_cast<std::size_t>(requests.size), "worker"));
}

}  // namespace hvd::driver
