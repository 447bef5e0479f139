// The operations of a GPU on a GPU, through the module: skipped, with the reason, where there is
// none. scripts/gpu-check runs these, and makes a table of what they print as "number: NAME VALUE
// UNIT".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <type_traits>

#include "runtime/gpu/async_destroy.h"
#include "runtime/gpu/element_cast.h"
#include "runtime/gpu/module.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/gpu/gpu_ranks.h"

namespace hvd::test {
namespace {

using runtime::gpu::CopyExtent;
using runtime::gpu::ElementCast;
using runtime::gpu::Gpu;
using runtime::gpu::Module;

// The driver's own calls for copies that the adapter does not need: to and from host memory.
struct Driver {
  int (*copy)(std::uintptr_t to, std::uintptr_t from, std::size_t bytes) = nullptr;
  int (*memory)(std::size_t* free, std::size_t* all) = nullptr;
};

struct Machine {
  const Module* module = nullptr;
  Driver driver;
  std::string why_not;
};

const Machine& machine() {
  static const Machine only = [] {
    Machine found;
    const auto module = runtime::gpu::module();
    if (!module.ok()) {
      found.why_not = module.status().message();
      return found;
    }
    const auto count = (*module)->device_count();
    if (!count.ok()) {
      found.why_not = count.status().message();
      return found;
    }
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    found.driver.copy = reinterpret_cast<decltype(Driver::copy)>(::dlsym(driver, "cuMemcpy"));
    found.driver.memory =
        reinterpret_cast<decltype(Driver::memory)>(::dlsym(driver, "cuMemGetInfo_v2"));
    found.module = *module;
    return found;
  }();
  return only;
}

#define HVD_NEEDS_A_GPU() \
  if (machine().module == nullptr) GTEST_SKIP() << machine().why_not

void transfer(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  ASSERT_EQ(machine().driver.copy(reinterpret_cast<std::uintptr_t>(to),
                                  reinterpret_cast<std::uintptr_t>(from), bytes),
            0);
}

void print_number(const char* name, double value, const char* unit) {
  std::printf("number: %s %.3g %s\n", name, value, unit);
}

// Memory of the device, for as long as this lives.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : memory_(*machine().module->allocate(0, bytes)) {}
  ~DeviceMemory() { machine().module->release(0, memory_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* get() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_;
};

// --- conformance --------------------------------------------------------------------------------

// Brings inputs to the device and outputs back.
Status staged(std::vector<runtime::Entry>& entries, std::vector<runtime::Outcome>& outcomes,
              const std::function<Status()>& run) {
  std::vector<std::unique_ptr<DeviceMemory>> memories;
  const auto make = [&](std::size_t bytes) {
    memories.push_back(std::make_unique<DeviceMemory>(bytes));
    return memories.back()->get();
  };
  const auto host = entries;
  for (auto& entry : entries) {
    if (entry.input == nullptr && entry.output == nullptr && !entry.allocate) continue;
    std::byte* const input = make(entry.request.bytes());
    const bool is_read = entry.input != nullptr;
    if (is_read) transfer(input, entry.input, entry.request.bytes());
    const bool in_place = entry.input == entry.output;
    const auto type = entry.request.type;
    entry.input = input;
    entry.output = nullptr;
    entry.allocate = [&, input, in_place, type,
                      bytes = entry.request.bytes()](const std::vector<std::int64_t>& shape) {
      std::size_t wanted = size_of(type);
      for (const auto extent : shape) wanted *= static_cast<std::size_t>(extent);
      return static_cast<void*>(in_place && wanted <= bytes ? input : make(wanted));
    };
  }
  HVD_RETURN_IF_ERROR(run());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!outcomes[i].ok() || outcomes[i].output == nullptr) continue;
    std::size_t bytes = size_of(entries[i].request.type);
    for (const auto extent : outcomes[i].shape) bytes *= static_cast<std::size_t>(extent);
    void* const to = host[i].allocate ? host[i].allocate(outcomes[i].shape) : host[i].output;
    transfer(to, outcomes[i].output, bytes);
    outcomes[i].output = to;
  }
  entries = host;
  return {};
}

Backend device_backend() {
  return {"device", false, [](RanksAs /*threads*/, int size, const Backend::Body& body) {
            HVD_NEEDS_A_GPU();
            const char* const shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
            if (size > 1 && (shared == nullptr || std::string_view(shared) != "1")) {
              GTEST_SKIP() << "ranks share a GPU only with NCCL 2.30 and "
                              "NCCL_MULTI_RANK_GPU_ENABLE=1";
            }
            on_gpu_ranks(
                size,
                [](int /*rank*/) {
                  GpuRankOptions options{machine().module->open, 1, {kLittleBytes}};
                  options.stage = staged;
                  return options;
                },
                body);
          }};
}

std::vector<Table> one_and_two_ranks(const Backend& backend) {
  auto tables = every_table(backend, RanksAs::threads);
  std::erase_if(tables, [](const Table& table) { return table.size > 2; });
  return tables;
}

INSTANTIATE_TEST_SUITE_P(Device, Conformance,
                         ::testing::ValuesIn(one_and_two_ranks(device_backend())), table_name);

// --- the kernel ---------------------------------------------------------------------------------

void wait_for(Gpu& gpu) {
  const auto mark = gpu.mark(0);
  ASSERT_TRUE(mark.ok()) << mark.status().to_string();
  for (;;) {
    const auto reached = gpu.reached(*mark);
    ASSERT_TRUE(reached.ok()) << reached.status().to_string();
    if (*reached) return;
  }
}

std::unique_ptr<Gpu> open_gpu() {
  auto gpu = machine().module->open(0, 1);
  EXPECT_TRUE(gpu.ok()) << gpu.status().to_string();
  if (!gpu.ok()) return nullptr;
  EXPECT_TRUE((*gpu)->enter().ok());
  return std::move(*gpu);
}

// Many extents of all lengths, from and to places of every alignment.
TEST(DeviceKernel, CastsGiveTheResultsOfTheSameCodeOnTheHost) {
  HVD_NEEDS_A_GPU();
  const auto gpu = open_gpu();
  ASSERT_NE(gpu, nullptr);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const DeviceMemory from(kBytes);
  const DeviceMemory to(kBytes);
  int casts = 0;
  for (int a = 0; a < kDataTypes; ++a) {
    for (int b = 0; b < kDataTypes; ++b) {
      for (const double factor : {1.0, 0.5, 3.0}) {
        const ElementCast cast{static_cast<DataType>(a), static_cast<DataType>(b), factor,
                               factor == 3.0 ? 2 : 1};
        Bytes input(kBytes);
        Bytes expected(kBytes, std::byte{0xA5});
        const bool known = runtime::gpu::with_types(cast.from, cast.to, [&](auto one, auto other) {
          using From = decltype(one);
          using To = decltype(other);
          auto* const in = reinterpret_cast<From*>(input.data());
          auto* const out = reinterpret_cast<To*>(expected.data());
          const std::size_t many = kBytes / std::max(sizeof(From), sizeof(To)) - 64;
          for (std::size_t i = 0; i < many + 64; ++i) {
            in[i] = runtime::gpu::store_element<From>(static_cast<std::int64_t>(i % 120));
          }
          std::vector<CopyExtent> extents;
          std::size_t at = 0;
          for (std::size_t length = 1; at + length + 3 < many; length = length * 3 / 2 + 1) {
            const std::size_t count = length % 70'000;
            const std::size_t skip = length % 4;
            for (std::size_t i = 0; i < count; ++i) {
              if constexpr (std::is_same_v<From, To>) {
                if (cast.changes_nothing()) {
                  out[at + i] = in[at + i + skip];
                  continue;
                }
              }
              out[at + i] = runtime::gpu::cast_element<From, To>(in[at + i + skip], cast.factor,
                                                                 cast.divisor);
            }
            extents.push_back({reinterpret_cast<From*>(from.get()) + at + skip,
                               reinterpret_cast<To*>(to.get()) + at, count});
            at += count + 1;
          }
          transfer(from.get(), input.data(), kBytes);
          transfer(to.get(), Bytes(kBytes, std::byte{0xA5}).data(), kBytes);
          ASSERT_TRUE(gpu->copy(0, cast, extents).ok());
        });
        if (!known) continue;
        ++casts;
        wait_for(*gpu);
        Bytes got(kBytes);
        transfer(got.data(), to.get(), kBytes);
        const auto [g, e] = std::mismatch(got.begin(), got.end(), expected.begin());
        ASSERT_EQ(g - got.begin(), e - expected.begin());
        EXPECT_TRUE(g == got.end()) << "from type " << a << " to " << b << " times " << factor
                                    << ": byte " << g - got.begin();
      }
    }
  }
  EXPECT_EQ(casts, 3 * 31);
}

double seconds_of(int times, const std::function<void()>& work) {
  work();
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto begun = Clock::now();
    work();
    all.push_back(std::chrono::duration<double>(Clock::now() - begun).count());
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times / 2)];
}

