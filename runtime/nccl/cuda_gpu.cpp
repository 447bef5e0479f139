#include "runtime/nccl/cuda_gpu.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <string_view>
#include <thread>

#include <hvd/cuda_event.h>

#include "base/log.h"
#include "base/text.h"
#include "runtime/gpu/capability_exchange.h"
#include "runtime/nccl/cast.h"
#include "runtime/nccl/cuda_status.h"
#include "runtime/nccl/nccl_communicator.h"

namespace hvd::runtime::gpu {
namespace {

// The first version that takes two ranks on one device.
constexpr int kSharingVersion = 23000;

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = to_hex({uuid.bytes, sizeof(uuid.bytes)});
  for (const std::size_t at : {20U, 16U, 12U, 8U}) text.insert(at, 1, '-');
  return "GPU-" + text;
}

bool may_share(int version) {
  const char* const told = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version >= kSharingVersion && told != nullptr && std::string_view(told) == "1";
}

// A CUDA event, for callers that ask whether it has come.
class CudaEvent final : public CudaReadyEvent {
 public:
  CudaEvent(cudaEvent_t event, cuda::Stream waiting_stream)
      : event_(event), stream_(waiting_stream) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  bool ready() const override { return cudaEventQuery(event_) != cudaErrorNotReady; }
  void wait() override {
    while (!ready()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  cuda::Event cuda_event() const override { return event_; }
  cuda::Stream waiting_stream() const override { return stream_; }

 private:
  cudaEvent_t event_;
  cuda::Stream stream_;
};

}  // namespace

// Asked of the driver itself: the runtime calls many things "no device".
Result<int> count_devices() {
  constexpr std::string_view kNone = "there is no CUDA device for this process: ";
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    const char* const why = ::dlerror();
    return Status(Code::not_found, cat(kNone, "the driver's library cannot be loaded (",
                                       why != nullptr ? why : "no reason is given", ")"));
  }
  using Init = int (*)(unsigned);
  using ErrorText = int (*)(int, const char**);
  const auto init = reinterpret_cast<Init>(::dlsym(driver, "cuInit"));
  const auto text_of = reinterpret_cast<ErrorText>(::dlsym(driver, "cuGetErrorString"));
  if (init == nullptr) return Status(Code::internal, cat(kNone, "libcuda.so.1 has no cuInit"));
  if (const int error = init(0); error != 0) {
    const char* text = nullptr;
    if (text_of != nullptr) text_of(error, &text);
    return Status(Code::not_found,
                  cat(kNone, "cuInit says ", text != nullptr ? text : "nothing that is known",
                      " (error ", error, ")"));
  }
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  HVD_RETURN_IF_ERROR(cuda_status(error, "count the CUDA devices"));
  if (count == 0) return Status(Code::not_found, cat(kNone, "CUDA counts none"));
  return count;
}

Result<std::unique_ptr<Gpu>> CudaGpu::open(int device, int lanes) {
  const auto count = count_devices();
  HVD_RETURN_IF_ERROR(count.status());
  if (device < 0 || device >= *count) {
    return Status(Code::invalid_argument,
                  cat("there is no CUDA device ", device, ": this process can use ", *count,
                      *count == 1 ? ", number 0" : ", from 0"));
  }
  std::unique_ptr<CudaGpu> opened(new CudaGpu(device));
  HVD_RETURN_IF_ERROR(opened->prepare(lanes).with_context(cat("CUDA device ", device)));
  return std::unique_ptr<Gpu>(std::move(opened));
}

Status CudaGpu::prepare(int lanes) {
  const DeviceScope scope(device_);
  HVD_RETURN_IF_ERROR(scope.status());
  cudaDeviceProp properties{};
  HVD_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&properties, device_), "ask for its properties"));
  processors_ = properties.multiProcessorCount;
  int pools = 0;
  cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device_);
  has_pools_ = pools != 0;
  std::array<char, 32> bus_id{};
  cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device_);
  identity_.uuid = uuid_text(properties.uuid);
  identity_.name = properties.name;
  identity_.bus_id = bus_id.data();
  identity_.library_version = nccl_version();
  identity_.may_share_device = may_share(identity_.library_version);
  identity_.adds_float8 =
      adds_float8(NCCL_VERSION_CODE, identity_.library_version, properties.major);
  // Before what the user computes: others wait for it.
  int least = 0;
  int greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  for (int lane = 0; lane < lanes; ++lane) {
    cudaStream_t made = nullptr;
    HVD_RETURN_IF_ERROR(cuda_status(
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "make a stream"));
    streams_.push_back(made);
  }
  return {};
}

