// A program with tensors of a GPU, for gpu_results_test.cpp: `e2e_gpu_results SCENARIO`.
#include <cstdint>
#include <vector>

#include <hvd/c_api.h>
#include <hvd/cuda.h>
#include <hvd/sparse.h>

#include "tests/e2e/programs/check.h"
#include "tests/runtime/gpu/host_gpu_program.h"

namespace {

using check::same;
using check::that;
using Floats = std::vector<float>;

const hvd::test::HostGpuProgram& gpu() {
  static const hvd::test::HostGpuProgram only;
  return only;
}

// In the memory of this rank's device.
hvd::Tensor on_device(const Floats& elements, std::vector<std::int64_t> shape) {
  hvd::Tensor tensor(std::move(shape), hvd::DataType::float32, {hvd::cuda::device()});
  gpu().upload(tensor.data(), elements);
  gpu().synchronize();
  return tensor;
}

Floats elements(const hvd::Tensor& tensor) {
  return gpu().download<float>(tensor.data(), static_cast<std::size_t>(tensor.elements()));
}

// The elements of all ranks, each its own number so many times.
Floats of_all(int times) {
  Floats all;
  for (int rank = 0; rank < hvd::size(); ++rank) {
    all.insert(all.end(), static_cast<std::size_t>(times), static_cast<float>(rank));
  }
  return all;
}

void expect_results() {
  const int size = hvd::size();
  const auto own = static_cast<float>(hvd::rank());
  const hvd::Device device{hvd::cuda::device()};
  const auto rows = on_device(Floats(6, own), {2, 3});
  const auto gathered = hvd::allgather(rows, {.name = "gather"});
  that(gathered.device() == device, "what comes of a device is on it");
  that(hvd::ConstTensorView(gathered).device == device, "and its view says so");
  same(gathered.shape(), std::vector<std::int64_t>{2 * size, 3}, "shape of allgather");
  same(elements(gathered), of_all(6), "allgather");
  check::throws<hvd::InvalidArgumentError>("elements of a device",
                                           {"memory of CUDA device", "float32[2, 3]"},
                                           [&] { (void)rows.as<float>(); });

  const auto many = on_device(Floats(static_cast<std::size_t>(size) * 2, own), {2 * size});
  const auto received = hvd::alltoall(many, {.name = "to all"});
  same(elements(received.tensor), of_all(2), "alltoall");
  same(received.received_splits, std::vector<std::int64_t>(static_cast<std::size_t>(size), 2),
       "received splits");

  const auto kept = hvd::reducescatter(many, {.name = "scatter", .op = hvd::Sum});
  same(elements(kept), Floats(2, static_cast<float>(size * (size - 1)) / 2), "reducescatter");
  const auto group = hvd::grouped_allgather({rows, many}, {.name = "group"});
  same(elements(group[1]), of_all(2 * size), "the second of a group");
  const auto empty = hvd::allgather(on_device({}, {0, 3}), {.name = "empty"});
  same(empty.elements(), 0, "elements of nothing");

  const std::vector<float> on_host(3, own);
  that(hvd::allgather(on_host, {.name = "host"}).device().is_host(), "the host's is the host's");
  check::throws<hvd::InvalidArgumentError>("sparse", {"memory of the host"}, [&] {
    (void)hvd::sparse_allreduce(hvd::ConstTensorView(many), hvd::ConstTensorView(many), {});
  });
}

void results() {
  hvd::init();
  expect_results();  // what the runtime allocates for itself is there now
  gpu().synchronize();
  const std::size_t free = gpu().free_bytes();
  for (int time = 0; time < 3; ++time) expect_results();
  gpu().synchronize();  // they are given back in order of the stream
  same(gpu().free_bytes(), free, "nothing is kept of what was freed");
  check::say_ok();
}

void c_results() {
  hvd::init();
  const std::size_t free = gpu().free_bytes();
  {
    auto rows = on_device(Floats(4, static_cast<float>(hvd::rank())), {4});
    const std::int64_t shape[] = {4};
    const int32_t device = HVD_CUDA(hvd::cuda::device());
    const hvd_tensor tensor = HVD_TENSOR_OF(rows.data(), shape, 1, HVD_FLOAT32, device);
    hvd_options options = HVD_OPTIONS_INIT;
    options.name = "gather";
    hvd_handle handle = 0;
    same(hvd_allgather_async(&tensor, &options, &handle), static_cast<int>(HVD_OK), "allgather");
    same(hvd_wait(handle), static_cast<int>(HVD_OK), "wait");
    hvd_tensor result = HVD_TENSOR_INIT;
    same(hvd_result(handle, 0, &result), static_cast<int>(HVD_OK), "result");
    same(result.device, device, "device of the result");
    same(result.shape[0], 4 * hvd::size(), "rows of the result");
    same(gpu().download<float>(result.data, static_cast<std::size_t>(result.shape[0])), of_all(4),
         "the result");
    same(hvd_release(handle), static_cast<int>(HVD_OK), "release");
  }
  gpu().synchronize();
  same(gpu().free_bytes(), free, "nothing is kept of what was released");
  check::say_ok();
}

void too_much() {
  hvd::init();
  check::throws<hvd::OutOfMemoryError>("a tensor", {"has no 2147483648 bytes more"}, [] {
    (void)hvd::Tensor({std::int64_t{1} << 29}, hvd::DataType::float32, {0});
  });
  check::throws<hvd::InvalidArgumentError>("a tensor", {"there is no device 8"}, [] {
    (void)hvd::Tensor({1}, hvd::DataType::float32, {8});
  });
  auto one = on_device({1}, {1});
  hvd::allreduce(one, {.name = "the world goes on", .op = hvd::Sum});
  same(elements(one), Floats(1, static_cast<float>(hvd::size())), "allreduce");
  check::say_ok();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run(argc, argv,
                    {{"results", results}, {"c results", c_results}, {"too much", too_much}});
}