TEST(DeviceNumbers, PackingBesideOneCopyOfTheDevice) {
  HVD_NEEDS_A_GPU();
  const auto gpu = open_gpu();
  ASSERT_NE(gpu, nullptr);
  constexpr std::size_t kBytes = std::size_t{512} << 20;
  const DeviceMemory from(kBytes);
  const DeviceMemory to(kBytes);
  constexpr std::size_t kTensors = 1'000;
  std::vector<CopyExtent> many;
  for (std::size_t i = 0; i < kTensors; ++i) {
    const std::size_t at = i * (kBytes / kTensors / 256 * 256);
    many.push_back({from.get() + at, to.get() + at, kBytes / kTensors / 256 * 256});
  }
  const double packed = seconds_of(21, [&] {
    ASSERT_TRUE(gpu->copy(0, {}, many).ok());
    wait_for(*gpu);
  });
  const double copied = seconds_of(21, [&] {
    transfer(to.get(), from.get(), kBytes);
    wait_for(*gpu);
  });
  const double moved = 2.0 * kBytes / 1e9;
  print_number("copy_of_the_device", moved / copied, "GB/s");
  print_number("packing_1000_tensors", moved / packed, "GB/s");
  print_number("packing_share_of_copy", 100 * copied / packed, "%");
}

