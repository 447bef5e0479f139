// Modules and optimizers of LibTorch in an elastic::State. A part of hvd/torch.h.
//
//     hvd::elastic::State state;
//     hvd::libtorch::add(state, "model", *model);
//     hvd::libtorch::add(state, "optimizer", adam);
//     state.add("step", step);
//     hvd::elastic::run(state, [&] { ... state.commit(); });
//
// For one thread at a time, as the state is.
#pragma once

#include <ATen/ATen.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <torch/nn/module.h>
#include <torch/optim.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <hvd/elastic.h>
#include <hvd/error.h>
#include <hvd/standard_library.h>
#include <hvd/torch_tensor.h>

namespace hvd::libtorch {
namespace detail {

// --- optimizers as bytes ------------------------------------------------------------------------

// The bytes depend on the values alone, so those of two ranks can be compared. LibTorch's own
// archives hold addresses.
class StateWriter {
 public:
  template <typename... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put(T value) { append(&value, sizeof value); }
  void put(const std::string& text) {
    put(text.size());
    append(text.data(), text.size());
  }
  void put(const std::tuple<double, double>& pair) {
    put(std::get<0>(pair));
    put(std::get<1>(pair));
  }
  void put(const at::Tensor& tensor) {
    put(tensor.defined());
    if (!tensor.defined()) return;
    const auto own = tensor.detach().cpu().contiguous();
    put(static_cast<int>(own.scalar_type()));
    put(own.dim());
    for (const auto extent : own.sizes()) put(extent);
    append(own.data_ptr(), own.nbytes());
  }
  template <typename List>
  requires std::is_same_v<typename List::value_type, at::Tensor>
  void put(const List& tensors) {
    put(tensors.size());
    for (const auto& tensor : tensors) put(tensor);
  }
  template <typename Optional>
  requires requires(const Optional& optional) { optional.has_value(); }
  void put(const Optional& optional) {
    put(optional.has_value());
    if (optional.has_value()) put(*optional);
  }

  std::string bytes_;
};

class StateReader {
 public:
  explicit StateReader(std::string_view bytes) : bytes_(bytes) {}
  // Tensors are made there.
  void set_device(const at::Device& device) { device_ = device; }

  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  template <typename T>
  T next() {
    T value{};
    get(value);
    return value;
  }
  bool is_at_end() const { return bytes_.empty(); }

