// SPDX-License-Identifier: Apache-2.0
// The model of model.h on the GPU of this worker: products of matrices by cuBLAS, the rest by
// kernels of its own, all in the legacy stream. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/tensor.h>

#include "exact_sum.h"
#include "model_shape.h"

namespace train {

// One tensor of the model, its gradient, and what the optimiser remembers of it.
struct CudaParameter {
  CudaParameter(std::string parameter_name, std::size_t size, hvd::Device device);
  std::string name;
  hvd::Tensor value;
  hvd::Tensor gradient;
  hvd::Tensor mean;
  hvd::Tensor square;
};

class CudaModel {
 public:
  // Chooses the GPU. Throws hvd::Error if there is none, std::runtime_error if it refuses
  // something.
  CudaModel(const ModelShape& shape, std::uint64_t seed);
  ~CudaModel();
  CudaModel(const CudaModel&) = delete;
  CudaModel& operator=(const CudaModel&) = delete;

  // As those of Model.
  double learn(const std::vector<unsigned char>& contexts, const std::vector<unsigned char>& next,
               std::size_t count);
  static void fill_zeros(const hvd::TensorView& gradient);
  void round_gradients(const ExactSum& exact, float scale);
  static std::shared_ptr<hvd::ReadyEvent> gradients_there();
  void update(double learning_rate);
  std::vector<CudaParameter*> parameters();
  std::size_t& steps() { return steps_; }
  std::size_t parameter_count() const;
  std::uint64_t digest() const;

 private:
  class Blas;

  std::vector<const CudaParameter*> all() const;
  void forward(std::size_t count);
  void backward(std::size_t count);
  // Room for at least so many; what lay there is lost.
  void make_room(std::size_t count);

  ModelShape shape_;
  std::size_t steps_ = 0;
  hvd::Device device_;
  std::unique_ptr<Blas> blas_;
  CudaParameter embedding_;
  CudaParameter hidden_weights_;
  CudaParameter hidden_bias_;
  CudaParameter output_weights_;
  CudaParameter output_bias_;
  // Of one batch, kept between steps.
  std::size_t room_ = 0;
  hvd::Tensor contexts_, next_, losses_;
  hvd::Tensor input_, input_gradient_, active_, active_gradient_, scores_;
};

}  // namespace train
