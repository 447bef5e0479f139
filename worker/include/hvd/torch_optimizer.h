// An optimizer of torch::optim whose steps use the gradients of all ranks. A part of hvd/torch.h.
//
//     torch::optim::Adam adam(model->parameters());
//     hvd::libtorch::DistributedOptimizer optimizer(adam, model->named_parameters());
//     optimizer.zero_grad();
//     loss.backward();
//     torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//     optimizer.step();
//
// Gradients travel while a backward pass goes on, and backward() returns when they are those of all
// ranks. So they can be clipped, looked at or thrown away, as in one process:
//
// - Each rank makes the same backward passes. Which parameters a pass uses may differ. A rank that
//   has no batch calls step() without a pass, and takes part with zeros.
// - No gradient stays no gradient: a parameter that no rank has used keeps none. If some rank has
//   used it, the others give zeros, and have the result as their gradient.
// - With backward_passes_per_step = n the last of n passes reduces; until then gradients are this
//   rank's own, and add up. synchronize() or step() reduces earlier.
// - A second pass before step() adds to what is reduced, and is reduced itself: the result is that
//   of one pass over both losses.
// - A pass that ends with an exception after gradients have left counts as a pass. The next call
//   that touches the step ends it.
// - A backward pass that a function of another one makes is a part of that one if that has come to
//   a parameter before; else it is a pass of its own.
#pragma once

#include <ATen/ATen.h>
#include <map>
#include <memory>
#include <string>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <hvd/error.h>
#include <hvd/standard_library.h>
#include <hvd/torch_gradients.h>

namespace hvd::libtorch {

// Makes the gradients that an optimizer uses those of all ranks. The optimizer is the program's,
// must live longer, and keeps its groups, options and state; schedulers are made for it. Only one
// DistributedOptimizer at a time has a parameter. It may be used in one world, or in all worlds of
// an elastic job.
//
// For one thread at a time. Calls throw CollectiveError and HostsUpdated as collectives do;
// backward() does, too. After an error gradients are not defined, and the next step begins.
class DistributedOptimizer {
 public:
  // The names are those of all parameters of the optimizer, on all ranks the same; the order of
  // the optimizer's parameters is the same, too. Names of other parameters do no harm. Throws
  // InvalidArgumentError if a parameter has no name, belongs to another DistributedOptimizer, or
  // has elements of a type that hvd lacks, or if the options contradict each other.
  DistributedOptimizer(torch::optim::Optimizer& optimizer,
                       const torch::OrderedDict<std::string, at::Tensor>& named_parameters,
                       const DistributedOptimizerOptions& options = {})
      : optimizer_(optimizer),
        exchange_(std::make_shared<detail::GradientExchange>(
            options, parameters_of(optimizer, named_parameters))) {
    exchange_->set_hooks();
  }
  // Does not wait for gradients in flight; hvd keeps their memory until they are done.
  ~DistributedOptimizer() = default;
  DistributedOptimizer(const DistributedOptimizer&) = delete;
  DistributedOptimizer& operator=(const DistributedOptimizer&) = delete;

  // One step with the gradients of all ranks; blocks until they are reduced, if no pass has reduced
  // them. A closure may be called several times: each time the optimizer gets the mean of the
  // losses of all ranks, so that all take the same way. Returns what the optimizer returns.
  at::Tensor step(const torch::optim::Optimizer::LossClosure& closure = nullptr) {
    at::Tensor result;
    if (closure) {
      result = optimizer_.step([&] {
        const auto loss = closure();
        exchange_->synchronize();
        return exchange_->mean_of(loss);
      });
    } else {
      exchange_->synchronize();
      result = optimizer_.step();
    }
    exchange_->note_step();
    return result;
  }

  // Throws away the gradients, also those that passes have left of this step: they become
  // undefined, or zeros.
  void zero_grad(bool set_to_none = true) {
    exchange_->forget_step();
    for (auto& group : optimizer_.param_groups()) {
      for (auto& parameter : group.params()) {
        auto& gradient = parameter.mutable_grad();
        if (!gradient.defined()) continue;
        if (set_to_none) {
          gradient = at::Tensor();
        } else {
          gradient = gradient.detach();
          gradient.zero_();
        }
      }
    }
  }

  // Blocks until all gradients are those of all ranks. After the last backward pass of a step they
  // are, and this does nothing. For a rank that makes fewer passes than the others, or none.
  void synchronize() { exchange_->synchronize(); }

  // Between steps, on all ranks alike. Throws InvalidArgumentError within a step, or below 1.
  void set_backward_passes_per_step(int passes) { exchange_->set_passes(passes); }

  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  // All parameters that the optimizer changes, with their names.
  static detail::GradientExchange::Named parameters_of(
      torch::optim::Optimizer& optimizer,
      const torch::OrderedDict<std::string, at::Tensor>& named_parameters) {
    std::map<const c10::TensorImpl*, std::string> names;
    for (const auto& item : named_parameters) {
      names.emplace(item.value().unsafeGetTensorImpl(), item.key());
    }

    detail::GradientExchange::Named result;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto found = names.find(parameter.unsafeGetTensorImpl());
        if (found == names.end()) {
          throw InvalidArgumentError("DistributedOptimizer: parameter " +
                                     std::to_string(result.size()) +
                                     " of the optimizer is not one of the named parameters");
        }
        result.emplace_back(found->second, parameter);
      }
    }
    return result;
  }

  torch::optim::Optimizer& optimizer_;
  std::shared_ptr<detail::GradientExchange> exchange_;
};

}  // namespace hvd::libtorch
