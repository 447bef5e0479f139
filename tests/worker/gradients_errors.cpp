// hvd::GradientReducer when it is used wrongly, when the ranks disagree, and when one is lost.
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include <hvd/hvd.h>

#include "tests/e2e/programs/check.h"
#include "tests/worker/gradients.h"

namespace gradients {

using check::same;

// Arguments that each rank refuses at once by itself.
void refusals() {
  Floats w(3);
  const auto options = [](const std::string& what, const std::vector<std::string>& parts,
                          const hvd::GradientReducerOptions& wrong) {
    check::throws<Error>(what, parts, [&] { const hvd::GradientReducer reducer(wrong); });
  };
  options("no name", {"needs a name"}, {.name = ""});
  options("factor 0", {"gradient_predivide_factor 0", "above 0"}, {.gradient_predivide_factor = 0});
  options("factor of sum", {"gradient_predivide_factor 2", "average only, not for sum"},
          {.op = hvd::Sum, .gradient_predivide_factor = 2});
  options("no passes", {"backward_passes_per_step 0"}, {.backward_passes_per_step = 0});
  options("negative groups", {"number_of_groups -1"}, {.number_of_groups = -1});
  options("both", {"exclude each other"}, {.number_of_groups = 1, .groups = {{"w"}}});
  options("empty group", {"no members"}, {.groups = {{}}});

  const auto adding = [](const std::string& what, const std::vector<std::string>& parts,
                         const hvd::GradientReducerOptions& given,
                         const std::function<void(hvd::GradientReducer&)>& call) {
    hvd::GradientReducer reducer(given);
    check::throws<Error>(what, parts, [&] { call(reducer); });
  };
  adding("no name", {"needs a name"}, {}, [&](auto& r) { r.add("", w); });
  adding("twice", {"\"w\" already"}, {}, [&](auto& r) {
    r.add("w", w);
    r.add("w", w);
  });
  adding("no memory", {"\"w\" has 4 elements", "null"}, {}, [&](auto& r) {
    r.add("w", {nullptr, {4}, hvd::DataType::int8});
    r.ready("w");
  });
  adding("bad shape", {"[-1]"}, {}, [&](auto& r) {
    r.add("w", {w.data(), {-1}, hvd::DataType::int8});
  });
  adding("bad type", {"element type"}, {}, [&](auto& r) {
    r.add("w", {w.data(), {1}, static_cast<hvd::DataType>(77)});
  });
  adding("adasum of integers", {"adasum", "int32"}, {.op = hvd::Adasum}, [&](auto& r) {
    std::vector<std::int32_t> n(2);
    r.add("w", n);
  });
  adding("device", {"fill_zeros"}, {}, [&](auto& r) {
    r.add("w", {w.data(), {3}, hvd::DataType::float32, {0}});
  });
  adding("scalar rows", {"scalar"}, {}, [&](auto& r) {
    r.add_sparse("w", {w.data(), {}, hvd::DataType::float32});
  });
  adding("largest rows", {"max needs sparse_as_dense"}, {.op = hvd::Max},
         [&](auto& r) { r.add_sparse("w", w); });
  adding("unknown in a group", {"groups", "\"v\""}, {.groups = {{"v"}}}, [&](auto& r) {
    r.add("w", w);
    r.ready("w");
  });
  adding("twice in groups", {"\"w\" stands there twice"}, {.groups = {{"w"}, {"w"}}}, [&](auto& r) {
    r.add("w", w);
    r.ready("w");
  });
  adding("sparse in a group", {"\"w\" is sparse"}, {.groups = {{"w"}}}, [&](auto& r) {
    r.add_sparse("w", w);
    r.synchronize();
  });

  hvd::GradientReducer reducer;
  Floats rows_memory(6);
  reducer.add("w", w);
  reducer.add_sparse("e", {nullptr, {3, 2}, hvd::DataType::float32});
  const auto refused = [&](const std::string& what, const std::vector<std::string>& parts,
                           const std::function<void()>& call) {
    check::throws<Error>(what, parts, call);
  };
  refused("unknown name", {"no gradient \"v\""}, [&] { reducer.ready("v"); });
  refused("unknown index", {"no gradient 7; there are 2"}, [&] { reducer.ready(7); });
  refused("rows of a dense one", {"\"w\" was added as a dense"},
          [&] { reducer.ready("w", hvd::SparseGradient{}); });
  refused("a sparse one without rows", {"\"e\" was added as a sparse"},
          [&] { reducer.ready("e"); });
  std::vector<std::int64_t> index{3};
  Floats row(2);
  refused("no such row", {"\"e\"", "no row 3", "[3, 2]"}, [&] {
    reducer.ready("e", {index, hvd::shaped(row, {1, 2})});
  });
  index[0] = -1;
  refused("a negative row", {"no row -1"}, [&] {
    reducer.ready("e", {index, hvd::shaped(row, {1, 2})});
  });
  refused("other values", {"float32[1, 2]", "float32[2]"}, [&] {
    reducer.ready("e", {index, row});
  });
  refused("no indices", {"int32 or int64", "float32[2]"}, [&] { reducer.ready("e", {row, row}); });
  refused("no memory", {"1 rows", "null"}, [&] {
    reducer.ready("e", {index, hvd::ConstTensorView{nullptr, {1, 2}, hvd::DataType::float32}});
  });
  refused("rows of a dense one, asked for", {"in its own memory"},
          [&] { (void)reducer.reduced(0); });
  refused("rows before synchronize", {"between synchronize()"}, [&] { (void)reducer.reduced(1); });
  refused("presence before synchronize", {"\"w\"", "between synchronize()"},
          [&] { (void)reducer.present(0); });
  refused("bad type", {"element type"}, [&] {
    reducer.ready(0, {w.data(), {1}, static_cast<hvd::DataType>(77)});
  });
  refused("bad rebind", {"\"w\"", "null"}, [&] { reducer.rebind(0, nullptr); });
  refused("zero passes", {"backward_passes_per_step 0"},
          [&] { reducer.set_backward_passes_per_step(0); });
  reducer.ready("w");
  refused("too late", {"\"late\" comes too late"}, [&] { reducer.add("late", row); });
  refused("zeroing what is sent", {"zero_gradients(): \"w\" is ready"},
          [&] { reducer.zero_gradients(); });
  refused("next step too early", {"next_step(): \"w\" is ready"}, [&] { reducer.next_step(); });
  refused("moved in flight", {"in flight"}, [&] { reducer.rebind(0, row.data()); });
  refused("a pass too many", {"2. time"}, [&] { reducer.ready("w"); });
  reducer.synchronize();
  refused("presence of one that is not there", {"no gradient 7"},
          [&] { (void)reducer.present(7); });
  refused("synchronized twice", {"in this step already", "next_step()"},
          [&] { reducer.synchronize(); });
  reducer.next_step();
  reducer.synchronize();
  same(reducer.reduced(1).indices.elements(), std::int64_t{0}, "no rows");
  reducer.reset();
}

// Errors that ranks find only together, or inputs that no world accepts: the reducer works on.
void disagreements() {
  hvd::GradientReducer reducer;
  Floats three(3, own());
  Floats shape(hvd::rank() == 0 ? 2 : 1, own());
  reducer.add("three", three);
  reducer.add("shape", shape);
  for (int round = 0; round < 3; ++round) {
    reducer.ready("three");
    reducer.ready("shape");
    if (hvd::size() == 1) {
      reducer.synchronize();
    } else {
      check::throws<Error>("shapes", {"gradient.shape", "[2]", "[1]"},
                           [&] { reducer.synchronize(); });
      check::that(!reducer.synchronized(), "the step is over");
    }
  }
  hvd::shutdown();
  hvd::GradientReducer later({.name = "later"});
  Floats w(2);
  later.add("w", w);
  check::throws<hvd::NotInitializedError>("no world", {"hvd::init()"}, [&] { later.ready("w"); });
  hvd::init();
  w.assign(2, own());
  later.ready("w");  // that one did not count
  later.synchronize();
  same(w, Floats(2, average()), "in the next world");
}

// Rank 1 dies; the others notice it, and reset the step that cannot be finished.
void loss(int groups) {
  std::signal(SIGTERM, SIG_IGN);  // hvdrun stops them at once; what they have to say comes first
  hvd::init();
  hvd::GradientReducer reducer({.number_of_groups = groups});
  std::vector<Floats> gradients(6, Floats(100));
  for (std::size_t i = 0; i < gradients.size(); ++i) reducer.add(std::to_string(i), gradients[i]);
  try {
    for (int step = 0;; ++step) {
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (hvd::rank() == 1 && step == 10 && i == 3) ::_exit(9);
        reducer.ready(i);
      }
      reducer.synchronize();
    }
  } catch (const hvd::CollectiveError& error) {
    reducer.reset();
    check::throws<hvd::CollectiveError>("the same cause", {error.cause()},
                                        [&] { reducer.synchronize(); });
    hvd::shutdown();
    std::printf("lost rank %d.\n", error.rank());
    std::fflush(stdout);
  }
}

}  // namespace gradients
