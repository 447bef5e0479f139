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

// The record that each rank sends at a commit, or when it looks whether there is to be one.
struct CommitProtocol::Record {
  bool commits = false;
  bool wants_change = false;  // rank 0
  Prepared prepared;

  std::string encode() const {
    WireWriter out;
    out.boolean(commits).boolean(wants_change);
    write_id(out, prepared.id);
    out.boolean(prepared.checksum.has_value()).u64(prepared.checksum.value_or(0));
    return out.take();
  }
  static Result<Record> decode(std::string_view bytes) {
    WireReader in(bytes);
    Record record;
    record.commits = in.boolean();
    record.wants_change = in.boolean();
    record.prepared.id = read_id(in);
    const bool has_checksum = in.boolean();
    const auto checksum = in.u64();
    if (has_checksum) record.prepared.checksum = checksum;
    HVD_RETURN_IF_ERROR(in.finish("what a rank says at a commit"));
    return record;
  }
};

// The caller may exit on this error, so wait until every rank has received the data that leads to
// the same error.
Failure CommitProtocol::common(const Status& error) {
  (void)channel_.barrier("error");
  return error;
}

Failure CommitProtocol::meet(const Record& own, std::vector<Record>& all) {
  std::vector<std::string> texts;
  if (auto failed = channel_.gather("commit", own.encode(), texts); !failed.ok()) return failed;
  for (const auto& text : texts) {
    auto record = Record::decode(text);
    HVD_RETURN_IF_ERROR(record.status());
    all.push_back(*record);
  }
  const auto others = ranks_that_differ(all, [](const Record& one) { return one.commits; });
  if (others.empty()) return {};
  return common({Code::invalid_argument,
                 cat("rank 0 has called ", all[0].commits ? "commit()" : "check_host_updates()",
                     others.size() == 1 ? ", rank " : ", ranks ", join(others, ", "), " ",
                     all[0].commits ? "check_host_updates()" : "commit()",
                     "; all ranks must make the same calls")});
}

Failure CommitProtocol::look(const Proposal& proposal, bool& wants) {
  Record own;
  own.wants_change = channel_.rank() == 0 && !proposal().empty();
  std::vector<Record> all;
  if (auto failed = meet(own, all); !failed.ok()) return failed;
  wants = all[0].wants_change;
  return {};
}

Failure CommitProtocol::commit(const Prepared& prepared, const Proposal& proposal,
                               std::string& next) {
  Record own;
  own.commits = true;
  own.prepared = prepared;
  std::vector<Record> all;
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
    next = proposal();
  }
  std::string length = WireWriter().u64(next.size()).take();
  if (auto failed = channel_.broadcast("committed", 0, bytes_of(length)); !failed.ok())
    return failed;
  const auto size = WireReader(length).u64();
  if (size == 0) return {};
  next.resize(size);
  if (auto failed = channel_.broadcast("next", 0, bytes_of(next)); !failed.ok()) return failed;
  // All ranks stay until all of them know. A rank that learns it from the departure of the others
  // knows it as well.
  (void)channel_.barrier("change");
  return {};
}

// By rank; `mark` is what rank 0 has read.
struct CommitProtocol::Votes {
  std::vector<Vote> votes;
  std::vector<std::uint64_t> shapes;
  CommitId mark;
};

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

Failure CommitProtocol::gather_votes(Store& store, bool can_load, Votes& all) {
  CommitId mark;
  if (auto failed = read_mark(mark); !failed.ok()) return failed;
  WireWriter own;
  own.u64(run_);
  write_id(own, store.holds());
  write_id(own, mark);
  own.u64(store.bytes()).boolean(can_load).u64(store.sizes_digest()).u64(store.shape());
  std::vector<std::string> texts;
  if (auto failed = channel_.gather("vote", own.bytes(), texts); !failed.ok()) return failed;

  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    WireReader in(texts[rank]);
    Vote vote;
    vote.run = in.u64();
    vote.holds = read_id(in);
    const auto marked = read_id(in);
    if (rank == 0) all.mark = marked;
    vote.bytes = in.u64();
    vote.can_load = in.boolean();
    vote.sizes_digest = in.u64();
    all.shapes.push_back(in.u64());
    HVD_RETURN_IF_ERROR(in.finish("a vote"));
    all.votes.push_back(vote);
  }
  return {};
}

Failure CommitProtocol::vote(Store& store, bool can_load, RunStatus& status, Resume& resume) {
  Votes all;
  do {
    all = {};
    if (auto failed = gather_votes(store, can_load, all); !failed.ok()) return failed;
    status = run_status(all.votes, all.mark, channel_.rank());
  } while (status == RunStatus::waits);
  if (status != RunStatus::goes_on) return {};

  const auto others = ranks_that_differ(all.shapes, [](std::uint64_t shape) { return shape; });
  if (!others.empty()) {
    return common({Code::invalid_argument,
                   cat("elastic::run(): rank", others.size() == 1 ? " " : "s ", join(others, ", "),
                       others.size() == 1 ? " has" : " have",
                       " added other things to the state than rank 0 has; all ranks must add the "
                       "same names, in the same order, in the same CommitMode")});
  }
  auto decided = decide_resume(all.votes, all.mark, generation_);
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
