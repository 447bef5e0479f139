#include "runtime/ops/adasum.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "runtime/core/arithmetic.h"

namespace hvd::runtime {
namespace {

// Elements [begin, end) of all.
struct Range {
  std::size_t begin;
  std::size_t end;
  std::size_t size() const { return end - begin; }
};

class Adasum {
 public:
  Adasum(const Peers& peers, DataType type, void* data, const std::vector<std::size_t>& lengths,
         FusionBuffer& scratch)
      : peers_(peers),
        type_(type),
        element_(size_of(type)),
        data_(static_cast<std::byte*>(data)),
        sums_(3 * lengths.size()),
        arrived_sums_(sums_.size()) {
    ends_.reserve(lengths.size());
    std::size_t end = 0;
    for (const auto length : lengths) ends_.push_back(end += length);
    elements_ = end;
    arrived_ = scratch.reserve(elements_ * element_);
    memory_ = peers.memory(data_, elements_ * element_);
  }

  void run() {
    if (elements_ == 0) return;
    const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(peers_.size())));
    const int rank = peers_.rank();
    const Range all{0, elements_};
    if (rank >= core) {
      swap_ranges(rank - core, all, {0, 0}, data_);
      swap_ranges(rank - core, {0, 0}, all, data_);
      return;
    }
    const bool has_extra = rank + core < peers_.size();
    if (has_extra) {
      swap_ranges(rank + core, {0, 0}, all, arrived_);
      add_products(all, true);
      combine_range(all, true);
    }
    // ranges[l] is what this rank cares for at level l.
    std::vector<Range> ranges{all};
    for (int distance = 1; distance < core; distance *= 2) {
      const auto [low, high] = halves(ranges.back());
      const bool lower = (rank & distance) == 0;
      const Range keep = lower ? low : high;
      swap_ranges(rank ^ distance, lower ? high : low, keep, arrived_);
      add_products(keep, lower);
      // The ranks that share the two vectors with this one: 2 * distance neighbours.
      for (int other = 1; other <= distance; other *= 2) exchange_sums(rank ^ other);
      combine_range(keep, lower);
      ranges.push_back(keep);
    }
    for (int distance = core / 2; distance > 0; distance /= 2) {
      const Range own = ranges.back();
      ranges.pop_back();
      const auto [low, high] = halves(ranges.back());
      swap_ranges(rank ^ distance, own, (rank & distance) == 0 ? high : low, data_);
    }
    if (has_extra) swap_ranges(rank + core, all, {0, 0}, data_);
  }

 private:
  static std::pair<Range, Range> halves(Range range) {
    const std::size_t middle = range.begin + range.size() / 2;
    return {{range.begin, middle}, {middle, range.end}};
  }

  // Sends one range of the data, receives another one, into the same place in `to`.
  void swap_ranges(int partner, Range out, Range in, std::byte* to) {
    auto arriving = peers_.memory(to + in.begin * element_, in.size() * element_);
    arriving.receive(partner, 0, in.size() * element_);
    memory_.send(partner, out.begin * element_, out.size() * element_);
    if (in.size() > 0) arriving.wait_received();
    memory_.wait_all_sent();
  }

  // Visits the tensors that have a share of the range: visit(tensor, begin, elements).
  template <typename Visit>
  void each_tensor(Range range, Visit visit) {
    std::size_t begin = 0;
    for (std::size_t tensor = 0; tensor < ends_.size(); ++tensor) {
      const std::size_t from = std::max(begin, range.begin);
      const std::size_t to = std::min(ends_[tensor], range.end);
      if (from < to) visit(tensor, from, to - from);
      begin = ends_[tensor];
    }
  }

  // The left operand is that of the lower ranks: the own one, or the one that arrived.
  const std::byte* left(bool own_is_left) const { return own_is_left ? data_ : arrived_; }
  const std::byte* right(bool own_is_left) const { return own_is_left ? arrived_ : data_; }

  void add_products(Range range, bool own_is_left) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    each_tensor(range, [&](std::size_t tensor, std::size_t at, std::size_t count) {
      add_dot_products(type_, left(own_is_left) + at * element_, right(own_is_left) + at * element_,
                       count, &sums_[3 * tensor]);
    });
  }

  // Both get the same bits: a + b is b + a.
  void exchange_sums(int partner) {
    const std::size_t bytes = sums_.size() * sizeof(double);
    auto out = peers_.memory(sums_.data(), bytes);
    auto in = peers_.memory(arrived_sums_.data(), bytes);
    in.receive(partner, 0, bytes);
    out.send(partner, 0, bytes);
    in.wait_received();
    out.wait_all_sent();
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += arrived_sums_[i];
  }

  void combine_range(Range range, bool own_is_left) {
    each_tensor(range, [&](std::size_t tensor, std::size_t at, std::size_t count) {
      const double* const sums = &sums_[3 * tensor];
      // A vector of zeros adds nothing, and nothing is taken from the other one.
      const double factor_a = sums[1] > 0 ? 1 - sums[0] / (2 * sums[1]) : 1;
      const double factor_b = sums[2] > 0 ? 1 - sums[0] / (2 * sums[2]) : 1;
      combine(type_, data_ + at * element_, left(own_is_left) + at * element_, factor_a,
              right(own_is_left) + at * element_, factor_b, count);
    });
  }

  const Peers& peers_;
  DataType type_;
  std::size_t element_;
  std::byte* data_;
  std::byte* arrived_ = nullptr;
  std::size_t elements_ = 0;
  std::vector<std::size_t> ends_;  // of the tensors
  std::vector<double> sums_;       // for each tensor a.b, a.a, b.b
  std::vector<double> arrived_sums_;
  MessageMemory memory_;
};

}  // namespace

void adasum_allreduce(const Peers& peers, DataType type, void* data,
                      const std::vector<std::size_t>& lengths, FusionBuffer& scratch) {
  Adasum(peers, type, data, lengths, scratch).run();
}

}  // namespace hvd::runtime
