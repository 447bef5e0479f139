#include "cmd/hvdrun/ledgers.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/text.h"

namespace hvd::cli {
namespace {

// The order of the tensors is that in which the program has added them.
using OrderedJson = nlohmann::ordered_json;

Status wrong(std::string why) { return {Code::data_loss, std::move(why)}; }

// Discarded if it is no JSON. A name that stands twice in an object would hide what is under the
// first one.
OrderedJson parse_without_repetitions(const std::string& text, std::string& repeated) {
  constexpr int kMaxDepth = 3;
  std::vector<std::set<std::string>> names;  // of the objects around
  const auto look = [&](int depth, OrderedJson::parse_event_t event, const OrderedJson& value) {
    if (event == OrderedJson::parse_event_t::object_start) names.emplace_back();
    if (event == OrderedJson::parse_event_t::object_end) names.pop_back();
    if (event == OrderedJson::parse_event_t::key && !names.back().insert(value).second) {
      repeated = value.get<std::string>();
    }
    return depth <= kMaxDepth;
  };
  return OrderedJson::parse(text, look, false);
}

bool is_digest(const OrderedJson& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const auto is_digit = [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); };
  return !text.empty() && text.size() % 2 == 0 && std::all_of(text.begin(), text.end(), is_digit);
}

Status take_digests(const OrderedJson& digests, LedgerLine& line) {
  if (!digests.is_object()) return wrong("\"digests\" is not an object");
  for (const auto& [name, digest] : digests.items()) {
    if (name.empty()) return wrong("a tensor has no name");
    if (!is_digest(digest)) {
      return wrong(cat("the digest of ", quoted(name), " is not a hexadecimal number"));
    }
    line.digests.emplace_back(name, digest.get<std::string>());
  }
  return {};
}

Status take_samples(const OrderedJson& samples, LedgerLine& line) {
  if (!samples.is_object()) return wrong("\"samples\" is not an object");
  for (const auto& [name, of_shard] : samples.items()) {
    const auto shard = parse_number<int>(name);
    if (!shard || *shard < 0 || cat(*shard) != name) {
      return wrong(cat(quoted(name), " is not the number of a shard"));
    }
    const auto is_whole = [](const OrderedJson& sample) { return sample.is_number_integer(); };
    if (!of_shard.is_array() || !std::all_of(of_shard.begin(), of_shard.end(), is_whole)) {
      return wrong(cat("the samples of shard ", *shard, " are not an array of whole numbers"));
    }
    line.samples[*shard] = of_shard.get<std::vector<std::int64_t>>();
  }
  return {};
}

// Steps that follow each other, as "step 7" or "steps 7 to 9".
struct StepRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::string text() const {
    return first == last ? cat("step ", first) : cat("steps ", first, " to ", last);
  }
};

// Steps that only one of the two ledgers has.
class Alone {
 public:
  void add(std::uint64_t step) {
    if (!ranges_.empty() && ranges_.back().last + 1 == step) {
      ranges_.back().last = step;
    } else {
      ranges_.push_back({step, step});
    }
  }
  bool empty() const { return ranges_.empty(); }
  std::string text(const std::string& name) const {
    constexpr std::size_t kMost = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(kMost, ranges_.size()); ++i) {
      text += cat("only ", printable(name), " has ", ranges_[i].text(), "\n");
    }
    if (ranges_.size() <= kMost) return text;
    return cat(text, "and so on: only ", printable(name), " has steps in ", ranges_.size() - kMost,
               " more places, up to step ", ranges_.back().last, "\n");
  }

 private:
  std::vector<StepRange> ranges_;
};

struct TensorDifference {
  std::uint64_t step = 0;
  std::string tensor;
  std::optional<std::string> a;  // its digests; nothing: the step has no such tensor there
  std::optional<std::string> b;
  std::size_t differing = 0;  // tensors of that step
  std::size_t all = 0;
};

using DigestsByName = std::map<std::string, std::string>;

