// SPDX-License-Identifier: Apache-2.0
#include "cuda_model.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdexcept>

#include <hvd/cuda.h>

#include "cuda_kernels.h"

namespace train {
namespace {

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": CUDA says " + cudaGetErrorString(error));
}

void must(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": cuBLAS says " + cublasGetStatusString(status));
}

// Where the calling thread works from now on.
hvd::Device choose_device() {
  const int device = hvd::cuda::device();
  must(cudaSetDevice(device), "choose the CUDA device");
  return {device};
}

float* floats(const hvd::Tensor& tensor) {
  return static_cast<float*>(const_cast<void*>(tensor.data()));
}

hvd::Tensor new_tensor(std::size_t elements, hvd::Device device,
                       hvd::DataType type = hvd::DataType::float32) {
  hvd::Tensor tensor({static_cast<std::int64_t>(elements)}, type, device);
  must(cudaMemset(tensor.data(), 0, tensor.bytes()), "clear a tensor");
  return tensor;
}

template <typename T>
void upload(const std::vector<T>& from, hvd::Tensor& to) {
  must(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
       "copy to the GPU");
}

std::vector<float> download(const hvd::Tensor& from, std::size_t count) {
  std::vector<float> to(count);
  must(cudaMemcpy(to.data(), from.data(), count * sizeof(float), cudaMemcpyDeviceToHost),
       "copy from the GPU");
  return to;
}

}  // namespace

CudaParameter::CudaParameter(std::string parameter_name, std::size_t size, hvd::Device device)
    : name(std::move(parameter_name)),
      value(new_tensor(size, device)),
      gradient(new_tensor(size, device)),
      mean(new_tensor(size, device)),
      square(new_tensor(size, device)) {}

