// LibTorch, PyTorch's C++ library: its tensors, modules, optimizers and data loaders with hvd.
//
//     #include <hvd/hvd.h>
//     #include <hvd/torch.h>
//     #include <torch/torch.h>
//
//     hvd::init();
//     torch::nn::Linear model(10, 1);
//     torch::optim::SGD sgd(model->parameters(), 0.01);
//     hvd::libtorch::DistributedOptimizer optimizer(sgd, model->named_parameters());
//     hvd::libtorch::broadcast_parameters(*model);
//     for (const auto& [inputs, targets] : own_batches) {
//       optimizer.zero_grad();
//       torch::mse_loss(model(inputs), targets).backward();  // returns with reduced gradients
//       optimizer.step();
//     }
//
// hvd/hvd.h does not include this header, and libhvd is not linked with LibTorch: all of it is
// compiled into the program. Written for LibTorch 1.13; docs/libtorch.md has a whole program.
// DistributedOptimizer is in hvd/torch_optimizer.h, elastic states are in hvd/torch_state.h; this
// header includes both.
//
// Errors are those of hvd/error.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <torch/data/samplers/base.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <utility>
#include <vector>

#include <hvd/error.h>
#include <hvd/objects.h>
#include <hvd/sampler.h>
#include <hvd/standard_library.h>
#include <hvd/tensor.h>
#include <hvd/torch_optimizer.h>
#include <hvd/torch_state.h>
#include <hvd/torch_tensor.h>

namespace hvd::libtorch {

// --- the same values on all ranks ---------------------------------------------------------------

// All tensors get the values of the root, in place. The names are the same on all ranks, as are
// types and shapes. Tensors that are not contiguous are sent as copies. For one thread at a time
// for each set of names. Blocks until all are there; throws as hvd::broadcast_parameters() does.
inline void broadcast_parameters(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                                 const BroadcastParametersOptions& options = {}) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sent;
  std::vector<NamedTensor> named;
  for (const auto& item : tensors) {
    sent.push_back(item.value().contiguous());
    named.push_back({item.key(), view(sent.back())});
  }
  detail::finish_streams(sent);
  hvd::broadcast_parameters(named, options);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto& tensor = tensors[i].value();
    if (!tensor.is_contiguous()) tensor.copy_(sent[i]);
  }
}

// The parameters and buffers of a module.
inline void broadcast_parameters(const torch::nn::Module& module,
                                 const BroadcastParametersOptions& options = {}) {
  auto tensors = module.named_parameters();
  for (const auto& item : module.named_buffers()) tensors.insert(item.key(), item.value());
  libtorch::broadcast_parameters(tensors, options);
}

// Options and state of an optimizer of torch::optim become those of the root. Throws
// InvalidArgumentError if the class of the optimizer is not one of torch::optim's, or if the
// optimizers of two ranks have different parameters.
inline void broadcast_optimizer_state(torch::optim::Optimizer& optimizer,
                                      const BroadcastOptions& options = {}) {
  detail::load_optimizer(optimizer, broadcast_object(detail::saved_optimizer(optimizer), options));
}

// --- data loaders -------------------------------------------------------------------------------

// The samples of an hvd::Sampler, for torch::data::make_data_loader(). A loader reads ahead of the
// training, so it takes its samples from a copy that begins where `progress` is. The program says
// what it has trained on: progress.next(batch) after each batch, with the loader's batch size.
// What `progress` says can be kept in an elastic::State.
//
//     hvd::Sampler progress({.size = size, .seed = 7});
//     ...
//     auto loader = torch::data::make_data_loader(dataset, hvd::libtorch::DataSampler(progress),
//     32); for (auto& batch : *loader) {
//       train(batch);
//       progress.next(32);
//       state.commit();
//     }
//
// The rank and the number of ranks are those of the world at each batch that is read, so a program
// makes a loader for each world. `progress` must live as long. For one thread at a time.
class DataSampler : public torch::data::samplers::Sampler<> {
 public:
  explicit DataSampler(const hvd::Sampler& progress) : progress_(&progress), ahead_(progress) {}

  // Begins where `progress` is. Throws InvalidArgumentError for a new size: it is that of
  // `progress`.
  void reset(torch::optional<std::size_t> new_size = torch::nullopt) override {
    if (new_size) throw InvalidArgumentError("hvd::libtorch::DataSampler: its size cannot change");
    ahead_ = *progress_;
  }
  // As hvd::Sampler::next(): the same number of samples on all ranks. Nothing at the end of the
  // epoch.
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override {
    const auto samples = ahead_.next(static_cast<std::int64_t>(batch_size));
    if (samples.empty()) return torch::nullopt;
    return std::vector<std::size_t>(samples.begin(), samples.end());
  }

  // Where the loader is, which may be ahead of `progress`.
  void save(torch::serialize::OutputArchive& archive) const override {
    archive.write("hvd_sampler", c10::IValue(ahead_.save()));
  }
  void load(torch::serialize::InputArchive& archive) override {
    c10::IValue saved;
    archive.read("hvd_sampler", saved);
    ahead_.load(saved.toStringRef());
  }

 private:
  const hvd::Sampler* progress_;
  hvd::Sampler ahead_;
};

}  // namespace hvd::libtorch