std::optional<std::string> digest_in(const DigestsByName& digests, const std::string& tensor) {
  const auto found = digests.find(tensor);
  return found == digests.end() ? std::nullopt : std::optional(found->second);
}

// Those of a, in their order, then those that only b has.
std::optional<TensorDifference> compare_tensors(const LedgerLine& a, const LedgerLine& b) {
  if (a.digests == b.digests) return std::nullopt;
  const DigestsByName all_of_a(a.digests.begin(), a.digests.end());
  const DigestsByName all_of_b(b.digests.begin(), b.digests.end());
  std::vector<std::string> names;
  for (const auto& [name, digest] : a.digests) names.push_back(name);
  for (const auto& [name, digest] : b.digests) {
    if (!digest_in(all_of_a, name)) names.push_back(name);
  }

  TensorDifference difference;
  difference.step = a.step;
  difference.all = names.size();
  for (const auto& name : names) {
    auto in_a = digest_in(all_of_a, name);
    auto in_b = digest_in(all_of_b, name);
    if (in_a == in_b) continue;
    if (++difference.differing > 1) continue;
    difference.tensor = name;
    difference.a = std::move(in_a);
    difference.b = std::move(in_b);
  }
  if (difference.differing == 0) return std::nullopt;  // they stand in another order
  return difference;
}

// The first shard whose samples differ. A run without shards does not say what it had.
std::optional<int> compare_samples(const LedgerLine& a, const LedgerLine& b) {
  if (a.samples.empty() || b.samples.empty()) return std::nullopt;
  const auto [in_a, in_b] =
      std::mismatch(a.samples.begin(), a.samples.end(), b.samples.begin(), b.samples.end());
  if (in_a == a.samples.end() && in_b == b.samples.end()) return std::nullopt;
  constexpr int kNone = std::numeric_limits<int>::max();
  return std::min(in_a == a.samples.end() ? kNone : in_a->first,
                  in_b == b.samples.end() ? kNone : in_b->first);
}

class Comparing {
 public:
  Comparing(const std::string& a, const std::string& b) : a_(a), b_(b) {}

  void only_in_a(const LedgerLine& line) { alone_in_a_.add(line.step); }
  void only_in_b(const LedgerLine& line) { alone_in_b_.add(line.step); }
  void both(const LedgerLine& a, const LedgerLine& b) {
    ++common_;
    const auto tensors = compare_tensors(a, b);
    const auto shard = compare_samples(a, b);
    if (tensors || shard) ++differing_;
    if (tensors && !first_) first_ = tensors;
    if (shard && !samples_) samples_ = std::pair(a.step, *shard);
  }

  LedgerComparison result() const {
    const bool same_steps = alone_in_a_.empty() && alone_in_b_.empty();
    if (differing_ == 0 && same_steps) {
      return {true, cat(common_, common_ == 1 ? " step, alike\n" : " steps, all alike\n")};
    }
    std::string text;
    if (first_) text += tensor_text();
    if (samples_) {
      text += cat("the samples of shard ", samples_->second, " differ in step ", samples_->first,
                  ", and in none before\n");
    }
    if (differing_ > 0) {
      text += cat(differing_, " of the ", common_, " steps that both have differ\n");
    } else {
      text += cat("the ", common_, " steps that both have are alike\n");
    }
    return {false, cat(text, alone_in_a_.text(a_), alone_in_b_.text(b_))};
  }

 private:
  std::string tensor_text() const {
    const auto& at = *first_;
    const auto line = [](const std::optional<std::string>& digest, const std::string& name) {
      return cat("    ", digest.value_or("not there"), "  ", printable(name), "\n");
    };
    return cat("step ", at.step, " is the first that differs, and in it ", quoted(at.tensor),
               " the first of ", at.differing, at.differing == 1 ? " tensor" : " tensors", ", of ",
               at.all, ":\n", line(at.a, a_), line(at.b, b_));
  }

