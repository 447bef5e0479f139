// SPDX-License-Identifier: Apache-2.0
// The training of train.cpp with the model on GPUs, one for each worker:
//
//     hvdrun -np 4 build/release/bin/train_cuda --text README.md --text docs
//
// Weights, gradients and what Adam remembers stay there: gradients are summed over NCCL, a commit
// copies the state on the device, and joining workers receive it over NCCL, too.
#include "train/cuda_model.h"
#include "train/training.h"

int main(int argc, char** argv) {
  return train::run_program<train::CudaModel>("train_cuda", argc, argv);
}