// Products of matrices that lie row by row. The columns of cuBLAS are our rows, so it is asked for
// the transposed product, with the factors exchanged.
class CudaModel::Blas {
 public:
  Blas() { must(cublasCreate(&handle_), "begin with cuBLAS"); }
  ~Blas() { cublasDestroy(handle_); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // out[n x m] = a[n x k] * b[k x m]
  void product(const float* a, const float* b, float* out, std::size_t n, std::size_t k,
               std::size_t m) {
    multiply(CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, b, m, a, k, 0, out);
  }
  // out[k x m] += a[n x k]^T * b[n x m]
  void add_product_of_transposed(const float* a, const float* b, float* out, std::size_t n,
                                 std::size_t k, std::size_t m) {
    multiply(CUBLAS_OP_N, CUBLAS_OP_T, m, k, n, b, m, a, k, 1, out);
  }
  // out[n x k] = a[n x m] * b[k x m]^T
  void product_with_transposed(const float* a, const float* b, float* out, std::size_t n,
                               std::size_t m, std::size_t k) {
    multiply(CUBLAS_OP_T, CUBLAS_OP_N, k, n, m, b, m, a, m, 0, out);
  }

 private:
  void multiply(cublasOperation_t of_first, cublasOperation_t of_second, std::size_t rows,
                std::size_t columns, std::size_t inner, const float* first, std::size_t first_row,
                const float* second, std::size_t second_row, float keep, float* out) {
    const auto number = [](std::size_t count) { return static_cast<int>(count); };
    const float one = 1;
    must(cublasSgemm(handle_, of_first, of_second, number(rows), number(columns), number(inner),
                     &one, first, number(first_row), second, number(second_row), &keep, out,
                     number(rows)),
         "multiply matrices");
  }
  cublasHandle_t handle_ = nullptr;
};

CudaModel::CudaModel(const ModelShape& shape, std::uint64_t seed)
    : shape_(shape),
      device_(choose_device()),
      blas_(std::make_unique<Blas>()),
      embedding_("embedding", kBytes * shape.embedding, device_),
      hidden_weights_("hidden.weights", shape.inputs() * shape.hidden, device_),
      hidden_bias_("hidden.bias", shape.hidden, device_),
      output_weights_("output.weights", shape.hidden * kBytes, device_),
      output_bias_("output.bias", kBytes, device_) {
  std::vector<float> embedding(kBytes * shape.embedding);
  std::vector<float> hidden(shape.inputs() * shape.hidden);
  std::vector<float> output(shape.hidden * kBytes);
  first_weights(shape, seed, embedding, hidden, output);
  upload(embedding, embedding_.value);
  upload(hidden, hidden_weights_.value);
  upload(output, output_weights_.value);
}

CudaModel::~CudaModel() = default;

void CudaModel::make_room(std::size_t count) {
  if (count <= room_) return;
  room_ = count;
  contexts_ = new_tensor(count * shape_.context, device_, hvd::DataType::uint8);
  next_ = new_tensor(count, device_, hvd::DataType::uint8);
  losses_ = new_tensor(count, device_);
  input_ = new_tensor(count * shape_.inputs(), device_);
  input_gradient_ = new_tensor(count * shape_.inputs(), device_);
  active_ = new_tensor(count * shape_.hidden, device_);
  active_gradient_ = new_tensor(count * shape_.hidden, device_);
  scores_ = new_tensor(count * kBytes, device_);
}

double CudaModel::learn(const std::vector<unsigned char>& contexts,
                        const std::vector<unsigned char>& next, std::size_t count) {
  if (count == 0) return 0;
  make_room(count);
  upload(contexts, contexts_);
  upload(next, next_);
  forward(count);
  kernels::softmax_loss(floats(scores_), floats(output_bias_.value),
                        static_cast<const unsigned char*>(next_.data()), count, floats(losses_));
  backward(count);
  must(cudaGetLastError(), "begin a kernel");
  double loss = 0;
  for (const float one : download(losses_, count)) loss += static_cast<double>(one);
  return loss;
}

void CudaModel::forward(std::size_t count) {
  kernels::gather(floats(embedding_.value), static_cast<const unsigned char*>(contexts_.data()),
                  count * shape_.context, shape_.embedding, floats(input_));
  blas_->product(floats(input_), floats(hidden_weights_.value), floats(active_), count,
                 shape_.inputs(), shape_.hidden);
  kernels::add_bias_and_tanh(floats(active_), floats(hidden_bias_.value), count, shape_.hidden);
  blas_->product(floats(active_), floats(output_weights_.value), floats(scores_), count,
                 shape_.hidden, kBytes);
}

// From scores_, which hold the loss's gradient by now.
void CudaModel::backward(std::size_t count) {
  blas_->add_product_of_transposed(floats(active_), floats(scores_),
                                   floats(output_weights_.gradient), count, shape_.hidden, kBytes);
  kernels::add_rows(floats(scores_), count, kBytes, floats(output_bias_.gradient));
  blas_->product_with_transposed(floats(scores_), floats(output_weights_.value),
                                 floats(active_gradient_), count, kBytes, shape_.hidden);
  kernels::tanh_gradient(floats(active_), floats(active_gradient_), count * shape_.hidden);
  blas_->add_product_of_transposed(floats(input_), floats(active_gradient_),
                                   floats(hidden_weights_.gradient), count, shape_.inputs(),
                                   shape_.hidden);
  kernels::add_rows(floats(active_gradient_), count, shape_.hidden, floats(hidden_bias_.gradient));
  blas_->product_with_transposed(floats(active_gradient_), floats(hidden_weights_.value),
                                 floats(input_gradient_), count, shape_.hidden, shape_.inputs());
  kernels::scatter(floats(input_gradient_), static_cast<const unsigned char*>(contexts_.data()),
                   count * shape_.context, shape_.embedding, floats(embedding_.gradient));
}

void CudaModel::fill_zeros(const hvd::TensorView& gradient) {
  must(cudaMemset(gradient.data, 0, gradient.bytes()), "clear a gradient");
}

void CudaModel::round_gradients(const ExactSum& exact, float scale) {
  for (auto* const parameter : parameters()) {
    auto& gradient = parameter->gradient;
    kernels::round_to_grid(floats(gradient), static_cast<std::size_t>(gradient.elements()), exact,
                           scale);
  }
  must(cudaGetLastError(), "round gradients");
}

std::shared_ptr<hvd::ReadyEvent> CudaModel::gradients_there() {
  return hvd::cuda::ready_after(nullptr);
}

void CudaModel::update(double learning_rate) {
  ++steps_;
  const float rate = adam_rate(learning_rate, steps_);
  for (auto* const parameter : parameters()) {
    kernels::adam(floats(parameter->value), floats(parameter->gradient), floats(parameter->mean),
                  floats(parameter->square), static_cast<std::size_t>(parameter->value.elements()),
                  rate);
  }
  must(cudaGetLastError(), "update the weights");
}

std::vector<CudaParameter*> CudaModel::parameters() {
  return {&embedding_, &hidden_weights_, &hidden_bias_, &output_weights_, &output_bias_};
}

std::vector<const CudaParameter*> CudaModel::all() const {
  return {&embedding_, &hidden_weights_, &hidden_bias_, &output_weights_, &output_bias_};
}

std::size_t CudaModel::parameter_count() const {
  std::size_t count = 0;
  for (const auto* const parameter : all()) {
    count += static_cast<std::size_t>(parameter->value.elements());
  }
  return count;
}

std::uint64_t CudaModel::digest() const {
  WeightsDigest digest;
  for (const auto* const parameter : all()) {
    digest.add(download(parameter->value, static_cast<std::size_t>(parameter->value.elements())));
  }
  return digest.value();
}

}  // namespace train
