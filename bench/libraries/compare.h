// hvd over a library of collectives, side by side with bare calls of that library for the same
// bytes: allreduce of float32 through the whole of hvd, in one buffer, and in one call for each
// tensor. The sides take turns in the same processes; medians of what rank 0 sees.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/hvd.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/times.h"

namespace hvd::bench {

struct Row {
  std::string what;
  std::vector<std::size_t> sizes;
  int turns;
  int calls;  // in a row, in each turn; times are of one
};

inline std::vector<Row> library_rows() {
  return {{"161 tensors, 102 MB", resnet50_sizes(), 7, 1},
          {"one tensor of 16 MB", {4 << 20}, 11, 1},
          {"one tensor of 1 MB", {1 << 18}, 31, 1},
          {"one tensor of 4 KB", {1 << 10}, 31, 20}};
}

inline void print_head(std::string_view library, bool is_used) {
  if (rank() != 0) return;
  const std::string name(library);
  std::printf("%d processes, hvd on %s; medians in ms\n%-28s %9s %11s %11s %8s %8s\n", size(),
              is_used ? name.c_str() : "its own connections", "", "hvd", (name + " each").c_str(),
              (name + " flat").c_str(), "hvd/each", "hvd/flat");
}

// Of one of `calls` calls, which all ranks begin together; `Bare` has barrier() and
// reduce_in_place(data, elements), bare calls of the library.
template <typename Bare, typename Work>
double milliseconds_together(Bare& bare, int calls, const Work& work) {
  bare.barrier();
  return milliseconds([&] {
           for (int i = 0; i < calls; ++i) work();
         }) /
         calls;
}

template <typename Bare>
void compare(Bare& bare, const Row& row) {
  const auto& [what, sizes, turns, calls] = row;
  std::vector<std::vector<float>> tensors;
  std::size_t elements = 0;
  for (const auto size : sizes) {
    tensors.emplace_back(size);
    elements += size;
  }
  std::vector<float> flat(elements);
  std::vector<double> ours;
  std::vector<double> each;
  std::vector<double> one;
  for (int turn = -3; turn < turns; ++turn) {  // the first three fill caches of all kinds
    const double a = milliseconds_together(bare, calls, [&] {
      std::vector<Handle> handles;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        handles.push_back(allreduce_async(tensors[i], {.name = cat(what, i), .op = Sum}));
      }
      for (auto& handle : handles) handle.wait();
    });
    const double b = milliseconds_together(bare, calls, [&] {
      for (auto& tensor : tensors) bare.reduce_in_place(tensor.data(), tensor.size());
    });
    const double c =
        milliseconds_together(bare, calls, [&] { bare.reduce_in_place(flat.data(), elements); });
    if (turn < 0) continue;
    ours.push_back(a);
    each.push_back(b);
    one.push_back(c);
  }
  if (rank() != 0) return;
  std::printf("%-28s %9.3f %11.3f %11.3f %8.2f %8.2f\n", what.c_str(), median(ours), median(each),
              median(one), median(ours) / median(each), median(ours) / median(one));
  std::fflush(stdout);
}

}  // namespace hvd::bench