 private:
  void copy(void* into, std::size_t size) {
    if (size > bytes_.size()) {
      throw InvalidArgumentError("the saved state of an optimizer of LibTorch is cut off");
    }
    if (size != 0) std::memcpy(into, bytes_.data(), size);
    bytes_.remove_prefix(size);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void get(T& value) { copy(&value, sizeof value); }
  void get(std::string& text) {
    text.resize(std::min(next<std::size_t>(), bytes_.size() + 1));
    copy(text.data(), text.size());
  }
  void get(std::tuple<double, double>& pair) {
    get(std::get<0>(pair));
    get(std::get<1>(pair));
  }
  void get(at::Tensor& tensor) {
    tensor = at::Tensor();
    if (!next<bool>()) return;
    const auto type = static_cast<at::ScalarType>(next<int>());
    std::vector<std::int64_t> shape(
        std::min(static_cast<std::size_t>(next<std::int64_t>()), bytes_.size()));
    for (auto& extent : shape) get(extent);
    const auto own = at::empty(shape, at::TensorOptions().dtype(type));
    copy(own.data_ptr(), own.nbytes());
    tensor = own.to(device_);
  }
  template <typename List>
  requires std::is_same_v<typename List::value_type, at::Tensor>
  void get(List& tensors) {
    tensors.clear();
    for (auto left = next<std::size_t>(); left > 0; --left) {
      get(tensors.emplace_back());
    }
  }
  template <typename Optional>
  requires requires(Optional& optional) {
    optional.reset();
    *optional;
    optional.emplace();
  }
  void get(Optional& optional) {
    optional.reset();
    if (!next<bool>()) return;
    optional.emplace();
    get(*optional);
  }

  std::string_view bytes_;
  at::Device device_ = at::kCPU;
};

// What an optimizer keeps: the options of each group, and its state for each parameter.
template <typename V>
void visit(torch::optim::SGDOptions& o, V& v) {
  v(o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov());
}
template <typename V>
void visit(torch::optim::SGDParamState& s, V& v) {
  v(s.momentum_buffer());
}
template <typename V>
void visit(torch::optim::AdamOptions& o, V& v) {
  v(o.lr(), o.betas(), o.eps(), o.weight_decay(), o.amsgrad());
}
template <typename V>
void visit(torch::optim::AdamParamState& s, V& v) {
  v(s.step(), s.exp_avg(), s.exp_avg_sq(), s.max_exp_avg_sq());
}
template <typename V>
void visit(torch::optim::AdamWOptions& o, V& v) {
  v(o.lr(), o.betas(), o.eps(), o.weight_decay(), o.amsgrad());
}
template <typename V>
void visit(torch::optim::AdamWParamState& s, V& v) {
  v(s.step(), s.exp_avg(), s.exp_avg_sq(), s.max_exp_avg_sq());
}
template <typename V>
void visit(torch::optim::AdagradOptions& o, V& v) {
  v(o.lr(), o.lr_decay(), o.weight_decay(), o.initial_accumulator_value(), o.eps());
}
template <typename V>
void visit(torch::optim::AdagradParamState& s, V& v) {
  v(s.sum(), s.step());
}
template <typename V>
void visit(torch::optim::RMSpropOptions& o, V& v) {
  v(o.lr(), o.alpha(), o.eps(), o.weight_decay(), o.momentum(), o.centered());
}
template <typename V>
void visit(torch::optim::RMSpropParamState& s, V& v) {
  v(s.step(), s.square_avg(), s.momentum_buffer(), s.grad_avg());
}
template <typename V>
void visit(torch::optim::LBFGSOptions& o, V& v) {
  v(o.lr(), o.max_iter(), o.max_eval(), o.tolerance_grad(), o.tolerance_change(), o.history_size(),
    o.line_search_fn());
}
template <typename V>
void visit(torch::optim::LBFGSParamState& s, V& v) {
  v(s.func_evals(), s.n_iter(), s.t(), s.prev_loss(), s.d(), s.H_diag(), s.prev_flat_grad(),
    s.old_dirs(), s.old_stps(), s.ro(), s.al());
}

template <typename OptionsOfClass, typename StateOfClass>
struct OptimizerParts {
  using Options = OptionsOfClass;
  using State = StateOfClass;
  const char* name;
};

// Calls the function with the parts of the optimizer's class.
template <typename Function>
auto with_parts_of(torch::optim::Optimizer& optimizer, Function&& function) {
  namespace optim = torch::optim;
  const auto is = [&]<typename Class>(Class*) {
    return dynamic_cast<const Class*>(&optimizer) != nullptr;
  };
  if (is(static_cast<optim::SGD*>(nullptr))) {
    return function(OptimizerParts<optim::SGDOptions, optim::SGDParamState>{"SGD"});
  }
  if (is(static_cast<optim::Adam*>(nullptr))) {
    return function(OptimizerParts<optim::AdamOptions, optim::AdamParamState>{"Adam"});
  }
  if (is(static_cast<optim::AdamW*>(nullptr))) {
    return function(OptimizerParts<optim::AdamWOptions, optim::AdamWParamState>{"AdamW"});
  }
  if (is(static_cast<optim::Adagrad*>(nullptr))) {
    return function(OptimizerParts<optim::AdagradOptions, optim::AdagradParamState>{"Adagrad"});
  }
  if (is(static_cast<optim::RMSprop*>(nullptr))) {
    return function(OptimizerParts<optim::RMSpropOptions, optim::RMSpropParamState>{"RMSprop"});
  }
  if (is(static_cast<optim::LBFGS*>(nullptr))) {
    return function(OptimizerParts<optim::LBFGSOptions, optim::LBFGSParamState>{"LBFGS"});
  }
  throw InvalidArgumentError(
      "hvd knows what SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS keep, and this optimizer is of "
      "another class: add it to the state with an elastic::Handler of your own");
}

// The key of a parameter in the state of an optimizer: a text in LibTorch 1, an address later.
template <typename Key>
Key key_of(const at::Tensor& parameter) {
  auto* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << address;
    return std::move(text).str();
  } else {
    return address;
  }
}
using OptimizerKey =
    std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())>::key_type;

inline std::string saved_optimizer(torch::optim::Optimizer& optimizer) {
  return with_parts_of(optimizer, [&]<typename Parts>(const Parts& parts) {
    StateWriter writer;
    writer(std::string(parts.name), optimizer.param_groups().size());
    for (auto& group : optimizer.param_groups()) {
      visit(static_cast<typename Parts::Options&>(group.options()), writer);
      writer(group.params().size());
      for (const auto& parameter : group.params()) {
        const auto found = optimizer.state().find(key_of<OptimizerKey>(parameter));
        const bool has_state = found != optimizer.state().end();
        writer(has_state);
        if (has_state) visit(static_cast<typename Parts::State&>(*found->second), writer);
      }
    }
    return writer.take();
  });
}

// Throws InvalidArgumentError if the bytes are of another kind of optimizer.
inline void load_optimizer(torch::optim::Optimizer& optimizer, std::string_view bytes) {
  with_parts_of(optimizer, [&]<typename Parts>(const Parts& parts) {
    const auto check = [](bool is_alike) {
      if (is_alike) return;
      throw InvalidArgumentError(
          "this optimizer of LibTorch is of another class than the saved one, or has other groups "
          "or parameters");
    };
    StateReader reader(bytes);
    check(reader.next<std::string>() == parts.name);
    check(reader.next<std::size_t>() == optimizer.param_groups().size());
    optimizer.state().clear();
    for (auto& group : optimizer.param_groups()) {
      visit(static_cast<typename Parts::Options&>(group.options()), reader);
      check(reader.next<std::size_t>() == group.params().size());
      for (const auto& parameter : group.params()) {
        if (!reader.next<bool>()) continue;
        reader.set_device(parameter.device());
        auto state = std::make_unique<typename Parts::State>();
        visit(*state, reader);
        optimizer.state()[key_of<OptimizerKey>(parameter)] = std::move(state);
      }
    }
    check(reader.is_at_end());
  });
}

// --- tensors ------------------------------------------------------------------------------------

// A tensor without memory of a fixed size and place, as bytes.
inline elastic::Handler handler_of(const at::Tensor& tensor) {
  const auto elements = [tensor] { return tensor.detach().cpu().contiguous(); };
  return {
      [tensor] { return tensor.nbytes(); },
      [elements](std::span<std::byte> into) {
        const auto own = elements();
        if (!into.empty()) std::memcpy(into.data(), own.data_ptr(), into.size());
      },
      [tensor, elements](std::span<const std::byte> from) {
        const auto own = elements().clone();
        if (from.size() != own.nbytes()) {
          throw InvalidArgumentError("a tensor of LibTorch has another size than the saved one");
        }
        if (!from.empty()) std::memcpy(own.data_ptr(), from.data(), from.size());
        const at::NoGradGuard no_grad;
        auto target = tensor;
        target.copy_(own);
      }};
}

// Holds no bytes: it keeps the memory of tensors, and says so if they have other memory now.
inline elastic::Handler guard_of(
    std::vector<std::pair<std::string, at::Tensor>> tensors,
    std::function<std::vector<std::pair<std::string, at::Tensor>>()> current) {
  std::vector<at::Tensor> memory;
  for (const auto& [name, tensor] : tensors) memory.push_back(tensor.detach());
  const auto check = [memory, tensors = std::move(tensors), current = std::move(current)] {
    const auto now = current();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (i < now.size() && now[i].first == tensors[i].first &&
          now[i].second.data_ptr() == memory[i].data_ptr() &&
          now[i].second.nbytes() == memory[i].nbytes()) {
        continue;
      }
      throw InvalidArgumentError("the tensor \"" + tensors[i].first +
                                 "\" of a module in an elastic::State has moved: change modules in "
                                 "place while they are in a state");
    }
    return std::size_t{0};
  };
  return {check, [](std::span<std::byte>) {}, [](std::span<const std::byte>) {}};
}

}  // namespace detail

