// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace train {
namespace {

// out[n x m] += a[n x k] * b[k x m]. The inner loop runs along rows, without a sum: it vectorises.
void add_product(const float* a, const float* b, float* out, std::size_t n, std::size_t k,
                 std::size_t m) {
  for (std::size_t row = 0; row < n; ++row) {
    float* const to = out + row * m;
    for (std::size_t i = 0; i < k; ++i) {
      const float factor = a[row * k + i];
      const float* const from = b + i * m;
      for (std::size_t j = 0; j < m; ++j) to[j] += factor * from[j];
    }
  }
}

// out[k x m] += a[n x k]^T * b[n x m].
void add_product_of_transposed(const float* a, const float* b, float* out, std::size_t n,
                               std::size_t k, std::size_t m) {
  for (std::size_t row = 0; row < n; ++row) {
    const float* const from = b + row * m;
    for (std::size_t i = 0; i < k; ++i) {
      const float factor = a[row * k + i];
      float* const to = out + i * m;
      for (std::size_t j = 0; j < m; ++j) to[j] += factor * from[j];
    }
  }
}

void transpose(const std::vector<float>& from, std::size_t rows, std::size_t columns,
               std::vector<float>& to) {
  to.resize(rows * columns);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
}

void add_rows(const float* rows, float* sum, std::size_t n, std::size_t m) {
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t j = 0; j < m; ++j) sum[j] += rows[row * m + j];
  }
}

}  // namespace

Model::Model(const ModelShape& shape, std::uint64_t seed)
    : shape_(shape),
      embedding_("embedding", kBytes * shape.embedding),
      hidden_weights_("hidden.weights", shape.context * shape.embedding * shape.hidden),
      hidden_bias_("hidden.bias", shape.hidden),
      output_weights_("output.weights", shape.hidden * kBytes),
      output_bias_("output.bias", kBytes) {
  first_weights(shape, seed, embedding_.value, hidden_weights_.value, output_weights_.value);
}

double Model::learn(const std::vector<unsigned char>& contexts,
                    const std::vector<unsigned char>& next, std::size_t count) {
  forward(contexts, count);
  const double loss = softmax_loss(next, count);
  backward(contexts, count);
  return loss;
}

void Model::forward(const std::vector<unsigned char>& contexts, std::size_t count) {
  const std::size_t width = shape_.context * shape_.embedding;
  input_.resize(count * width);
  for (std::size_t i = 0; i < count * shape_.context; ++i) {
    std::copy_n(embedding_.value.data() + contexts[i] * shape_.embedding, shape_.embedding,
                input_.data() + i * shape_.embedding);
  }
  active_.resize(count * shape_.hidden);
  for (std::size_t row = 0; row < count; ++row) {
    std::copy(hidden_bias_.value.begin(), hidden_bias_.value.end(),
              active_.data() + row * shape_.hidden);
  }
  add_product(input_.data(), hidden_weights_.value.data(), active_.data(), count, width,
              shape_.hidden);
  for (float& value : active_) value = std::tanh(value);
  scores_.resize(count * kBytes);
  for (std::size_t row = 0; row < count; ++row) {
    std::copy(output_bias_.value.begin(), output_bias_.value.end(), scores_.data() + row * kBytes);
  }
  add_product(active_.data(), output_weights_.value.data(), scores_.data(), count, shape_.hidden,
              kBytes);
}

// Leaves in scores_ the loss's gradient: the probabilities, less one for the byte that came.
double Model::softmax_loss(const std::vector<unsigned char>& next, std::size_t count) {
  double loss = 0;
  for (std::size_t row = 0; row < count; ++row) {
    float* const score = scores_.data() + row * kBytes;
    const float highest = *std::max_element(score, score + kBytes);
    float sum = 0;
    for (std::size_t j = 0; j < kBytes; ++j) {
      score[j] = std::exp(score[j] - highest);
      sum += score[j];
    }
    for (std::size_t j = 0; j < kBytes; ++j) score[j] /= sum;
    // A probability that underflowed counts as the smallest one, not as an infinite loss.
    loss -= std::log(std::max(score[next[row]], 1e-30F));
    score[next[row]] -= 1;
  }
  return loss;
}

