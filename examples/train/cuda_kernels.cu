// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "examples/train/cuda_kernels.h"
#include "examples/train/model_shape.h"

namespace train::kernels {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_of(std::size_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__device__ std::size_t place() { return std::size_t{blockIdx.x} * kThreads + threadIdx.x; }

__global__ void gather_rows(const float* table, const unsigned char* bytes, std::size_t elements,
                            std::size_t width, float* rows) {
  const std::size_t at = place();
  if (at < elements) rows[at] = table[bytes[at / width] * width + at % width];
}

// A block for each row of the table.
__global__ void scatter_rows(const float* rows, const unsigned char* bytes, std::size_t count,
                             std::size_t width, float* table) {
  for (std::size_t column = threadIdx.x; column < width; column += kThreads) {
    float sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes[i] == blockIdx.x) sum += rows[i * width + column];
    }
    table[blockIdx.x * width + column] += sum;
  }
}

__global__ void biased_tanh(float* rows, const float* bias, std::size_t elements,
                            std::size_t width) {
  const std::size_t at = place();
  if (at < elements) rows[at] = tanhf(rows[at] + bias[at % width]);
}

__global__ void through_tanh(const float* active, float* gradient, std::size_t elements) {
  const std::size_t at = place();
  if (at < elements) gradient[at] *= 1 - active[at] * active[at];
}

// The largest, or the sum, of what the threads of a block have; a tree, so always in one order.
template <typename Join>
__device__ float joined(float own, float* shared, Join join) {
  shared[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const float all = shared[0];
  __syncthreads();
  return all;
}

// A block for each row, a thread for each byte.
__global__ void row_loss(float* scores, const float* bias, const unsigned char* next,
                         float* losses) {
  static_assert(kBytes == kThreads);
  __shared__ float shared[kThreads];
  float& score = scores[std::size_t{blockIdx.x} * kBytes + threadIdx.x];
  const float biased = score + bias[threadIdx.x];
  const float highest = joined(biased, shared, [](float a, float b) { return fmaxf(a, b); });
  const float power = expf(biased - highest);
  const float sum = joined(power, shared, [](float a, float b) { return a + b; });
  const bool came = threadIdx.x == next[blockIdx.x];
  // A probability that underflowed counts as the smallest one, not as an infinite loss.
  if (came) losses[blockIdx.x] = -logf(fmaxf(power / sum, 1e-30F));
  score = power / sum - (came ? 1.0F : 0.0F);
}

__global__ void sum_of_rows(const float* rows, std::size_t count, std::size_t width, float* sum) {
  const std::size_t column = place();
  if (column >= width) return;
  float own = 0;
  for (std::size_t row = 0; row < count; ++row) own += rows[row * width + column];
  sum[column] += own;
}

__global__ void rounded(float* values, std::size_t count, float to_grid, float most, float grid) {
  const std::size_t at = place();
  if (at < count) values[at] = rintf(fminf(fmaxf(values[at] * to_grid, -most), most)) * grid;
}

// Each operation is rounded by itself: all workers get the same, whatever their GPUs.
__global__ void adam_step(float* value, float* gradient, float* mean, float* square,
                          std::size_t count, float rate) {
  const std::size_t at = place();
  if (at >= count) return;
  const float g = gradient[at];
  const float m = __fadd_rn(__fmul_rn(kMeanDecay, mean[at]), __fmul_rn(1 - kMeanDecay, g));
  const float s =
      __fadd_rn(__fmul_rn(kSquareDecay, square[at]), __fmul_rn(__fmul_rn(1 - kSquareDecay, g), g));
  mean[at] = m;
  square[at] = s;
  value[at] = __fsub_rn(value[at], __fdiv_rn(__fmul_rn(rate, m), __fadd_rn(__fsqrt_rn(s), kLeast)));
  gradient[at] = 0;
}

}  // namespace

void gather(const float* table, const unsigned char* bytes, std::size_t count, std::size_t width,
            float* rows) {
  gather_rows<<<blocks_of(count * width), kThreads>>>(table, bytes, count * width, width, rows);
}

void scatter(const float* rows, const unsigned char* bytes, std::size_t count, std::size_t width,
             float* table) {
  scatter_rows<<<kBytes, kThreads>>>(rows, bytes, count, width, table);
}

void add_bias_and_tanh(float* rows, const float* bias, std::size_t count, std::size_t width) {
  biased_tanh<<<blocks_of(count * width), kThreads>>>(rows, bias, count * width, width);
}

void tanh_gradient(const float* active, float* gradient, std::size_t count) {
  through_tanh<<<blocks_of(count), kThreads>>>(active, gradient, count);
}

void softmax_loss(float* scores, const float* bias, const unsigned char* next, std::size_t count,
                  float* losses) {
  row_loss<<<static_cast<unsigned>(count), kThreads>>>(scores, bias, next, losses);
}

void add_rows(const float* rows, std::size_t count, std::size_t width, float* sum) {
  sum_of_rows<<<blocks_of(width), kThreads>>>(rows, count, width, sum);
}

void round_to_grid(float* values, std::size_t count, const ExactSum& exact, float scale) {
  rounded<<<blocks_of(count), kThreads>>>(values, count, scale / exact.grid,
                                          ExactSum::kLimit / exact.grid, exact.grid);
}

void adam(float* value, float* gradient, float* mean, float* square, std::size_t count,
          float rate) {
  adam_step<<<blocks_of(count), kThreads>>>(value, gradient, mean, square, count, rate);
}

}  // namespace train::kernels