// The parameters and buffers of a module, as `name`.weight and so on. They are copied from their
// memory and back into it, so a commit throws InvalidArgumentError if one has moved since, as after
// to(). The module lives as long as the state. Throws InvalidArgumentError as State::add() does,
// and if a tensor is sparse, or has elements of a type that hvd lacks.
inline void add(elastic::State& state, const std::string& name, torch::nn::Module& module) {
  const auto tensors = [&module] {
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
    for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
    return all;
  };
  for (const auto& [key, tensor] : tensors()) {
    const auto whole = name + "." + key;
    if (tensor.is_contiguous() && tensor.numel() != 0) {
      state.add(whole, view(tensor));
    } else {
      state.add(whole, detail::handler_of(tensor));
    }
  }
  state.add(name + ".<memory>", detail::guard_of(tensors(), tensors));
}

// Options and state of an optimizer of torch::optim: SGD, Adam, AdamW, Adagrad, RMSprop, LBFGS. In
// a newcomer it may have none of its state yet. The optimizer lives as long as the state. It is the
// one that was given to a DistributedOptimizer. Throws InvalidArgumentError as State::add() does,
// and if the class of the optimizer is another one.
inline void add(elastic::State& state, const std::string& name,
                torch::optim::Optimizer& optimizer) {
  const auto saved = std::make_shared<std::string>(detail::saved_optimizer(optimizer));
  state.add(name, elastic::Handler{[&optimizer, saved] {
                                     *saved = detail::saved_optimizer(optimizer);
                                     return saved->size();
                                   },
                                   [saved](std::span<std::byte> into) {
                                     std::memcpy(into.data(), saved->data(), into.size());
                                   },
                                   [&optimizer](std::span<const std::byte> from) {
                                     detail::load_optimizer(
                                         optimizer,
                                         {reinterpret_cast<const char*>(from.data()), from.size()});
                                   }});
}

}  // namespace hvd::libtorch
