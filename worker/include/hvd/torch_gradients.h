// How hvd::libtorch::DistributedOptimizer makes the gradients of parameters those of all ranks. A
// part of hvd/torch.h; programs use its options alone.
//
// Hooks of autograd tell when a gradient comes. It goes to a GradientReducer at once, if the pass
// is the last one of the step. A callback at the end of the pass sends the others, asks which
// gradients only other ranks have, gives zeros for these, and waits.
#pragma once

#include <ATen/ATen.h>
#include <algorithm>
#include <c10/util/intrusive_ptr.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <utility>
#include <vector>

#include <hvd/collectives.h>
#include <hvd/elastic.h>
#include <hvd/error.h>
#include <hvd/gradient_reducer.h>
#include <hvd/hvd.h>
#include <hvd/process_set.h>
#include <hvd/standard_library.h>
#include <hvd/tensor.h>
#include <hvd/torch_tensor.h>
#include <hvd/types.h>

namespace hvd::libtorch {

struct DistributedOptimizerOptions {
  // Stands before the names of the gradients, with a dot: two optimizers of one process that are
  // there at the same time need two names.
  std::string name = "gradient";
  ReduceOp op = Average;  // or Sum
  // Average only: gradients are divided by it before they are added, and multiplied by it after the
  // division by the number of ranks.
  double gradient_predivide_factor = 1.0;
  Compression compression = Compression::none;
  ProcessSet process_set = {};       // the ranks whose gradients are reduced; others step alone
  int backward_passes_per_step = 1;  // so many passes add up before gradients are reduced
  // Gradients that are reduced together: so many groups, or these lists of names of parameters.
  int number_of_groups = 0;
  std::vector<std::vector<std::string>> groups = {};
  // The names of parameters, on all ranks the same, whose gradients travel as rows, as those of an
  // embedding with sparse(true) are. Other gradients that are sparse are made dense.
  std::vector<std::string> sparse = {};
};

namespace detail {

class GradientExchange;

// A backward pass that a program has asked for. Autograd keeps it until its end, or until an
// exception ends it: then it is gone.
class BackwardPass : public std::enable_shared_from_this<BackwardPass> {
 public:
  // The pass that runs on this thread, of which the exchange is told the end.
  static std::shared_ptr<BackwardPass> enter(const std::shared_ptr<GradientExchange>& exchange);
  bool is_over() const { return is_over_; }

 private:
  void end();

  std::vector<std::shared_ptr<GradientExchange>> parts_;
  bool is_over_ = false;
};

// Gradients that hvd reads or writes although nobody waits for them: after an exception, say.
class AbandonedGradients {
 public:
  AbandonedGradients(std::unique_ptr<GradientReducer> reducer, std::vector<at::Tensor> memory)
      : reducer_(std::move(reducer)), memory_(std::move(memory)) {}
  bool in_flight() const { return reducer_->in_flight(); }

  // Keeps them until they are done, also at the end of the process.
  static void keep(std::unique_ptr<GradientReducer> reducer, std::vector<at::Tensor> memory) {
    static std::mutex mutex;
    static auto* const kept = new std::vector<AbandonedGradients>;
    const std::lock_guard lock(mutex);
    std::erase_if(*kept, [](const auto& one) { return !one.in_flight(); });
    kept->emplace_back(std::move(reducer), std::move(memory));
  }

 private:
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<at::Tensor> memory_;
};

// Parameters whose gradients an exchange reduces. A second one would reduce them twice.
class TakenParameters {
 public:
  static bool take(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex());
    return taken().insert(parameter.unsafeGetTensorImpl()).second;
  }
  static void give_back(const at::Tensor& parameter) {
    const std::lock_guard lock(mutex());
    taken().erase(parameter.unsafeGetTensorImpl());
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::set<const c10::TensorImpl*>& taken() {
    static auto* const parameters = new std::set<const c10::TensorImpl*>;
    return *parameters;
  }
};

// The gradient that a reduction has left, as long as it lives and is as it was.
class LeftGradient {
 public:
  LeftGradient() = default;
  explicit LeftGradient(const at::Tensor& gradient)
      : was_there_(gradient.defined()),
        gradient_(gradient.getIntrusivePtr()),
        version_(gradient.defined() ? gradient._version() : 0) {}
  bool was_there() const { return was_there_; }
  bool is_still(const at::Tensor& gradient) const {
    return was_there_ && gradient.defined() && !gradient_.expired() &&
           gradient_._unsafe_get_target() == gradient.unsafeGetTensorImpl() &&
           version_ == gradient._version();
  }

