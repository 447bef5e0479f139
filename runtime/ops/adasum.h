// Adasum: a sum in which what two ranks agree about is not counted twice. Of two vectors
//
//     adasum(a, b) = (1 - a.b / 2 a.a) a  +  (1 - a.b / 2 b.b) b
//
// so that orthogonal ones are added and parallel ones averaged; of more, pairwise along a binary
// tree: S. Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2021, whose
// recursive vector halving this is. With P ranks, a power of two, and n bytes each rank sends and
// receives 2 (P - 1) / P * n bytes in 2 log2 P steps, and at each level the dot products, 24 bytes
// a tensor, in log2 P more. Ranks beyond the last power of two are paired with the first ones
// before everything else and get the result at the end: two steps of n bytes more.
//
// Each tensor has dot products of its own, however many share the memory. They are summed in
// double; float16 and bfloat16 travel as they are and are computed in float32. All ranks get the
// same bits.
#pragma once

#include <cstddef>
#include <vector>

#include <hvd/types.h>

#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// `data` is that of the tensors one after another, `lengths` their elements; it becomes the result.
void adasum_allreduce(const Peers& peers, DataType type, void* data,
                      const std::vector<std::size_t>& lengths, FusionBuffer& scratch);

}  // namespace hvd::runtime
