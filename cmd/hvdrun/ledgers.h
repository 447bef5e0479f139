// `hvdrun compare A B`: where the ledgers of two runs (hvdrun --ledger, docs/shards.md) differ
// first. A ledger is a line of JSON for each commit, and what is in it is checked strictly: an
// answer that rests on a line that says something else would be worse than none. Only a line of
// each is in memory at a time.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hvd::cli {

struct LedgerLine {
  std::uint64_t step = 0;
  std::vector<std::pair<std::string, std::string>> digests;  // by tensor, in the line's order
  std::map<int, std::vector<std::int64_t>> samples;          // by shard
};

// Without the end of the line. data_loss: it is not a line of a ledger, and the message says why.
Result<LedgerLine> parse_ledger_line(const std::string& text);

// Reads the steps of a ledger, which ascend. Errors name the file and the line. For one thread.
class LedgerReader {
 public:
  // The stream must outlive it.
  LedgerReader(std::istream& in, std::string name) : in_(in), name_(std::move(name)) {}

  // Nothing: that was the last one. data_loss also if there is none at all.
  Result<std::optional<LedgerLine>> next();
  const std::string& name() const { return name_; }

 private:
  Status at_line(const Status& status) const;

  std::istream& in_;
  std::string name_;
  std::uint64_t line_ = 0;
  std::uint64_t step_ = 0;
};

struct LedgerComparison {
  bool is_alike = false;
  std::string text;  // what differs, for a person
};

Result<LedgerComparison> compare_ledgers(LedgerReader& a, LedgerReader& b);
// The same of files.
Result<LedgerComparison> compare_ledger_files(const std::string& a, const std::string& b);

}  // namespace hvd::cli