 private:
  bool was_there_ = false;
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> gradient_{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  std::int64_t version_ = 0;
};

// Makes the gradients of parameters those of all ranks. Its hooks are called by the threads of
// autograd, the rest by one thread at a time.
class GradientExchange : public std::enable_shared_from_this<GradientExchange> {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  GradientExchange(const DistributedOptimizerOptions& options, const Named& parameters)
      : options_(options) {
    check_options();
    parameters_.reserve(parameters.size());
    try {
      for (const auto& [name, parameter] : parameters) {
        if (!TakenParameters::take(parameter)) {
          throw InvalidArgumentError("DistributedOptimizer: \"" + name +
                                     "\" is a parameter of another DistributedOptimizer, or stands "
                                     "in this one twice");
        }
        parameters_.push_back({.name = name, .tensor = parameter});
      }
      reducer_ = make_reducer();
    } catch (...) {
      for (const auto& one : parameters_) TakenParameters::give_back(one.tensor);
      throw;
    }
  }

  ~GradientExchange() {
    for (auto& one : parameters_) {
      if (one.accumulator) one.accumulator->del_post_hook(one.post_hook);
      if (one.has_hook) one.tensor.remove_hook(one.hook);
      TakenParameters::give_back(one.tensor);
    }
    if (reducer_->in_flight()) abandon_reducer();
  }
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Once, after it is owned.
  void set_hooks() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& one = parameters_[i];
      if (!one.tensor.is_floating_point()) continue;
      // Only then it takes hooks; it may ask for gradients later.
      const bool asks = one.tensor.requires_grad();
      if (!asks) one.tensor.set_requires_grad(true);
      one.hook = one.tensor.register_hook([exchange = weak_from_this(), i](const at::TensorBase&) {
        if (const auto self = exchange.lock()) self->before_accumulation(i);
      });
      one.has_hook = true;
      watch_accumulator(i);
      if (!asks) one.tensor.set_requires_grad(false);
    }
  }

  // --- steps ---

  // True: a reduction is due now.
  bool end_pass() {
    const std::lock_guard lock(mutex_);
    for (auto& one : parameters_) {
      if (!one.before.defined() || one.has_come) continue;
      if (!one.gradient().defined()) one.gradient() = one.before;
      one.before = at::Tensor();
    }
    if (!is_in_pass_) return false;
    is_in_pass_ = false;
    return ++passes_ >= options_.backward_passes_per_step;
  }

  // Goes on with the reduction, for at most so long. False: the next call goes on.
  bool reduce_for(std::chrono::milliseconds slice) {
    const std::lock_guard lock(mutex_);
    return reduce_locked(slice);
  }

  // Blocks until all gradients are reduced; those that a pass has reduced, are.
  void synchronize() {
    const std::lock_guard lock(mutex_);
    if (takes_part() && !is_still_reduced()) reduce_wholly();
  }

  // A step has used the gradients.
  void note_step() {
    const std::lock_guard lock(mutex_);
    is_reduced_ = holds_reduced_ = false;
  }

  // Gives up what passes have left. Waits for what is in flight.
  void forget_step() {
    const std::lock_guard lock(mutex_);
    if (is_initialized() && takes_part()) finish_what_was_cut_off();
    begin_step();
    is_reduced_ = holds_reduced_ = false;
  }

  void set_passes(int passes) {
    const std::lock_guard lock(mutex_);
    if (passes < 1) refuse("backward_passes_per_step is 1 or more");
    if (passes_ != 0 || is_in_pass_) {
      refuse("set_backward_passes_per_step() comes between steps: zero_grad() or step() ends one");
    }
    options_.backward_passes_per_step = passes;
  }

  // The mean of all ranks' losses; what is not floating point stays as it is.
  at::Tensor mean_of(const at::Tensor& loss) {
    const std::lock_guard lock(mutex_);
    if (!loss.defined() || !loss.is_floating_point() || !takes_part()) return loss;
    const at::NoGradGuard no_grad;
    const auto mean = loss.detach().to(at::kCPU, loss.scalar_type(), false, true).contiguous();
    hvd::allreduce(
        view(mean),
        {.name = options_.name + ".<loss>", .op = Average, .process_set = options_.process_set});
    return mean.to(loss.device());
  }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    bool as_rows = false;
    std::shared_ptr<torch::autograd::Node> accumulator = {};
    std::uintptr_t post_hook = 0;  // of the accumulator
    unsigned hook = 0;             // of the tensor, before the accumulation
    bool has_hook = false;

