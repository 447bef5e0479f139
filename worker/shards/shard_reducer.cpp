#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include <hvd/collectives.h>
#include <hvd/error.h>
#include <hvd/hvd.h>
#include <hvd/shards.h>

#include "base/text.h"
#include "runtime/core/arithmetic.h"
#include "runtime/core/request.h"
#include "worker/shards/tree.h"

namespace hvd {
namespace {

using worker::Addition;
using worker::Subtree;

// Sums are made in pieces that stay in the cache.
constexpr std::size_t kBlockBytes = 8 << 10;

// A place for each element of one type, of all gradients of that type.
struct PlacedGradient {
  std::string name;
  TensorView tensor;
  std::size_t at = 0;  // its first element among those of its type
};

// How the shards lie on the ranks of one world.
struct Layout {
  int rank = 0;
  int size = 1;
  ShardRange own;
  std::vector<std::vector<Subtree>> subtrees;  // by rank
  std::size_t rounds = 0;                      // the most subtrees of one rank
  std::vector<Addition> additions;             // of all subtrees, in the order of their shards

  Layout(int shards, int own_rank, int world_size) : rank(own_rank), size(world_size) {
    std::vector<Subtree> all;
    for (int other = 0; other < size; ++other) {
      auto some = worker::subtrees_within(shards, shards_of(shards, other, size));
      rounds = std::max(rounds, some.size());
      all.insert(all.end(), some.begin(), some.end());
      subtrees.push_back(std::move(some));
    }
    own = shards_of(shards, rank, size);
    additions = worker::additions_of({0, shards}, all);
  }

