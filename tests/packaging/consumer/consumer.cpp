// Uses every kind of thing that the public headers offer, as a user's program does.
#include <array>
#include <cstdio>
#include <vector>

#include <hvd/hvd.h>

int main() {
  hvd::init();
  std::vector<float> values{1, 2, 3};
  hvd::allreduce(values, {.name = "values", .op = hvd::Sum});
  std::array<double, 2> roots{static_cast<double>(hvd::rank()), 7};
  hvd::broadcast(roots, {.name = "roots", .root = hvd::size() - 1});
  std::vector<std::int64_t> matrix{1, 2, 3, 4};
  const hvd::TensorView view{matrix.data(), {2, 2}, hvd::DataType::int64};
  hvd::allreduce_async(view, {.name = "matrix", .op = hvd::Max}).wait();
  hvd::barrier();
  if (view.bytes() != 32 || values[2] != 3.0F * static_cast<float>(hvd::size()) ||
      roots[0] != hvd::size() - 1) {
    return 1;
  }
  try {
    hvd::broadcast(roots, {.name = "nowhere", .root = 1000});
    return 2;
  } catch (const hvd::InvalidArgumentError&) {
    // thrown by the library, caught here: one type on both sides
  }
  try {
    hvd::broadcast(roots, {.name = "nowhere", .root = 1000});
    return 3;
  } catch (const hvd::Error&) {
    // also by its base
  }
  std::printf("consumer %d of %d\n", hvd::rank(), hvd::size());
  hvd::shutdown();
  return 0;
}
