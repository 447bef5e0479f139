// Shared by the parts of hvd_gradients_program.
#pragma once

#include <vector>

#include <hvd/hvd.h>

namespace gradients {

using Floats = std::vector<float>;
using Error = hvd::InvalidArgumentError;

// Rank r gives r + 1.
inline float own() { return static_cast<float>(hvd::rank() + 1); }
inline float average() { return static_cast<float>(hvd::size() + 1) / 2; }

// gradients_errors.cpp; they throw what is not as it should be.
void refusals();
void disagreements();
void loss(int groups);

}  // namespace gradients
