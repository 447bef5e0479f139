#include "tests/runtime/gpu/host_copier.h"

#include <cstring>
#include <future>
#include <new>

#include "runtime/gpu/digest.h"

namespace hvd::test {
namespace {

using runtime::gpu::KeptIn;

class HostCopier final : public runtime::gpu::Copier {
 public:
  explicit HostCopier(const HostCopierOptions& options) : options_(options) {}

  Result<std::size_t> free_bytes() override { return options_.free_bytes(); }
  Result<void*> allocate(KeptIn where, std::size_t bytes) override {
    auto& memory = memory_of(where);
    void* const allocated = memory.allocate(bytes);
    if (allocated == nullptr) {
      return Status(Code::resource_exhausted, "the device has no more memory");
    }
    std::memset(memory.reach(allocated), 0, bytes);
    return allocated;
  }
  void release(KeptIn where, void* memory) override { memory_of(where).release(memory); }

  Status follow(cuda::Stream stream) override {
    order(stream_of(stream), lane_);
    return {};
  }
  Status lead(cuda::Stream stream) override {
    order(lane_, stream_of(stream));
    return {};
  }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    options_.on_copy();
    lane_.put([to = options_.memory->reach(to), from = options_.memory->reach(from), bytes] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
    return {};
  }
  Status wait() override {
    std::promise<void> done;
    lane_.put([&done] { done.set_value(); });
    done.get_future().wait();
    return {};
  }
  Result<std::uint64_t> digest(const void* memory, std::size_t bytes) override {
    HVD_RETURN_IF_ERROR(wait());
    return runtime::gpu::digest_on_host(options_.memory->reach(memory), bytes);
  }
  Status health() override { return {}; }

 private:
  HostGpuMemory& memory_of(KeptIn where) const {
    return where == KeptIn::device ? *options_.memory : HostGpuMemory::plain();
  }
  HostLane& stream_of(cuda::Stream stream) const {
    return stream == nullptr ? *options_.legacy_stream : HostLane::of(stream);
  }
  // Later work of `second` waits for the work that is in `first`.
  static void order(HostLane& first, HostLane& second) {
    auto state = std::make_shared<HostEvent::State>();
    first.put([state] { state->set(); });
    second.put([state] { state->wait(); });
  }

  HostCopierOptions options_;
  HostLane lane_;
};

}  // namespace

std::unique_ptr<runtime::gpu::Copier> make_host_copier(const HostCopierOptions& options) {
  return std::make_unique<HostCopier>(options);
}

}  // namespace hvd::test