CudaGpu::~CudaGpu() {
  const DeviceScope scope(device_);
  for (const auto event : all_events_) cudaEventDestroy(event);
  for (const auto stream : streams_) cudaStreamDestroy(stream);
}

Status CudaGpu::enter() { return cuda_status(cudaSetDevice(device_), "choose the CUDA device"); }

Result<void*> CudaGpu::allocate(int lane, std::size_t bytes) {
  void* memory = nullptr;
  const std::size_t some = bytes == 0 ? 1 : bytes;
  const auto error =
      has_pools_ ? cudaMallocAsync(&memory, some, stream(lane)) : cudaMalloc(&memory, some);
  HVD_RETURN_IF_ERROR(cuda_status(error, cat("allocate ", bytes, " bytes on a GPU")));
  return memory;
}

void CudaGpu::release(int lane, void* memory) {
  if (has_pools_) {
    cudaFreeAsync(memory, stream(lane));
  } else {
    cudaFree(memory);
  }
}

Status CudaGpu::copy(int lane, const ElementCast& cast, std::span<const CopyExtent> extents) {
  if (!cast.changes_nothing()) {
    return cuda_status(launch_cast(stream(lane), processors_, cast, extents),
                       "copy and change tensors");
  }
  const std::size_t element = size_of(cast.from);
  std::vector<CopyExtent> bytes(extents.begin(), extents.end());
  for (auto& extent : bytes) extent.elements *= element;
  return cuda_status(launch_cast(stream(lane), processors_, {}, bytes), "copy tensors");
}

Result<void*> CudaGpu::allocate_host(std::size_t bytes) {
  void* memory = nullptr;
  HVD_RETURN_IF_ERROR(cuda_status(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
                                  cat("allocate ", bytes, " bytes that a GPU reaches")));
  return memory;
}

// Waits itself for what still uses it.
void CudaGpu::release_host(int /*lane*/, void* memory) { cudaFreeHost(memory); }

Status CudaGpu::transfer(int lane, const void* from, void* to, std::size_t bytes) {
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream(lane)),
                     "copy between a GPU and the host");
}

Status CudaGpu::wait_for(int lane, ReadyEvent& event) {
  const auto* const of_device = dynamic_cast<const CudaReadyEvent*>(&event);
  if (of_device == nullptr) {
    event.wait();
    return {};
  }
  auto* const native = of_device->cuda_event();
  return cuda_status(cudaStreamWaitEvent(stream(lane), native, 0), "wait for an input");
}

Result<Mark> CudaGpu::mark(int lane) {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_events_.empty()) {
      event = idle_events_.back();
      idle_events_.pop_back();
    } else {
      HVD_RETURN_IF_ERROR(
          cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event"));
      all_events_.push_back(event);
    }
  }
  if (const Status recorded = cuda_status(cudaEventRecord(event, stream(lane)), "record an event");
      !recorded.ok()) {
    forget(event);
    return recorded;
  }
  return Mark(event);
}

