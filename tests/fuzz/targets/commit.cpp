// What ranks say at a commit and after a change of the world, and the sizes of the state that one
// of them sends. The first byte says which.
#include "base/wire.h"
#include "tests/fuzz/input.h"
#include "worker/elastic/agreement.h"
#include "worker/elastic/state_blocks.h"

namespace {

using namespace hvd;
using fuzz::must;
using fuzz::must_explain;

// As many records as there are; the last one may be cut off.
template <typename Record>
std::vector<Record> records(fuzz::Input& input) {
  const std::size_t length = Record().encode().size();
  std::vector<Record> all;
  while (!input.at_end()) {
    const auto record = Record::decode(input.take(length));
    if (!record.ok()) {
      must_explain(record.status());
      continue;
    }
    const auto again = Record::decode(record->encode());
    must(again.ok() && again->encode() == record->encode(), "a record is read as it was written");
    all.push_back(*record);
  }
  return all;
}

void commit(fuzz::Input input) {
  std::vector<worker::Prepared> prepared;
  for (const auto& record : records<worker::CommitRecord>(input)) {
    prepared.push_back(record.prepared);
  }
  if (prepared.empty()) return;
  const Status agreed = worker::agree(prepared);
  if (!agreed.ok()) return must_explain(agreed);
  for (const auto& one : prepared) {
    must(one.id == prepared[0].id, "a commit is one of all ranks");
  }
}

void resume(fuzz::Input input) {
  const std::uint64_t generation = input.byte();
  const auto votes = records<worker::Vote>(input);
  if (votes.empty()) return;
  const int ranks = static_cast<int>(votes.size());
  for (int rank = 0; rank < ranks; ++rank) {
    static_cast<void>(worker::run_status(votes, votes[0].marked, rank));
  }
  const auto resume = worker::decide_resume(votes, votes[0].marked, generation);
  if (!resume.ok()) return must_explain(resume.status());
  must(!resume->holders.empty(), "somebody has the state");
  must(!resume->senders.empty() && resume->senders[0] == resume->holders[0],
       "the first holder sends");
  must(resume->holders.size() + resume->receivers.size() == votes.size(),
       "each rank has the state or receives it");
}

void sizes(fuzz::Input input) {
  std::vector<std::uint64_t> sizes;
  while (!input.at_end()) {
    WireReader in(input.take(sizeof(std::uint64_t)));
    sizes.push_back(in.u64());
  }
  const auto total = worker::total_of(sizes);
  if (!total.ok()) return must_explain(total.status());
  // A state of a machine that has this much memory.
  if (*total > std::uint64_t{16} << 30) return;
  const auto cut = worker::cut_into_blocks(sizes);
  std::uint64_t at = 0;
  for (const auto& block : cut) {
    must(block.begin == at && block.end > at, "each block begins where the last one ends");
    at = block.end;
  }
  must(at == *total, "the blocks are the whole state");
  worker::BlockSet every(cut.size());
  for (std::size_t i = 0; i < cut.size(); ++i) every.add(i);
  must(every.ranges(cut).size() <= 1, "neighbours are one range");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 3) {
    case 0:
      commit(input);
      break;
    case 1:
      resume(input);
      break;
    default:
      sizes(input);
      break;
  }
  return 0;
}