runtime::Entry entry_of(const std::string& name, std::byte* data, std::int64_t elements) {
  runtime::Entry entry;
  entry.request = allreduce_request(name, elements);
  entry.request.on_host = false;
  entry.input = entry.output = data;
  entry.device.cuda = 0;
  return entry;
}

TEST(DeviceNumbers, ThePipelineBesideABareAllreduce) {
  HVD_NEEDS_A_GPU();
  constexpr std::int64_t kElements = 16'384;
  constexpr std::size_t kTensors = 64;
  const DeviceMemory memory(kTensors * kElements * 4);
  double bare = 0;
  {
    const auto gpu = open_gpu();
    ASSERT_NE(gpu, nullptr);
    auto id = gpu->new_id();
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    auto joined = gpu->join({{*id}, 0, 1, 0, false});
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    auto& all = **joined;
    const auto settle = [&] {
      for (;;) {
        const auto settled = all.settled();
        ASSERT_TRUE(settled.ok()) << settled.status().to_string();
        if (*settled) return;
      }
    };
    settle();
    bare = seconds_of(501, [&] {
      ASSERT_TRUE(all.begin().ok());
      ASSERT_TRUE(all.all_reduce(memory.get(), memory.get(), kTensors * kElements,
                                 DataType::float32, runtime::gpu::Reduction::sum)
                      .ok());
      ASSERT_TRUE(all.end().ok());
      settle();
      wait_for(*gpu);
    });
    ASSERT_TRUE(all.finalize().ok());
    settle();
    ASSERT_TRUE(all.destroy().ok());
  }
  run_world_to_end(1, [&](int /*rank*/, runtime::World& world) {
    const double piped = seconds_of(501, [&] {
      std::vector<runtime::Entry> entries;
      std::vector<std::future<runtime::Outcome>> futures;
      for (std::size_t i = 0; i < kTensors; ++i) {
        entries.push_back(entry_of(cat("t", i), memory.get() + i * kElements * 4, kElements));
        entries.back().request.group = "all";
        entries.back().request.group_size = kTensors;
        auto promise = std::make_shared<std::promise<runtime::Outcome>>();
        futures.push_back(promise->get_future());
        entries.back().done = [promise](const auto& outcome) { promise->set_value(outcome); };
      }
      ASSERT_TRUE(world.enqueue(std::move(entries)).ok());
      for (auto& future : futures) ASSERT_TRUE(outcome_of(std::move(future)).ok());
    });
    print_number("bare_allreduce", bare * 1e6, "us");
    print_number("batch_of_64_tensors", piped * 1e6, "us");
    print_number("overhead_per_batch", (piped - bare) * 1e6, "us");
  });
}

// --- again and again ----------------------------------------------------------------------------

std::size_t threads_here() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t free_memory() {
  std::size_t free = 0;
  std::size_t all = 0;
  EXPECT_EQ(machine().driver.memory(&free, &all), 0);
  return free;
}

TEST(DeviceWorlds, FiftyThatFailAndAreFormedAnewLeaveNothingBehind) {
  HVD_NEEDS_A_GPU();
  const auto gpu = open_gpu();  // a context for free_memory()
  ASSERT_NE(gpu, nullptr);
  const DeviceMemory memory(std::size_t{1} << 20);
  std::size_t threads = 0;
  std::size_t free = 0;
  for (int round = 0; round < 50; ++round) {
    run_world(1, [&](int /*rank*/, runtime::World& world) {
      const auto outcome = outcome_of(submit(world, entry_of("t", memory.get(), 1'000)));
      ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
      world.abort(Status(Code::unavailable, "the test says so"));
    });
    runtime::gpu::destroy_retired();
    if (round == 4) {
      threads = threads_here();
      free = free_memory();
    }
  }
  EXPECT_LE(threads_here(), threads);
  EXPECT_GE(free_memory() + (std::size_t{16} << 20), free);
  print_number("threads_after_50_rounds", static_cast<double>(threads_here()), "threads");
  print_number("memory_lost_in_45_rounds",
               (static_cast<double>(free) - static_cast<double>(free_memory())) / 1e6, "MB");
}

}  // namespace
}  // namespace hvd::test