    bool has_come = false;   // in this step
    at::Tensor sent = {};    // belongs to hvd until the reduction is done
    at::Tensor before = {};  // what was reduced before, to which a sum is added
    LeftGradient left = {};  // by the last reduction

    at::Tensor& gradient() { return tensor.mutable_grad(); }
  };

  enum class Stage { collecting, asking, reducing };

  [[noreturn]] static void refuse(const std::string& why) {
    throw InvalidArgumentError("DistributedOptimizer: " + why);
  }

  void check_options() const {
    if (options_.op != Average && options_.op != Sum) refuse("op is Average or Sum");
    if (options_.backward_passes_per_step < 1) refuse("backward_passes_per_step is 1 or more");
  }

  // Checks the rest of the options, too.
  std::unique_ptr<GradientReducer> make_reducer() {
    auto reducer = std::make_unique<GradientReducer>(
        GradientReducerOptions{.name = options_.name,
                               .op = options_.op,
                               .gradient_predivide_factor = options_.gradient_predivide_factor,
                               .compression = options_.compression,
                               .process_set = options_.process_set,
                               .number_of_groups = options_.number_of_groups,
                               .groups = options_.groups});
    for (const auto& name : options_.sparse) {
      const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                      [&](const auto& one) { return one.name == name; });
      if (found == parameters_.end()) refuse("there is no parameter \"" + name + "\" in `sparse`");
      found->as_rows = true;
    }
    for (const auto& one : parameters_) {
      const auto type = data_type_of(one.tensor.scalar_type());
      if (!type) refuse_tensor(one.tensor, "it is the parameter \"" + one.name + "\"");
      const auto shape = one.tensor.sizes();
      const Device device = one.as_rows ? Device{} : place_of(one.tensor);
      const TensorView memory(nullptr, {shape.begin(), shape.end()}, *type, device);
      one.as_rows ? reducer->add_sparse(one.name, memory) : reducer->add(one.name, memory);
    }
    for (const auto& group : options_.groups) {
      for (const auto& name : group) reducer->index_of(name);  // throws if there is none
    }
    return reducer;
  }

  // --- hooks ---

  // A parameter gets another accumulator when its type changes. True: it has, and if it is about to
  // run, its hook is not called any more.
  bool watch_accumulator(std::size_t index) {
    auto& one = parameters_[index];
    auto accumulator = torch::autograd::impl::grad_accumulator(one.tensor);
    if (accumulator == one.accumulator || !accumulator) return false;
    if (one.accumulator) one.accumulator->del_post_hook(one.post_hook);
    using Tensors = torch::autograd::variable_list;
    one.post_hook =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [exchange = weak_from_this(), index](const Tensors& outputs, const Tensors&) {
              if (const auto self = exchange.lock()) self->after_accumulation(index);
              return outputs;
            }));
    one.accumulator = std::move(accumulator);
    return true;
  }

  // Autograd is about to add to the gradient: not to one in flight, nor to an old sum.
  void before_accumulation(std::size_t index) {
    const std::lock_guard lock(mutex_);
    if (!enter_pass()) return;
    const bool is_untold = watch_accumulator(index);
    auto& one = parameters_[index];
    if (one.sent.defined()) {
      refuse("the gradient of \"" + one.name +
             "\" comes a second time in one backward pass, while it is being reduced: a function "
             "makes a backward pass within this one");
    }
    if (is_old_part_of_a_sum(one)) one.before = std::exchange(one.gradient(), at::Tensor());
    if (is_untold) note(one);
  }

  // Autograd has added to the gradient.
  void after_accumulation(std::size_t index) {
    const std::lock_guard lock(mutex_);
    auto& one = parameters_[index];
    if (!enter_pass() || !one.gradient().defined()) return;
    note(one);
    // What is not sent now, is sent when the step ends.
    if (!sends_early_ || one.sent.defined()) return;
    const at::NoGradGuard no_grad;
    send(index);
  }

  // A gradient has come.
  void note(Parameter& one) {
    one.has_come = true;
    is_in_pass_ = true;
    is_reduced_ = false;
  }

  // A sum of all ranks already, which must not be added up again. An average with such a part stays
  // right, since it is the same on all ranks.
  bool is_old_part_of_a_sum(Parameter& one) const {
    if (options_.op != Sum || one.has_come || !one.gradient().defined()) return false;
    return holds_reduced_ || one.left.is_still(one.gradient());
  }

  // Notes that a backward pass is under way. False: it is none of hvd's.
  bool enter_pass() {
    if (const auto current = pass_.lock(); current && !current->is_over()) return true;
    if (!takes_part()) return false;
    finish_what_was_cut_off();
    pass_ = BackwardPass::enter(shared_from_this());
    sends_early_ = passes_ + 1 == options_.backward_passes_per_step;
    return true;
  }

  // Whether this rank reduces gradients at all, in this world.
  bool takes_part() {
    if (const auto generation = elastic::generation(); generation_ != generation) {
      // Backward passes of a world that has failed do not count.
      generation_ = generation;
      reducer_->reset();
      begin_step();
      is_reduced_ = holds_reduced_ = false;
    }
    return options_.process_set.included();
  }

  // --- the end of a step ---

  void begin_step() {
    for (auto& one : parameters_) {
      one.sent = at::Tensor();
      one.before = at::Tensor();
      one.has_come = false;
    }
    passes_ = 0;
    is_in_pass_ = sends_early_ = was_cut_off_ = false;
    stage_ = Stage::collecting;
  }

  void abandon_reducer() {
    std::vector<at::Tensor> memory;
    for (const auto& one : parameters_) memory.push_back(one.sent);
    AbandonedGradients::keep(std::move(reducer_), std::move(memory));
  }

  // After an error. What is in flight may wait for other ranks, which may wait for this one.
  void give_up_step() {
    if (reducer_->in_flight()) {
      abandon_reducer();
      reducer_ = make_reducer();
    } else {
      reducer_->reset();
    }
    begin_step();
  }

  // Whether what was reduced is there: a program may have thrown all of it away.
  bool is_still_reduced() {
    const auto was_there = [](const auto& one) { return one.left.was_there(); };
    const auto is_there = [](auto& one) { return one.gradient().defined(); };
    if (!is_reduced_ || std::none_of(parameters_.begin(), parameters_.end(), was_there)) {
      return is_reduced_;
    }
    return std::any_of(parameters_.begin(), parameters_.end(), is_there);
  }

  void finish_what_was_cut_off() {
    const auto is_sent = [](const auto& one) { return one.sent.defined(); };
    const bool has_sent = std::any_of(parameters_.begin(), parameters_.end(), is_sent);
    if (has_sent || stage_ != Stage::collecting) {
      was_cut_off_ = true;
      reduce_wholly();
    } else if (is_in_pass_) {
      begin_step();
    }
  }

  void reduce_wholly() {
    while (!reduce_locked(std::chrono::hours(1))) {
    }
  }

  bool reduce_locked(std::chrono::milliseconds slice) {
    const at::NoGradGuard no_grad;
    try {
      if (stage_ == Stage::collecting) {
        if (reducer_->synchronized()) reducer_->next_step();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
          auto& one = parameters_[i];
          if (!one.sent.defined() && has_gradient(one)) send(i);
        }
        stage_ = Stage::asking;
      }
      if (stage_ == Stage::asking) {
        std::vector<std::size_t> missing;
        if (!reducer_->missing_for(slice, missing)) return false;
        for (const auto index : missing) fill(index);
        stage_ = Stage::reducing;
      }
      if (!reducer_->synchronize_for(slice)) return false;
    } catch (...) {
      give_up_step();
      throw;
    }
    take_results();
    return true;
  }

  // Also one that the program has made.
  bool has_gradient(Parameter& one) const {
    return one.gradient().defined() && (one.has_come || !is_old_part_of_a_sum(one));
  }

  // Takes part with what other ranks have and this one has not.
  void fill(std::size_t index) {
    auto& one = parameters_[index];
    if (is_old_part_of_a_sum(one)) one.before = std::exchange(one.gradient(), at::Tensor());
    if (one.as_rows) return;  // hvd gives no rows
    if (one.gradient().defined()) return send(index);
    auto zeros = at::zeros_like(one.tensor, at::MemoryFormat::Contiguous).detach();
    if (!was_cut_off_) one.gradient() = zeros;
    send(index, zeros);
  }

  // The gradient as it can travel, which it is from now on.
  void send(std::size_t index) {
    auto& one = parameters_[index];
    auto gradient = one.gradient();
    if (gradient.requires_grad()) gradient = gradient.detach();
    if (!one.as_rows) {
      if (gradient.layout() != at::kStrided) gradient = gradient.to_dense();
      gradient = gradient.contiguous();
    }
    if (!gradient.is_same(one.gradient())) one.gradient() = gradient;
    send(index, gradient);
  }

  void send(std::size_t index, const at::Tensor& gradient) {
    auto& one = parameters_[index];
    if (one.as_rows) {
      const auto rows = (gradient.is_sparse() ? gradient : gradient.to_sparse(1)).coalesce();
      const auto indices = rows.indices()[0].cpu().contiguous();
      const auto values = rows.values().cpu().contiguous();
      reducer_->ready(index, SparseGradient{view(indices), view(values)});
    } else {
      reducer_->ready(index, view(gradient), ready_event(gradient));
    }
    one.sent = gradient;
  }

  void take_results() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& one = parameters_[i];
      if (!was_cut_off_) {
        if (one.as_rows && reducer_->present(i)) one.gradient() = rows_of(i);
        if (one.before.defined()) add_before(one);
      }
      one.left = LeftGradient(one.gradient());
    }
    begin_step();
    is_reduced_ = holds_reduced_ = true;
  }

  static void add_before(Parameter& one) {
    auto& gradient = one.gradient();
    if (!gradient.defined()) {
      gradient = one.before;
    } else if (gradient.is_sparse() || one.before.is_sparse()) {
      gradient = one.before + gradient;
    } else {
      gradient.add_(one.before);
    }
  }

  at::Tensor rows_of(std::size_t index) const {
    const auto copied = [](const ConstTensorView& part) {
      return at::from_blob(const_cast<void*>(part.data),  // it is copied
                           part.shape, at::TensorOptions().dtype(scalar_type_of(part.type)))
          .clone();
    };
    const auto& parameter = parameters_[index].tensor;
    const auto rows = reducer_->reduced(index);
    return at::sparse_coo_tensor(copied(rows.indices).unsqueeze(0), copied(rows.values),
                                 parameter.sizes())
        .to(parameter.device());
  }

  std::mutex mutex_;
  DistributedOptimizerOptions options_;
  std::vector<Parameter> parameters_;
  std::unique_ptr<GradientReducer> reducer_;

  std::uint64_t generation_ = 0;  // of the world of this step
  std::weak_ptr<BackwardPass> pass_;
  Stage stage_ = Stage::collecting;
  int passes_ = 0;              // that have ended in this step
  bool is_in_pass_ = false;     // a gradient has come in a pass that has not ended
  bool sends_early_ = false;    // in the pass that is under way
  bool was_cut_off_ = false;    // by an exception: the program may have other gradients by now
  bool is_reduced_ = false;     // nothing has come since
  bool holds_reduced_ = false;  // nor has a step used it, or anybody thrown it away
};

inline std::shared_ptr<BackwardPass> BackwardPass::enter(
    const std::shared_ptr<GradientExchange>& exchange) {
  static thread_local std::weak_ptr<BackwardPass> current;
  auto pass = current.lock();
  if (!pass || pass->is_over()) {
    pass = std::make_shared<BackwardPass>();
    torch::autograd::Engine::get_default_engine().queue_callback([pass] { pass->end(); });
    current = pass;
  }
  pass->parts_.push_back(exchange);
  return pass;
}

// The optimizers of a pass wait in turns: other ranks may come to them in another order.
inline void BackwardPass::end() {
  is_over_ = true;
  auto parts = std::move(parts_);
  std::erase_if(parts, [](const auto& part) { return !part->end_pass(); });
  while (!parts.empty()) {
    const auto slice =
        parts.size() == 1 ? std::chrono::milliseconds(3600000) : std::chrono::milliseconds(1);
    std::erase_if(parts, [&](const auto& part) { return part->reduce_for(slice); });
  }
}

}  // namespace detail

}  // namespace hvd::libtorch
