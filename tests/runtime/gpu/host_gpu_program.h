// Operations of a program on simulated GPUs (host_gpu_module.cpp), which HVD_NCCL_MODULE names. As
// on real GPUs, kernels run later, in a stream, and only they can read the device's memory.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <functional>
#include <future>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace hvd::test {

class HostGpuProgram {
 public:
  HostGpuProgram() {
    const char* const path = std::getenv("HVD_NCCL_MODULE");
    void* const module = path == nullptr ? nullptr : ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) throw std::runtime_error("HVD_NCCL_MODULE names no module");
    find(module, "hvd_host_gpu_launch", launch_);
    find(module, "hvd_host_gpu_reach", reach_);
    find(module, "hvd_host_gpu_free", free_);
  }

  // In the legacy stream, behind what is there.
  void launch(std::function<void()> kernel) const {
    launch_(
        [](void* argument) {
          const std::unique_ptr<std::function<void()>> call(
              static_cast<std::function<void()>*>(argument));
          (*call)();
        },
        new std::function<void()>(std::move(kernel)));
  }
  // Until the stream has come to what is in it now.
  void synchronize() const {
    std::promise<void> done;
    launch([&done] { done.set_value(); });
    done.get_future().wait();
  }
  // For kernels: where the elements at an address of the device are.
  template <typename T>
  T* reach(const void* address) const {
    return static_cast<T*>(reach_(address));
  }
  std::size_t free_bytes() const { return free_(); }

  template <typename T>
  void upload(void* to, std::vector<T> elements) const {
    launch([this, to, elements = std::move(elements)] {
      std::copy(elements.begin(), elements.end(), reach<T>(to));
    });
  }
  template <typename T>
  std::vector<T> download(const void* from, std::size_t count) const {
    synchronize();
    const T* const elements = reach<T>(from);
    return {elements, elements + count};
  }

 private:
  template <typename Function>
  static void find(void* module, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(module, name));
    if (function == nullptr) throw std::runtime_error(std::string("there is no ") + name);
  }
  void (*launch_)(void (*)(void*), void*) = nullptr;
  void* (*reach_)(const void*) = nullptr;
  std::size_t (*free_)() = nullptr;
};

}  // namespace hvd::test
