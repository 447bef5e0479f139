#include "worker/elastic/agreement.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::worker {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(cat(rank));
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(numbers, ", "));
}

// The ranks behind each value, the most frequent value first.
template <typename Word, typename Saying>
std::vector<std::pair<Word, std::vector<int>>> parties(const std::vector<Prepared>& prepared,
                                                       const Saying& saying) {
  std::map<Word, std::vector<int>> by_word;
  for (std::size_t rank = 0; rank < prepared.size(); ++rank) {
    by_word[saying(prepared[rank])].push_back(static_cast<int>(rank));
  }
  std::vector<std::pair<Word, std::vector<int>>> found(by_word.begin(), by_word.end());
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return found;
}

void write_id(WireWriter& out, const CommitId& id) {
  out.u64(id.generation).u64(id.sequence).u64(id.run);
}

CommitId read_id(WireReader& in) {
  CommitId id;
  id.generation = in.u64();
  id.sequence = in.u64();
  id.run = in.u64();
  return id;
}

}  // namespace

std::string CommitRecord::encode() const {
  WireWriter out;
  out.boolean(commits).boolean(wants_change);
  write_id(out, prepared.id);
  out.boolean(prepared.checksum.has_value()).u64(prepared.checksum.value_or(0));
  return out.take();
}

Result<CommitRecord> CommitRecord::decode(std::string_view bytes) {
  WireReader in(bytes);
  CommitRecord record;
  record.commits = in.boolean();
  record.wants_change = in.boolean();
  record.prepared.id = read_id(in);
  const bool has_checksum = in.boolean();
  const auto checksum = in.u64();
  if (has_checksum) record.prepared.checksum = checksum;
  HVD_RETURN_IF_ERROR(in.finish("what a rank says at a commit"));
  return record;
}

std::string Vote::encode() const {
  WireWriter out;
  out.u64(run);
  write_id(out, holds);
  write_id(out, marked);
  out.u64(bytes)
      .boolean(can_load)
      .u64(sizes_digest)
      .u64(shape)
      .u64(ledger.held)
      .u64(ledger.written);
  return out.take();
}

Result<Vote> Vote::decode(std::string_view bytes) {
  WireReader in(bytes);
  Vote vote;
  vote.run = in.u64();
  vote.holds = read_id(in);
  vote.marked = read_id(in);
  vote.bytes = in.u64();
  vote.can_load = in.boolean();
  vote.sizes_digest = in.u64();
  vote.shape = in.u64();
  vote.ledger.held = in.u64();
  vote.ledger.written = in.u64();
  HVD_RETURN_IF_ERROR(in.finish("a vote"));
  return vote;
}

Status agree(const std::vector<Prepared>& prepared) {
  const auto at = parties<CommitId>(prepared, [](const Prepared& one) { return one.id; });
  if (at.size() > 1) {
    return {Code::invalid_argument,
            cat("commit(): ", ranks_text(at[0].second), " came to commit ", to_text(at[0].first),
                ", ", ranks_text(at[1].second), " to commit ", to_text(at[1].first),
                "; all ranks must commit as often")};
  }
  const auto states = parties<std::optional<std::uint64_t>>(
      prepared, [](const Prepared& one) { return one.checksum; });
  if (states.size() > 1) {
    std::vector<int> others;
    for (std::size_t i = 1; i < states.size(); ++i) {
      others.insert(others.end(), states[i].second.begin(), states[i].second.end());
    }
    std::sort(others.begin(), others.end());
    return {Code::data_loss,
            cat("commit(): at commit ", to_text(at[0].first), " the state of ", ranks_text(others),
                " differs from that of ", ranks_text(states[0].second))};
  }
  return {};
}

RunStatus run_status(const std::vector<Vote>& votes, CommitId high_water, int rank) {
  const auto [least, most] = std::minmax_element(
      votes.begin(), votes.end(), [](const Vote& a, const Vote& b) { return a.run < b.run; });
  const std::uint64_t newest = std::max(most->run, high_water.run);
  if (votes[static_cast<std::size_t>(rank)].run == newest) {
    return least->run == newest ? RunStatus::goes_on : RunStatus::waits;
  }
  // Without a commit in the newest run nobody knows whether the program has one more.
  const bool goes_on = most->run == newest || high_water.sequence != 0;
  return goes_on ? RunStatus::is_finished : RunStatus::is_over;
}

Result<Resume> decide_resume(const std::vector<Vote>& votes, CommitId high_water,
                             std::uint64_t generation) {
  Resume resume;
  const std::uint64_t run = votes.front().run;
  for (const auto& vote : votes) {
    if (vote.holds.run == run) resume.id = std::max(resume.id, vote.holds);
  }
  // This world, or one before, began from nothing; or nothing was committed in this run.

  const bool is_void = high_water.sequence == 0 || high_water.run < run;
  const bool lost = !is_void && resume.id < high_water;
  if (lost && !votes.front().can_load) {
    return Status(Code::data_loss,
                  cat("committed state lost: commit ", to_text(high_water),
                      " was reached, and every worker that held it is gone; ",
                      resume.id.none() ? std::string("there is no state left")
                                       : cat("the newest state left is of ", to_text(resume.id)),
                      ". A loader (StateOptions::loader) could go on from a checkpoint."));
  }

  if (lost || resume.id.none()) {
    resume.from = lost ? Resume::From::loader : Resume::From::beginning;
    resume.id = {generation, 0, run};
  }

  const auto vote_of = [&votes](int rank) { return votes[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < static_cast<int>(votes.size()); ++rank) {
    const bool holds =
        resume.from == Resume::From::state ? vote_of(rank).holds == resume.id : rank == 0;
    (holds ? resume.holders : resume.receivers).push_back(rank);
  }

  const Vote first = vote_of(resume.holders.front());
  for (const int rank : resume.holders) {
    if (vote_of(rank).sizes_digest == first.sizes_digest) resume.senders.push_back(rank);
  }
  switch (resume.from) {
    case Resume::From::state:
      resume.bytes = first.bytes;
      resume.step = first.ledger.held;
      break;
    case Resume::From::beginning:
      break;
    case Resume::From::loader:
      resume.step = first.ledger.written;
      break;
  }
  return resume;
}

}  // namespace hvd::worker