  const std::vector<Subtree>& own_subtrees() const {
    return subtrees[static_cast<std::size_t>(rank)];
  }
  // The elements of which a rank makes the sum.
  std::size_t first_of(int owner, std::size_t elements) const {
    const auto whole = (elements + runtime::kReduceGrain - 1) / runtime::kReduceGrain;
    const auto at = whole * static_cast<std::size_t>(owner) / static_cast<std::size_t>(size);
    return std::min(elements, at * runtime::kReduceGrain);
  }
  std::size_t count_of(int owner, std::size_t elements) const {
    return first_of(owner + 1, elements) - first_of(owner, elements);
  }
};

// All of these have to end before an error may leave the memory that they use.
class FirstError {
 public:
  template <typename Step>
  void keep(Step step) {
    try {
      step();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

// The gradients of one type: their sums of this step, and what becomes of them.
class TypeSum {
 public:
  TypeSum(DataType type, std::string name)
      : type_(type),
        name_(std::move(name)),
        add_(runtime::reduce_function(type, ReduceOp::sum)),
        element_bytes_(size_of(type)) {}

  void add(std::string name, const TensorView& tensor) {
    gradients_.push_back({std::move(name), tensor, elements_});
    elements_ += static_cast<std::size_t>(tensor.elements());
  }
  std::vector<PlacedGradient>& gradients() { return gradients_; }

  // The gradients are those of a shard. So many of the subtrees before it become one with it.
  void take(int merges) {
    if (merges == 0) {
      push();
      for (const auto& gradient : gradients_) {
        std::memcpy(element(sums_[used_ - 1], gradient.at), gradient.tensor.data,
                    gradient.tensor.bytes());
      }
      return;
    }

    for (const auto& gradient : gradients_) {
      void* const sum = element(sums_[used_ - 1], gradient.at);
      add_(sum, sum, gradient.tensor.data, static_cast<std::size_t>(gradient.tensor.elements()));
    }
    for (int i = 1; i < merges; ++i) {
      --used_;
      auto* const left = sums_[used_ - 1].data();
      add_(left, left, sums_[used_].data(), elements_);
    }
  }

  void reset() {
    used_ = 0;
    arriving_.clear();
  }

  // Each rank gets all subtrees of its part of the elements ...
  void hand_out(const Layout& layout, const ProcessSet& set) {
    std::vector<std::int64_t> splits;
    for (int rank = 0; rank < layout.size; ++rank) {
      splits.push_back(static_cast<std::int64_t>(layout.count_of(rank, elements_)));
    }
    const std::vector<std::int64_t> nothing(splits.size(), 0);
    for (std::size_t round = 0; round < layout.rounds; ++round) {
      const bool has_one = round < used_;
      const ConstTensorView sent{has_one ? sums_[round].data() : nullptr,
                                 {has_one ? static_cast<std::int64_t>(elements_) : 0},
                                 type_};
      arriving_.push_back(alltoall_async(sent, {.name = cat(name_, ".", round),
                                                .splits = has_one ? splits : nothing,
                                                .process_set = set}));
    }
  }
  // Throws the first error, when nothing is in flight any more.
  void wait_for_parts() const {
    FirstError error;
    for (const auto& one : arriving_) error.keep([&one] { one.wait(); });
    error.rethrow();
  }

  // ... adds them up along the tree, divides the sum by `divisor`, and tells all.
  void add_up(const Layout& layout, int divisor, const ProcessSet& set) {
    const std::size_t count = layout.count_of(layout.rank, elements_);
    arrived_.clear();
    for (auto& one : arriving_) arrived_.push_back(one.get());
    arriving_.clear();
    const auto parts = parts_in_order(layout, count);

    const std::size_t block = kBlockBytes / element_bytes_;
    for (std::size_t at = 0; at < count; at += block) {
      const std::size_t length = std::min(block, count - at);
      for (const auto& addition : layout.additions) {
        std::byte* const left = parts[addition.left] + at * element_bytes_;
        add_(left, left, parts[addition.right] + at * element_bytes_, length);
      }
    }

    std::byte* const sum = count > 0 ? parts.front() : nullptr;
    if (divisor > 1 && count > 0) runtime::divide(type_, sum, count, divisor);
    gathering_ = allgather_async(ConstTensorView{sum, {static_cast<std::int64_t>(count)}, type_},
                                 {.name = cat(name_, ".sum"), .process_set = set});
  }
  void wait_for_sum() const { gathering_.wait(); }

  // To the memory of the gradients.
  void spread() {
    const Tensor sum = gathering_.get();
    spread_from(static_cast<const std::byte*>(sum.data()));
    arrived_.clear();
  }
  // The same in a world of one.
  void spread_own(int divisor) {
    if (divisor > 1) runtime::divide(type_, sums_[0].data(), elements_, divisor);
    spread_from(sums_[0].data());
  }

 private:
  std::byte* element(std::vector<std::byte>& sum, std::size_t index) const {
    return sum.data() + index * element_bytes_;
  }
  void push() {
    if (used_ == sums_.size()) sums_.emplace_back(elements_ * element_bytes_);
    sums_[used_].resize(elements_ * element_bytes_);
    ++used_;
  }

  // Where the part of each subtree has arrived, in the order of their shards: in the tensor of a
  // round lie those of the ranks that have so many.
  std::vector<std::byte*> parts_in_order(const Layout& layout, std::size_t count) {
    std::vector<std::size_t> arrived(layout.rounds, 0);  // parts that lie before, in each tensor
    std::vector<std::byte*> parts;
    for (const auto& subtrees : layout.subtrees) {
      for (std::size_t round = 0; round < subtrees.size(); ++round) {
        auto* const first = static_cast<std::byte*>(arrived_[round].tensor.data());
        parts.push_back(first + arrived[round]++ * count * element_bytes_);
      }
    }
    return parts;
  }

  void spread_from(const std::byte* sum) {
    for (auto& gradient : gradients_) {
      std::memcpy(gradient.tensor.data, sum + gradient.at * element_bytes_,
                  gradient.tensor.bytes());
    }
  }

  DataType type_;
  std::string name_;
  runtime::ReduceFunction add_;
  std::size_t element_bytes_;
  std::size_t elements_ = 0;
  std::vector<PlacedGradient> gradients_;
  std::vector<std::vector<std::byte>> sums_;  // memory of subtrees; the first `used_` hold one
  std::size_t used_ = 0;
  std::vector<Future<Rows>> arriving_;
  std::vector<Rows> arrived_;
  Future<Tensor> gathering_;
};

}  // namespace

class ShardReducer::Impl {
 public:
  explicit Impl(ShardReducerOptions options) : options_(std::move(options)) {
    static_cast<void>(shards_of(options_.shards, 0, 1));  // throws for a number that cannot be
    if (options_.op != Average && options_.op != Sum) {
      throw InvalidArgumentError("ShardReducer: the operation must be Average or Sum");
    }
  }

  void add(std::string name, const TensorView& gradient) {
    if (begun_) throw InvalidArgumentError("ShardReducer::add(): a step has begun");
    if (name.empty()) throw InvalidArgumentError("ShardReducer::add(): the name is empty");
    if (gradient.device != Device()) {
      throw InvalidArgumentError(
          cat("ShardReducer::add(): \"", name, "\" does not lie in the memory of the host"));
    }
    for (const auto& place : places_) {
      if (gradient_at(place).name == name) {
        throw InvalidArgumentError(cat("ShardReducer::add(): \"", name, "\" was added before"));
      }
    }

    auto& sum = sums_
                    .try_emplace(gradient.type, gradient.type,
                                 cat(options_.name, ".", runtime::type_name(gradient.type)))
                    .first->second;
    sum.add(std::move(name), gradient);
    places_.push_back({gradient.type, sum.gradients().size() - 1});
  }

  void rebind(std::size_t index, void* data) {
    if (index >= places_.size()) {
      throw InvalidArgumentError(cat("ShardReducer::rebind(): there is no gradient ", index));
    }
    gradient_at(places_[index]).tensor.data = data;
  }

  int shards() const { return options_.shards; }
  ShardRange own() const {
    return shards_of(options_.shards, options_.process_set.rank(), options_.process_set.size());
  }

  void ready(int shard) {
    begin();
    if (shard != next_ || !layout_->own.contains(shard)) {
      throw InvalidArgumentError(cat("ShardReducer::ready(", shard, "): ", next_text()));
    }
    const int merges = worker::merges_after({0, options_.shards}, layout_->own, shard);
    for (auto& [type, sum] : sums_) sum.take(merges);
    ++next_;
  }

  void synchronize() {
    begin();
    if (next_ != layout_->own.last) {
      throw InvalidArgumentError(cat("ShardReducer::synchronize(): ", next_text()));
    }
    const int divisor = options_.op == Average ? options_.shards : 1;
    FirstError error;
    if (layout_->size == 1) {
      for (auto& [type, sum] : sums_) sum.spread_own(divisor);
    } else {
      error.keep([&] { reduce(divisor); });
    }
    reset();
    error.rethrow();
  }

  void reset() {
    for (auto& [type, sum] : sums_) sum.reset();
    begun_ = false;
  }

 private:
  struct Place {
    DataType type = DataType::float32;
    std::size_t index = 0;  // among the gradients of its type
  };

  PlacedGradient& gradient_at(const Place& place) {
    return sums_.at(place.type).gradients()[place.index];
  }

  void begin() {
    if (begun_) return;
    const int rank = options_.process_set.rank();
    const int size = options_.process_set.size();
    if (!layout_ || layout_->rank != rank || layout_->size != size) {
      layout_.emplace(options_.shards, rank, size);
    }
    next_ = layout_->own.first;
    begun_ = true;
  }

  std::string next_text() const {
    const auto& own = layout_->own;
    if (own.size() == 0) return "this rank has no shards in this world";
    const std::string all = cat("this rank has the shards ", own.first, " to ", own.last - 1);
    return next_ == own.last ? cat(all, ", and all of them are ready")
                             : cat(all, ", and the next one is ", next_);
  }

  void reduce(int divisor) {
    FirstError error;
    const auto each = [&](const auto& step) {
      for (auto& one : sums_) error.keep([&] { step(one.second); });
    };
    each([&](TypeSum& sum) { sum.hand_out(*layout_, options_.process_set); });
    each([](const TypeSum& sum) { sum.wait_for_parts(); });
    error.rethrow();

    each([&](TypeSum& sum) { sum.add_up(*layout_, divisor, options_.process_set); });
    each([](const TypeSum& sum) { sum.wait_for_sum(); });
    error.rethrow();

    each([](TypeSum& sum) { sum.spread(); });
  }

  ShardReducerOptions options_;
  std::map<DataType, TypeSum> sums_;
  std::vector<Place> places_;  // by the index of a gradient
  std::optional<Layout> layout_;
  int next_ = 0;
  bool begun_ = false;
};

ShardReducer::ShardReducer(ShardReducerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
ShardReducer::~ShardReducer() = default;

void ShardReducer::add(std::string name, const TensorView& gradient) {
  impl_->add(std::move(name), gradient);
}
void ShardReducer::rebind(std::size_t index, void* data) { impl_->rebind(index, data); }
int ShardReducer::shards() const { return impl_->shards(); }
ShardRange ShardReducer::own() const { return impl_->own(); }
void ShardReducer::ready(int shard) { impl_->ready(shard); }
void ShardReducer::synchronize() { impl_->synchronize(); }
void ShardReducer::reset() { impl_->reset(); }

}  // namespace hvd
