#include <algorithm>

#include <hvd/adapter.h>
#include <hvd/error.h>
#include <hvd/process_set.h>

#include "base/text.h"
#include "runtime/negotiation/process_sets.h"
#include "worker/process/errors.h"
#include "worker/process/process_world.h"
#include "worker/submissions.h"

namespace hvd {
namespace {

runtime::RankSet members(std::string_view question, int id) {
  worker::ProcessWorld::instance().check_set(cat("hvd::ProcessSet(", id, ").", question, "()"), id);
  const auto world = worker::ProcessWorld::instance().world_for(cat("ProcessSet::", question));
  const auto found = world->process_set(id);
  if (found.ok()) return *found;
  std::rethrow_exception(worker::exception_of(
      found.status().with_context(cat("hvd::ProcessSet(", id, ").", question, "()"))));
}

// All ranks know the same sets of earlier worlds.
int take_up_or_add(std::vector<int> ranks, bool by_members) {
  auto& process = worker::ProcessWorld::instance();
  std::sort(ranks.begin(), ranks.end());
  process.world_for("add_process_set");  // a worker that comes later hears there of the sets
  const auto known = process.take_up_set(ranks, by_members);
  if (known) return *known;
  adapter::Submission work;
  work.collective = Collective::add_process_set;
  work.ranks = std::move(ranks);
  work.by_members = by_members;
  const auto pending = worker::start(std::move(work), {}, worker::Room::given);
  return pending->take().front().process_set;
}

int own_rank() { return worker::ProcessWorld::instance().world_for("rank")->rank(); }

bool contains(const runtime::RankSet& set, int rank) {
  return set.contains(static_cast<runtime::RankSet::Value>(rank));
}

}  // namespace

std::vector<int> ProcessSet::ranks() const { return members("ranks", id_).ranks(); }
int ProcessSet::size() const { return static_cast<int>(members("size", id_).size()); }
bool ProcessSet::included() const { return contains(members("included", id_), own_rank()); }

int ProcessSet::rank() const {
  const auto set = members("rank", id_);
  const int self = own_rank();
  if (contains(set, self)) return runtime::position_in(set, self);
  throw ProcessSetError(ProcessSetErrorCode::not_a_member,
                        cat("hvd::ProcessSet(", id_, ").rank(): rank ", self,
                            " is not in it; it consists of ranks ", runtime::ranks_text(set)));
}

ProcessSet add_process_set(std::vector<int> ranks, LostMember lost_member) {
  const ProcessSet set(take_up_or_add(std::move(ranks), false));
  if (lost_member == LostMember::shrink) {
    worker::ProcessWorld::instance().let_set_shrink(set.id());
  }
  return set;
}

ProcessSet add_process_set_by_members(std::vector<int> ranks) {
  return ProcessSet(take_up_or_add(std::move(ranks), true));
}

void remove_process_set(const ProcessSet& process_set) {
  if (worker::ProcessWorld::instance().forget_lost_set(process_set.id())) return;
  adapter::Submission work;
  work.collective = Collective::remove_process_set;
  work.process_set = process_set;
  worker::start(std::move(work), {}, worker::Room::given)->wait();
}

std::vector<ProcessSet> process_sets() {
  std::vector<ProcessSet> sets;
  const auto world = worker::ProcessWorld::instance().world_for("process_sets");
  for (const int id : world->process_sets()) sets.emplace_back(id);
  return sets;
}

}  // namespace hvd