void Model::backward(const std::vector<unsigned char>& contexts, std::size_t count) {
  const std::size_t width = shape_.context * shape_.embedding;
  add_product_of_transposed(active_.data(), scores_.data(), output_weights_.gradient.data(), count,
                            shape_.hidden, kBytes);
  add_rows(scores_.data(), output_bias_.gradient.data(), count, kBytes);

  active_gradient_.assign(count * shape_.hidden, 0);
  transpose(output_weights_.value, shape_.hidden, kBytes, transposed_);
  add_product(scores_.data(), transposed_.data(), active_gradient_.data(), count, kBytes,
              shape_.hidden);
  for (std::size_t i = 0; i < active_.size(); ++i) {
    active_gradient_[i] *= 1 - active_[i] * active_[i];
  }
  add_product_of_transposed(input_.data(), active_gradient_.data(), hidden_weights_.gradient.data(),
                            count, width, shape_.hidden);
  add_rows(active_gradient_.data(), hidden_bias_.gradient.data(), count, shape_.hidden);

  input_gradient_.assign(count * width, 0);
  transpose(hidden_weights_.value, width, shape_.hidden, transposed_);
  add_product(active_gradient_.data(), transposed_.data(), input_gradient_.data(), count,
              shape_.hidden, width);
  for (std::size_t i = 0; i < count * shape_.context; ++i) {
    float* const to = embedding_.gradient.data() + contexts[i] * shape_.embedding;
    const float* const from = input_gradient_.data() + i * shape_.embedding;
    for (std::size_t j = 0; j < shape_.embedding; ++j) to[j] += from[j];
  }
}

void Model::fill_zeros(const hvd::TensorView& gradient) {
  std::memset(gradient.data, 0, gradient.bytes());
}

void Model::round_gradients(const ExactSum& exact, float scale) {
  const float to_grid = scale / exact.grid;
  const float most = ExactSum::kLimit / exact.grid;
  for (Parameter* const parameter : parameters()) {
    for (float& value : parameter->gradient) {
      value = std::nearbyint(std::clamp(value * to_grid, -most, most)) * exact.grid;
    }
  }
}

void Model::scale_gradients(float scale) {
  for (Parameter* const parameter : parameters()) {
    for (float& value : parameter->gradient) value *= scale;
  }
}

void Model::update(double learning_rate) {
  ++steps_;
  const float rate = adam_rate(learning_rate, steps_);
  for (Parameter* const parameter : parameters()) {
    float* const value = parameter->value.data();
    float* const gradient = parameter->gradient.data();
    float* const mean = parameter->mean.data();
    float* const square = parameter->square.data();
    for (std::size_t i = 0; i < parameter->value.size(); ++i) {
      const float g = gradient[i];
      mean[i] = kMeanDecay * mean[i] + (1 - kMeanDecay) * g;
      square[i] = kSquareDecay * square[i] + (1 - kSquareDecay) * g * g;
      value[i] -= rate * mean[i] / (std::sqrt(square[i]) + kLeast);
      gradient[i] = 0;
    }
  }
}

std::vector<Parameter*> Model::parameters() {
  return {&embedding_, &hidden_weights_, &hidden_bias_, &output_weights_, &output_bias_};
}

std::size_t Model::parameter_count() const {
  std::size_t count = 0;
  for (const auto* const parameter :
       {&embedding_, &hidden_weights_, &hidden_bias_, &output_weights_, &output_bias_}) {
    count += parameter->value.size();
  }
  return count;
}

std::uint64_t Model::digest() const {
  WeightsDigest digest;
  for (const auto* const parameter :
       {&embedding_, &hidden_weights_, &hidden_bias_, &output_weights_, &output_bias_}) {
    digest.add(parameter->value);
  }
  return digest.value();
}

}  // namespace train