  std::string a_;  // their names
  std::string b_;
  std::uint64_t common_ = 0;
  std::uint64_t differing_ = 0;
  std::optional<TensorDifference> first_;
  std::optional<std::pair<std::uint64_t, int>> samples_;  // the step and the shard
  Alone alone_in_a_;
  Alone alone_in_b_;
};

Result<std::ifstream> open_to_read(const std::string& file) {
  // A directory can be opened, too.
  std::error_code error;
  if (std::filesystem::is_directory(file, error))
    return wrong(cat(printable(file), " is a directory"));
  std::ifstream in(file);
  if (!in) return Status::from_errno(cat("open ", printable(file)), errno);
  return in;
}

}  // namespace

Result<LedgerLine> parse_ledger_line(const std::string& text) {
  std::string repeated;
  const OrderedJson json = parse_without_repetitions(text, repeated);
  if (json.is_discarded()) return wrong("it is not JSON");
  if (!repeated.empty()) return wrong(cat(quoted(repeated), " stands twice in it"));
  if (!json.is_object()) return wrong("it is not an object");

  LedgerLine line;
  for (const auto& [name, value] : json.items()) {
    if (name == "digests") {
      HVD_RETURN_IF_ERROR(take_digests(value, line));
    } else if (name == "samples") {
      HVD_RETURN_IF_ERROR(take_samples(value, line));
    } else if (name != "step") {
      return wrong(cat(quoted(name), " is no field of a ledger"));
    } else if (!value.is_number_unsigned() || value == 0) {
      return wrong("\"step\" is not a whole number above 0");
    } else {
      line.step = value.get<std::uint64_t>();
    }
  }
  if (line.step == 0) return wrong("\"step\" is missing");
  if (!json.contains("digests")) return wrong("\"digests\" is missing");
  return line;
}

Status LedgerReader::at_line(const Status& status) const {
  return status.with_context(cat(printable(name_), ":", line_));
}

Result<std::optional<LedgerLine>> LedgerReader::next() {
  std::string text;
  ++line_;
  if (!std::getline(in_, text)) {
    if (in_.bad()) return at_line(wrong("it cannot be read"));
    if (line_ == 1) return wrong(cat(printable(name_), ": there is no step in it"));
    return std::optional<LedgerLine>();
  }
  if (in_.eof()) return at_line(wrong("the line is cut off"));
  auto line = parse_ledger_line(text);
  if (!line.ok()) return at_line(line.status());
  if (line->step <= step_) {
    return at_line(wrong(cat("step ", line->step, " stands after step ", step_)));
  }
  step_ = line->step;
  return std::optional(*std::move(line));
}

Result<LedgerComparison> compare_ledgers(LedgerReader& a, LedgerReader& b) {
  Comparing comparing(a.name(), b.name());
  auto in_a = a.next();
  auto in_b = b.next();
  for (;;) {
    HVD_RETURN_IF_ERROR(in_a.status());
    HVD_RETURN_IF_ERROR(in_b.status());
    if (!*in_a && !*in_b) return comparing.result();

    const bool has_a = in_a->has_value() && (!*in_b || (*in_a)->step <= (*in_b)->step);
    const bool has_b = in_b->has_value() && (!*in_a || (*in_b)->step <= (*in_a)->step);
    if (has_a && has_b) {
      comparing.both(**in_a, **in_b);
    } else if (has_a) {
      comparing.only_in_a(**in_a);
    } else {
      comparing.only_in_b(**in_b);
    }
    if (has_a) in_a = a.next();
    if (has_b) in_b = b.next();
  }
}

Result<LedgerComparison> compare_ledger_files(const std::string& a, const std::string& b) {
  auto in_a = open_to_read(a);
  HVD_RETURN_IF_ERROR(in_a.status());
  auto in_b = open_to_read(b);
  HVD_RETURN_IF_ERROR(in_b.status());
  LedgerReader from_a(*in_a, a);
  LedgerReader from_b(*in_b, b);
  return compare_ledgers(from_a, from_b);
}

}  // namespace hvd::cli
