// SPDX-License-Identifier: Apache-2.0
// A language model over bytes: an embedding of each byte of the context, one hidden layer, a
// softmax over the 256 bytes that may follow. Forward and backward pass are written by hand, in
// loops that a compiler turns into vector code. One thread at a time.
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
struct Parameter {
  Parameter(std::string parameter_name, std::size_t size)
      : name(std::move(parameter_name)), value(size), gradient(size), mean(size), square(size) {}
  std::string name;
  std::vector<float> value;
  std::vector<float> gradient;
  std::vector<float> mean;
  std::vector<float> square;
};

class Model {
 public:
  Model(const ModelShape& shape, std::uint64_t seed);

  // Adds the gradient of the loss, summed over `count` samples, to the parameters' gradients and
  // returns that loss in nats. `contexts` holds count rows of shape.context bytes.
  double learn(const std::vector<unsigned char>& contexts, const std::vector<unsigned char>& next,
               std::size_t count);

  static void fill_zeros(const hvd::TensorView& gradient);
  // Multiplied, and rounded so that their sum over all workers is exact.
  void round_gradients(const ExactSum& exact, float scale);
  void scale_gradients(float scale);
  // When the gradients are there: now.
  static std::shared_ptr<hvd::ReadyEvent> gradients_there() { return nullptr; }

  // One step of Adam with the gradients as they stand, which are zero afterwards.
  void update(double learning_rate);

  std::vector<Parameter*> parameters();
  std::size_t& steps() { return steps_; }  // of Adam so far: with the parameters, all that it knows
  std::size_t parameter_count() const;
  std::uint64_t digest() const;  // of all weights

 private:
  void forward(const std::vector<unsigned char>& contexts, std::size_t count);
  double softmax_loss(const std::vector<unsigned char>& next, std::size_t count);
  void backward(const std::vector<unsigned char>& contexts, std::size_t count);

  ModelShape shape_;
  std::size_t steps_ = 0;
  Parameter embedding_;
  Parameter hidden_weights_;
  Parameter hidden_bias_;
  Parameter output_weights_;
  Parameter output_bias_;
  // Of one batch, kept between steps: the input rows, the hidden layer, the output and their
  // gradients.
  std::vector<float> input_, input_gradient_;
  std::vector<float> active_, active_gradient_;
  std::vector<float> scores_;
  std::vector<float> transposed_;
};

}  // namespace train