Result<bool> CudaGpu::reached(Mark mark) {
  const auto state = cudaEventQuery(static_cast<cudaEvent_t>(mark));
  if (state == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  HVD_RETURN_IF_ERROR(cuda_status(state, "work on the GPU"));
  forget(mark);
  return true;
}

void CudaGpu::forget(Mark mark) {
  const std::lock_guard lock(mutex_);
  idle_events_.push_back(static_cast<cudaEvent_t>(mark));
}

Status CudaGpu::hold(cuda::Stream user_stream, Mark mark) {
  return cuda_status(cudaStreamWaitEvent(user_stream, static_cast<cudaEvent_t>(mark), 0),
                     "let a stream of the program wait");
}

Result<std::string> CudaGpu::new_id() {
  ncclUniqueId id;
  HVD_RETURN_IF_ERROR(nccl_status(ncclGetUniqueId(&id), "make an NCCL id"));
  return std::string(id.internal, sizeof(id.internal));
}

Result<std::unique_ptr<Communicator>> CudaGpu::join(const Joining& joining) {
  return NcclCommunicator::join(joining, stream(joining.lane));
}

Status CudaGpu::abort_together(std::span<Communicator* const> communicators) {
  Status first;
  const auto keep = [&first](const Status& status) {
    if (first.ok()) first = status;
  };
  keep(nccl_status(ncclGroupStart(), "begin a group"));
  for (auto* const one : communicators) keep(static_cast<NcclCommunicator*>(one)->abort());
  keep(nccl_status(ncclGroupEnd(), "abort communicators"));
  return first;
}

namespace {

// Results live in a pool that never lets what is allocated wait for what was freed: the executor
// asks for them, and must not wait for what the user computes.
class ResultPool {
 public:
  static Result<ResultPool*> of(int device) {
    static std::mutex mutex;
    static auto& pools = *new std::map<int, std::unique_ptr<ResultPool>>();
    const std::lock_guard lock(mutex);
    auto& pool = pools[device];
    if (!pool) {
      auto made = std::make_unique<ResultPool>();
      HVD_RETURN_IF_ERROR(made->prepare(device));
      pool = std::move(made);
    }
    return pool.get();
  }

  Result<void*> allocate(std::size_t bytes) const {
    void* memory = nullptr;
    const std::size_t some = bytes == 0 ? 1 : bytes;
    if (pool_ == nullptr) {
      HVD_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, some), "allocate a result"));
      return memory;
    }
    HVD_RETURN_IF_ERROR(cuda_status(cudaMallocFromPoolAsync(&memory, some, pool_, stream_),
                                    cat("allocate a result of ", bytes, " bytes on a GPU")));
    // Nothing else is ever in this stream.
    HVD_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream_), "allocate a result"));
    return memory;
  }
  void release(void* memory) const {
    if (pool_ == nullptr) {
      cudaFree(memory);
    } else {
      cudaFreeAsync(memory, cudaStreamLegacy);
    }
  }

 private:
  Status prepare(int device) {
    int pools = 0;
    cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device);
    if (pools == 0) return {};
    HVD_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                    "make a stream for results"));
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    HVD_RETURN_IF_ERROR(
        cuda_status(cudaMemPoolCreate(&pool_, &properties), "make a pool for results"));
    int off = 0;
    for (const auto attribute :
         {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowInternalDependencies}) {
      HVD_RETURN_IF_ERROR(
          cuda_status(cudaMemPoolSetAttribute(pool_, attribute, &off), "make a pool for results"));
    }
    return {};
  }

  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace

Result<void*> allocate_result(int device, std::size_t bytes) {
  const DeviceScope scope(device);
  HVD_RETURN_IF_ERROR(scope.status());
  auto pool = ResultPool::of(device);
  HVD_RETURN_IF_ERROR(pool.status());
  return (*pool)->allocate(bytes);
}

void release_result(int device, void* memory) {
  const DeviceScope scope(device);
  auto pool = ResultPool::of(device);
  if (scope.status().ok() && pool.ok()) (*pool)->release(memory);
}

Result<std::shared_ptr<ReadyEvent>> record_event(int device, cuda::Stream stream,
                                                 cuda::Stream waiting_stream) {
  const DeviceScope scope(device);
  HVD_RETURN_IF_ERROR(scope.status());
  cudaEvent_t event = nullptr;
  HVD_RETURN_IF_ERROR(
      cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event"));
  auto made = std::make_shared<CudaEvent>(event, waiting_stream);
  HVD_RETURN_IF_ERROR(
      cuda_status(cudaEventRecord(event, stream), "record an event in a stream of the program"));
  return std::shared_ptr<ReadyEvent>(std::move(made));
}

}  // namespace hvd::runtime::gpu
