// SPDX-License-Identifier: Apache-2.0
// The work of the model on a GPU beside products of matrices. Everything is put into the legacy
// stream; pointers are to memory of the device, matrices lie row by row. Sums are made in one
// order, so that equal runs give equal numbers.
#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>

#include "exact_sum.h"

namespace train::kernels {

// The rows of `table`, each `width` wide, that `bytes` name.
void gather(const float* table, const unsigned char* bytes, std::size_t count, std::size_t width,
            float* rows);
// Adds to each row of `table` those of `rows` whose byte names it.
void scatter(const float* rows, const unsigned char* bytes, std::size_t count, std::size_t width,
             float* table);
void add_bias_and_tanh(float* rows, const float* bias, std::size_t count, std::size_t width);
// Turns the gradient behind a tanh into the gradient in front of it.
void tanh_gradient(const float* active, float* gradient, std::size_t count);
// Of scores without their bias: leaves the gradient of the loss, and puts each row's loss there.
void softmax_loss(float* scores, const float* bias, const unsigned char* next, std::size_t count,
                  float* losses);
void add_rows(const float* rows, std::size_t count, std::size_t width, float* sum);
void round_to_grid(float* values, std::size_t count, const ExactSum& exact, float scale);
void adam(float* value, float* gradient, float* mean, float* square, std::size_t count, float rate);

}  // namespace train::kernels
