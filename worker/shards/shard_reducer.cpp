#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <hvd/adapter.h>
#include <hvd/collectives.h>
#include <hvd/error.h>
#include <hvd/hvd.h>
#include <hvd/shards.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/core/arithmetic.h"
#include "runtime/core/request.h"
#include "worker/process/ledger.h"
#include "worker/process/process_world.h"
#include "worker/shards/tree.h"
#include "worker/submissions.h"

namespace hvd {
namespace {

using worker::Allotment;
using worker::Subtree;

constexpr std::chrono::hours kLongWait{1};

// A place for each element of one type, of all gradients of that type.
struct PlacedGradient {
  std::string name;
  TensorView tensor;
  std::size_t at = 0;  // its first element among those of its type
};

// How the shards of a step lie on the ranks of one world.
struct Layout {
  int rank = 0;
  int size = 1;
  std::vector<int> missing;                      // shards that this rank is to compute, ascending
  std::shared_ptr<const runtime::SumTree> tree;  // its leaves: the subtrees that the ranks have

  Layout(int shards, int own_rank, const Allotment& allotment)
      : rank(own_rank),
        size(static_cast<int>(allotment.kept.size())),
        missing(allotment.missing[static_cast<std::size_t>(own_rank)]) {
    struct Part {
      Subtree tree;
      runtime::SumTree::Leaf leaf;
    };
    std::vector<Part> parts;
    for (int other = 0; other < size; ++other) {
      const auto index = static_cast<std::size_t>(other);
      std::vector<ShardRange> some = allotment.kept[index];
      for (const int shard : allotment.missing[index]) some.push_back({shard, shard + 1});
      int slot = 0;
      for (const auto& subtree : worker::subtrees_of(shards, some)) {
        parts.push_back({subtree, {other, slot++}});
      }
    }

    std::sort(parts.begin(), parts.end(),
              [](const Part& one, const Part& two) { return one.tree.first < two.tree.first; });
    std::vector<Subtree> trees;
    std::vector<runtime::SumTree::Leaf> leaves;
    for (const auto& part : parts) {
      trees.push_back(part.tree);
      leaves.push_back(part.leaf);
    }
    tree = std::make_shared<const runtime::SumTree>(
        std::move(leaves), worker::additions_of({0, shards}, trees), shards);
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
  bool is_there() const { return first_ != nullptr; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

using Work = std::shared_ptr<detail::Pending>;

// Whether it has ended by then, well or not.
bool has_ended(const Work& work, TimePoint until, FirstError& error) {
  bool ended = true;
  error.keep([&] { ended = work->wait_until(until); });
  return ended;
}

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

  // The gradients are those of a shard. Subtrees that are whole now become one.
  void take(int shards, int shard) {
    Subtree tree{shard, shard + 1};
    auto into = find_sibling(shards, tree);
    if (into == sums_.end()) {
      push(tree);
      return;
    }

    for (const auto& gradient : gradients_) {
      void* const sum = element(into->memory, gradient.at);
      add_(sum, sum, gradient.tensor.data, static_cast<std::size_t>(gradient.tensor.elements()));
    }
    into->tree = worker::parent_of(into->tree, tree);
    for (auto other = find_sibling(shards, into->tree); other != sums_.end();
         other = find_sibling(shards, into->tree)) {
      if (other < into) std::swap(other, into);
      add_(into->memory.data(), into->memory.data(), other->memory.data(), elements_);
      into->tree = worker::parent_of(into->tree, other->tree);
      free_.push_back(std::move(other->memory));
      sums_.erase(other);
    }
  }

  // The subtrees whose sums are here.
  std::vector<Subtree> trees() const {
    std::vector<Subtree> trees;
    for (const auto& sum : sums_) trees.push_back(sum.tree);
    return trees;
  }
  // Forgets the sums of all others.
  void keep(const std::vector<Subtree>& trees) {
    std::erase_if(sums_, [&](SubtreeSum& sum) {
      if (std::find(trees.begin(), trees.end(), sum.tree) != trees.end()) return false;
      free_.push_back(std::move(sum.memory));
      return true;
    });
  }

  // Nothing is in flight.
  void end() { works_.clear(); }

  // The sum of all subtrees of all ranks goes into the memory of the gradients. `aside`: not before
  // spread(), since the caller has that memory back while this goes on.
  void reduce(const Layout& layout, ReduceOp op, const ProcessSet& set, bool aside) {
    is_aside_ = aside;
    if (aside) results_.resize(elements_ * element_bytes_);
    for (const auto& gradient : gradients_) {
      runtime::TreeInput input{layout.tree, {}};
      for (auto& sum : sums_) input.leaves.push_back(element(sum.memory, gradient.at));
      adapter::Submission work;
      work.collective = Collective::allreduce;
      work.input = {nullptr, gradient.tensor.shape, type_};
      work.output = gradient.tensor;
      if (aside) work.output.data = element(results_, gradient.at);
      work.leaves = std::make_shared<const runtime::TreeInput>(std::move(input));
      work.op = op;
      work.process_set = set;
      works_.push_back(
          worker::start(std::move(work), cat(name_, ".", gradient.name), worker::Room::given));
    }
  }
  void spread() {
    if (!is_aside_) return;
    for (auto& gradient : gradients_) {
      std::memcpy(gradient.tensor.data, element(results_, gradient.at), gradient.tensor.bytes());
    }
  }
  // Whether nothing is in flight any more.
  bool has_ended(TimePoint until, FirstError& error) const {
    return std::all_of(works_.begin(), works_.end(),
                       [&](const auto& work) { return hvd::has_ended(work, until, error); });
  }

 private:
  struct SubtreeSum {
    Subtree tree;
    std::vector<std::byte> memory;
  };

  std::byte* element(std::vector<std::byte>& memory, std::size_t index) const {
    return memory.data() + index * element_bytes_;
  }
  std::vector<SubtreeSum>::iterator find_sibling(int shards, const Subtree& tree) {
    const auto sibling = worker::sibling_of(shards, tree);
    return std::find_if(sums_.begin(), sums_.end(),
                        [&](const SubtreeSum& sum) { return sum.tree == sibling; });
  }
  void push(const Subtree& tree) {
    std::vector<std::byte> memory;
    if (!free_.empty()) {
      memory = std::move(free_.back());
      free_.pop_back();
    }
    memory.resize(elements_ * element_bytes_);
    for (const auto& gradient : gradients_) {
      std::memcpy(element(memory, gradient.at), gradient.tensor.data, gradient.tensor.bytes());
    }
    const auto behind = std::find_if(sums_.begin(), sums_.end(), [&](const SubtreeSum& sum) {
      return sum.tree.first > tree.first;
    });
    sums_.insert(behind, {tree, std::move(memory)});
  }

  DataType type_;
  std::string name_;
  runtime::ReduceFunction add_;
  std::size_t element_bytes_;
  std::size_t elements_ = 0;
  std::vector<PlacedGradient> gradients_;
  std::vector<SubtreeSum> sums_;              // of this step, in the order of their shards
  std::vector<std::vector<std::byte>> free_;  // memory for others
  std::vector<std::byte> results_;
  bool is_aside_ = false;
  std::vector<Work> works_;  // in flight, or ended
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

  ~Impl() { wait_for_all(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void add(std::string name, const TensorView& gradient) {
    if (phase_ != Phase::idle) {
      throw InvalidArgumentError("ShardReducer::add(): a step has begun");
    }
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
    forget();
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

  const std::vector<int>& begin(std::uint64_t step) {
    refuse_in_flight("begin()");
    auto world = worker::ProcessWorld::instance().world_for("ShardReducer::begin()");
    const bool is_new_world = world_.owner_before(world) || world.owner_before(world_);
    const bool is_again = step_ == step;
    if (!is_again) forget();
    if (is_again || is_new_world) {
      agree(step);
      world_ = world;
    } else {
      set_layout({}, options_.process_set.size());
    }
    step_ = step;
    phase_ = Phase::collecting;
    return layout_->missing;
  }

  void ready(int shard, std::span<const std::int64_t> samples) {
    refuse_in_flight(cat("ready(", shard, ")"));
    begin_if_not();
    if (is_over() || shard != layout_->missing[next_]) {
      throw InvalidArgumentError(cat("ShardReducer::ready(", shard, "): ", next_text()));
    }
    for (auto& [type, sum] : sums_) sum.take(options_.shards, shard);
    if (ledger_ != nullptr) samples_[shard].assign(samples.begin(), samples.end());
    ++next_;
  }

  // `blocks`: it is called until it returns true or throws.
  bool synchronize_until(TimePoint until, bool blocks) {
    if (!in_flight()) {
      begin_if_not();
      if (!is_over()) {
        throw InvalidArgumentError(cat("ShardReducer::synchronize(): ", next_text()));
      }
      reduce(!blocks);
    }

    if (!has_ended(until)) return false;
    if (!error_.is_there()) {
      for (auto& [type, sum] : sums_) sum.spread();
      if (samples_work_) {
        error_.keep([&] { note(samples_work_->take().front().tensor); });
      }
    }
    const FirstError error = std::exchange(error_, {});
    end();
    error.rethrow();
    return true;
  }

  bool in_flight() const { return phase_ == Phase::reducing; }

  void reset() {
    wait_for_all();
    error_ = {};
    end();
    forget();
  }

 private:
  // A step is idle until its first call, and again at its end.
  enum class Phase { idle, collecting, reducing };
  struct Place {
    DataType type = DataType::float32;
    std::size_t index = 0;  // among the gradients of its type
  };

  PlacedGradient& gradient_at(const Place& place) {
    return sums_.at(place.type).gradients()[place.index];
  }

  void refuse_in_flight(const std::string& call) const {
    if (!in_flight()) return;
    throw InvalidArgumentError(
        cat("ShardReducer::", call, ": synchronize_for() has not come to its end"));
  }
  void begin_if_not() {
    if (phase_ != Phase::idle) return;
    forget();
    set_layout({}, options_.process_set.size());
    phase_ = Phase::collecting;
  }
  // Another rank may not get the sum: then all come to this step again, in another world. So what
  // was computed in a step that has a number is kept.
  void end() {
    for (auto& [type, sum] : sums_) sum.end();
    samples_work_.reset();
    phase_ = Phase::idle;
    if (!step_) forget();
  }
  void forget() {
    for (auto& [type, sum] : sums_) sum.keep({});
    samples_.clear();
    step_.reset();
  }

  // From the subtrees whose sums the ranks have.
  void set_layout(std::vector<std::vector<Subtree>> claims, int size) {
    const int rank = options_.process_set.rank();
    const bool is_whole = claims.empty();
    if (!is_whole || !has_whole_layout_ || layout_->rank != rank || layout_->size != size) {
      claims.resize(static_cast<std::size_t>(size));
      const auto allotment = worker::allot(options_.shards, claims);
      layout_.emplace(options_.shards, rank, allotment);
      const auto& kept = allotment.kept[static_cast<std::size_t>(rank)];
      for (auto& [type, sum] : sums_) sum.keep(kept);
      std::erase_if(samples_, [&kept](const auto& of_shard) {
        return std::none_of(kept.begin(), kept.end(), [&of_shard](const Subtree& tree) {
          return tree.contains(of_shard.first);
        });
      });
    }
    has_whole_layout_ = is_whole;
    next_ = 0;
  }

  // All ranks say which subtrees of this step they have, a row of three numbers for each: the step,
  // the first shard, one behind the last. The first row of a rank has an empty subtree.
  void agree(std::uint64_t step) {
    std::vector<std::int64_t> rows{static_cast<std::int64_t>(step), 0, 0};
    if (!sums_.empty()) {
      for (const auto& tree : sums_.begin()->second.trees()) {
        rows.insert(rows.end(), {static_cast<std::int64_t>(step), tree.first, tree.last});
      }
    }
    const auto count = static_cast<std::int64_t>(rows.size() / 3);
    const Tensor all =
        allgather(ConstTensorView{rows.data(), {count, 3}, DataType::int64},
                  {.name = cat(options_.name, ".begin"), .process_set = options_.process_set});

    std::vector<std::vector<Subtree>> claims;
    const auto values = all.as<std::int64_t>();
    for (std::size_t at = 0; at + 3 <= values.size(); at += 3) {
      const Subtree tree{static_cast<int>(values[at + 1]), static_cast<int>(values[at + 2])};
      if (static_cast<std::uint64_t>(values[at]) != step) {
        throw InvalidArgumentError(cat("ShardReducer::begin(", step,
                                       "): another rank has come to step ",
                                       static_cast<std::uint64_t>(values[at])));
      }
      if (tree.size() == 0) {
        claims.emplace_back();
      } else if (!claims.empty()) {
        claims.back().push_back(tree);
      }
    }
    set_layout(std::move(claims), options_.process_set.size());
  }

  bool is_over() const { return next_ == layout_->missing.size(); }
  std::string next_text() const {
    const auto& missing = layout_->missing;
    if (missing.empty()) return "this rank has no shards to compute in this step";
    const std::string all = cat("this rank has ", missing.size(), " shards, from ", missing.front(),
                                " to ", missing.back());
    return is_over() ? cat(all, ", and all of them are ready")
                     : cat(all, ", and the next one is ", missing[next_]);
  }

  // For the ledger: each shard, the number of its samples, and these.
  std::vector<std::int64_t> sample_numbers() const {
    std::vector<std::int64_t> numbers;
    for (const auto& [shard, samples] : samples_) {
      numbers.insert(numbers.end(), {shard, static_cast<std::int64_t>(samples.size())});
      numbers.insert(numbers.end(), samples.begin(), samples.end());
    }
    return numbers;
  }
  // The same of all ranks.
  void note(const Tensor& gathered) const {
    const std::span numbers(static_cast<const std::int64_t*>(gathered.data()),
                            static_cast<std::size_t>(gathered.shape().front()));
    worker::ShardSamples samples;
    for (std::size_t at = 0; at < numbers.size();) {
      const auto shard = static_cast<int>(numbers[at]);
      const auto some = numbers.subspan(at + 2, static_cast<std::size_t>(numbers[at + 1]));
      samples[shard].assign(some.begin(), some.end());
      at += 2 + some.size();
    }
    ledger_->add_samples(samples);
  }

  void reduce(bool aside) {
    phase_ = Phase::reducing;
    for (auto& of_type : sums_) {
      error_.keep(
          [&] { of_type.second.reduce(*layout_, options_.op, options_.process_set, aside); });
    }
    if (ledger_ == nullptr) return;
    sent_samples_ = sample_numbers();
    error_.keep([&] {
      adapter::Submission work;
      work.collective = Collective::allgather;
      work.input = ConstTensorView(sent_samples_);
      work.process_set = options_.process_set;
      samples_work_ =
          worker::start(std::move(work), cat(options_.name, ".samples"), worker::Room::made);
    });
  }
  // Whether nothing is in flight any more.
  bool has_ended(TimePoint until) {
    return std::all_of(sums_.begin(), sums_.end(),
                       [&](const auto& one) { return one.second.has_ended(until, error_); }) &&
           (!samples_work_ || hvd::has_ended(samples_work_, until, error_));
  }
  // It has the memory that collectives read and write.
  void wait_for_all() {
    if (!in_flight()) return;
    while (!has_ended(Clock::now() + kLongWait)) {
    }
  }

  ShardReducerOptions options_;
  std::map<DataType, TypeSum> sums_;
  std::vector<Place> places_;  // by the index of a gradient
  std::optional<Layout> layout_;
  bool has_whole_layout_ = false;        // one in which nobody had any sums before
  std::optional<std::uint64_t> step_;    // of the sums; nothing: they are forgotten at the next one
  std::weak_ptr<runtime::World> world_;  // in which the ranks have told each other what they have
  std::size_t next_ = 0;                 // among the missing shards
  Phase phase_ = Phase::idle;
  FirstError error_;  // of what is in flight
  worker::Ledger* const ledger_ = worker::Ledger::of_process();
  worker::ShardSamples samples_;  // of the shards whose sums are here, if there is a ledger
  std::vector<std::int64_t> sent_samples_;
  Work samples_work_;  // null: none
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
const std::vector<int>& ShardReducer::begin(std::uint64_t step) { return impl_->begin(step); }
void ShardReducer::ready(int shard, std::span<const std::int64_t> samples) {
  impl_->ready(shard, samples);
}
void ShardReducer::synchronize() {
  while (!impl_->synchronize_until(Clock::now() + kLongWait, true)) {
  }
}
bool ShardReducer::synchronize_for(std::chrono::milliseconds timeout) {
  return impl_->synchronize_until(Clock::now() + timeout, false);
}
bool ShardReducer::in_flight() const { return impl_->in_flight(); }
void ShardReducer::reset() { impl_->reset(); }

}  // namespace hvd
