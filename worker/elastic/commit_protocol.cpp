#include "worker/elastic/commit_protocol.h"

#include <array>
#include <utility>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::worker {

using runtime::Failure;

namespace {

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

// A world's document is smaller.
constexpr std::uint64_t kLongestProposal = std::uint64_t{64} << 20;

// Which ranks differ from rank 0 in something.
template <typename Item, typename Is>
std::vector<std::string> ranks_that_differ(const std::vector<Item>& all, const Is& is) {
  std::vector<std::string> ranks;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (is(all[rank]) != is(all[0])) ranks.push_back(cat(rank));
  }
  return ranks;
}

}  // namespace

// The caller may exit on this error, so wait until every rank has received the data that leads to
// the same error.
Failure CommitProtocol::common(const Status& error) {
  (void)channel_.barrier("error");
  return error;
}

Failure CommitProtocol::meet(const CommitRecord& own, std::vector<CommitRecord>& all) {
  std::vector<std::string> texts;
  if (auto failed = channel_.gather("commit", own.encode(), texts); !failed.ok()) return failed;
  for (const auto& text : texts) {
    auto record = CommitRecord::decode(text);
    HVD_RETURN_IF_ERROR(record.status());
    all.push_back(*record);
  }
  const auto others = ranks_that_differ(all, [](const CommitRecord& one) { return one.commits; });
  if (others.empty()) return {};
  return common({Code::invalid_argument,
                 cat("rank 0 has called ", all[0].commits ? "commit()" : "check_host_updates()",
                     others.size() == 1 ? ", rank " : ", ranks ", join(others, ", "), " ",
                     all[0].commits ? "check_host_updates()" : "commit()",
                     "; all ranks must make the same calls")});
}

Failure CommitProtocol::look(const Proposal& proposal, bool& wants) {
  CommitRecord own;
  own.wants_change = channel_.rank() == 0 && !proposal().empty();
  std::vector<CommitRecord> all;
  if (auto failed = meet(own, all); !failed.ok()) return failed;
  wants = all[0].wants_change;
  return {};
}

Failure CommitProtocol::commit(const Prepared& prepared, const Proposal& proposal,
                               std::string& next, const std::function<void()>& on_marked) {
  CommitRecord own;
  own.commits = true;
  own.prepared = prepared;
  std::vector<CommitRecord> all;
  if (auto failed = meet(own, all); !failed.ok()) return failed;
  std::vector<Prepared> said;
  said.reserve(all.size());
  for (const auto& record : all) said.push_back(record.prepared);
  if (const Status agreed = agree(said); !agreed.ok()) return common(agreed);

  next.clear();
  if (channel_.rank() == 0) {
    if (const Status written = high_water_.write(prepared.id); !written.ok()) {
      return channel_.give_up(written);
    }
    if (on_marked) on_marked();
    next = proposal();
  }
  std::string length = WireWriter().u64(next.size()).take();
  if (auto failed = channel_.broadcast("committed", 0, bytes_of(length)); !failed.ok())
    return failed;
  const auto size = WireReader(length).u64();
  if (size == 0) return {};
  if (size > kLongestProposal) {
    return channel_.give_up({Code::data_loss, cat("rank 0 proposes a world whose document has ",
                                                  size, " bytes; it may have ", kLongestProposal)});
  }
  next.resize(size);
  if (auto failed = channel_.broadcast("next", 0, bytes_of(next)); !failed.ok()) return failed;
  // All ranks stay until all of them know. A rank that learns it from the departure of the others
  // knows it as well.
  (void)channel_.barrier("change");
  return {};
}

Failure CommitProtocol::read_mark(CommitId& mark) {
  if (channel_.rank() != 0) return {};
  auto found = high_water_.read();
  if (!found.ok()) return channel_.give_up(found.status());
  mark = *found;
  // The others have gone on without this world; nothing is lost.
  if (mark.generation > generation_) {
    return channel_.give_up(
        {Code::aborted,
         cat("this world is over: a newer one has reached commit ", to_text(mark), " already")});
  }
  return {};
}

Failure CommitProtocol::gather_votes(Store& store, bool can_load, const LedgerNumbers& steps,
                                     std::vector<Vote>& votes) {
  Vote own;
  own.run = run_;
  own.holds = store.holds();
  if (auto failed = read_mark(own.marked); !failed.ok()) return failed;
  own.bytes = store.bytes();
  own.can_load = can_load;
  own.sizes_digest = store.sizes_digest();
  own.shape = store.shape();
  own.ledger = steps;
  std::vector<std::string> texts;
  if (auto failed = channel_.gather("vote", own.encode(), texts); !failed.ok()) return failed;

  for (const auto& text : texts) {
    auto vote = Vote::decode(text);
    HVD_RETURN_IF_ERROR(vote.status());
    votes.push_back(*vote);
  }
  return {};
}

Failure CommitProtocol::vote(Store& store, bool can_load, RunStatus& status, Resume& resume,
                             const LedgerNumbers& steps) {
  std::vector<Vote> votes;
  do {
    votes.clear();
    if (auto failed = gather_votes(store, can_load, steps, votes); !failed.ok()) return failed;
    status = run_status(votes, votes[0].marked, channel_.rank());
  } while (status == RunStatus::waits);
  if (status != RunStatus::goes_on) return {};

  const auto others = ranks_that_differ(votes, [](const Vote& vote) { return vote.shape; });
  if (!others.empty()) {
    return common({Code::invalid_argument,
                   cat("elastic::run(): rank", others.size() == 1 ? " " : "s ", join(others, ", "),
                       others.size() == 1 ? " has" : " have",
                       " added other things to the state than rank 0 has; all ranks must add the "
                       "same names, in the same order, in the same CommitMode")});
  }
  auto decided = decide_resume(votes, votes[0].marked, generation_);
  if (!decided.ok()) return common(decided.status());
  resume = std::move(*decided);
  return {};
}

Failure CommitProtocol::finish(const std::function<void()>& on_marked) {
  if (auto met = channel_.barrier("finish"); !met.ok()) return met;
  if (channel_.rank() == 0) {
    const Status written = high_water_.write({generation_, 0, run_ + 1});
    if (!written.ok()) return channel_.give_up(written);
    on_marked();
  }
  return channel_.barrier("finished");
}

}  // namespace hvd::worker
