// Ranks that disagree, in every way that they can: each rank gets the same error, which names both
// sides, and the world goes on. Says "ok RANK." at its end; what is wrong ends it with 1.
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/e2e/programs/check.h"

namespace {

using check::same;
using check::throws;
using hvd::DataType;

// No machine has so many.
constexpr hvd::Device kNoDevice{1'000};

struct Mismatch {
  std::string what;
  std::vector<std::string> said;
  // The call of rank 0, or of another one; the name is always "t".
  std::function<void(bool first)> call;
};

hvd::TensorView view(DataType type, std::vector<std::int64_t> shape, hvd::Device device = {}) {
  static std::vector<double> memory(64);
  return {memory.data(), std::move(shape), type, device};
}

std::vector<Mismatch> mismatches() {
  const auto f32 = [] { return view(DataType::float32, {4}); };
  return {
      {"type",
       {"Mismatched data types", "float32", "int64"},
       [](bool first) {
         hvd::allreduce(view(first ? DataType::float32 : DataType::int64, {4}), {.name = "t"});
       }},
      {"shape of allreduce",
       {"shapes", "[2, 2]", "[4]"},
       [](bool first) {
         const std::vector<std::int64_t> two{2, 2};
         hvd::allreduce(view(DataType::float32, first ? two : std::vector<std::int64_t>{4}),
                        {.name = "t"});
       }},
      {"shape of allgather",
       {"allgather tensor shapes", "[1, 2]", "[3, 4]"},
       [](bool first) {
         hvd::allgather(view(DataType::float32, {first ? 1 : 3, first ? 2 : 4}), {.name = "t"});
       }},
      {"collective",
       {"Mismatched collective operations", "an allreduce", "a broadcast"},
       [&](bool first) {
         auto tensor = view(DataType::float32, {4});
         first ? hvd::allreduce(tensor, {.name = "t"}) : hvd::broadcast(tensor, {.name = "t"});
       }},
      {"operation",
       {"Mismatched reduce operations", "average", "max"},
       [f32](bool first) {
         hvd::allreduce(f32(), {.name = "t", .op = first ? hvd::Average : hvd::Max});
       }},
      {"operation of reducescatter",
       {"Mismatched reduce operations", "sum", "min"},
       [f32](bool first) {
         hvd::reducescatter(f32(), {.name = "t", .op = first ? hvd::Sum : hvd::Min});
       }},
      {"operation of a sparse tensor",
       {"Mismatched reduce operations", "average", "sum"},
       [f32](bool first) {
         hvd::sparse_allreduce(view(DataType::int32, {4}), f32(),
                               {.name = "t", .op = first ? hvd::Average : hvd::Sum});
       }},
      {"root",
       {"Mismatched broadcast root ranks", "root rank 0", "root rank 1"},
       [f32](bool first) { hvd::broadcast(f32(), {.name = "t", .root = first ? 0 : 1}); }},
      {"root of an object",
       {"Mismatched broadcast root ranks", "root rank 0", "root rank 1", "\"t.size\""},
       [](bool first) { hvd::broadcast_object("x", {.name = "t", .root = first ? 0 : 1}); }},
      {"prescale",
       {"Mismatched prescale factors", "0.5", "2"},
       [f32](bool first) { hvd::allreduce(f32(), {.name = "t", .prescale = first ? 0.5 : 2.0}); }},
      {"postscale",
       {"Mismatched postscale factors", "0.5", "2"},
       [f32](bool first) { hvd::allreduce(f32(), {.name = "t", .postscale = first ? 0.5 : 2.0}); }},
      {"device",
       {"CPU/GPU device selection", "CPU", "GPU"},
       [](bool first) {
         hvd::allreduce(view(DataType::float32, {4}, first ? hvd::Device{} : kNoDevice),
                        {.name = "t"});
       }},
      // For want of the module, of a driver, of a GPU, or of so many: the first that is missing.
      {"a device that nothing works on",
       {"allreduce \"t\"", "rank 0 on ", "CUDA"},
       [](bool) { hvd::allreduce(view(DataType::float32, {4}, kNoDevice), {.name = "t"}); }},
      {"compression",
       {"Mismatched compressions", "none", "bfloat16"},
       [f32](bool first) {
         const auto other = hvd::Compression::bfloat16;
         hvd::allreduce(f32(),
                        {.name = "t", .compression = first ? hvd::Compression::none : other});
       }},
      {"size of a group",
       {"Mismatched groups", "group \"t\" of 2", "group \"t\" of 3"},
       [f32](bool first) {
         std::vector<hvd::TensorView> tensors(first ? 2 : 3, f32());
         hvd::grouped_allreduce(tensors, {.name = "t"});
       }},
      {"splits",
       {"splits", "rank 1"},
       [f32](bool first) {
         std::vector<std::int64_t> splits(static_cast<std::size_t>(hvd::size()));
         if (!first) splits[0] = 5;
         hvd::alltoall(f32(), {.name = "t", .splits = splits});
       }},
      {"parameters",
       {"shapes", "[4]", "[5]", "broadcast_parameters.w"},
       [](bool first) {
         const std::vector<hvd::NamedTensor> list{{"w", view(DataType::float32, {first ? 4 : 5})},
                                                  {"b", view(DataType::float32, {2})}};
         hvd::broadcast_parameters(list);
       }},
  };
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Leaves the process hardly any more memory than it has.
class NoMemory {
 public:
  NoMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    std::ifstream pages("/proc/self/statm");
    rlim_t used = 0;
    pages >> used;
    rlimit little = before_;
    little.rlim_cur = used * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{32} << 20);
    ::setrlimit(RLIMIT_AS, &little);
  }
  ~NoMemory() { ::setrlimit(RLIMIT_AS, &before_); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

 private:
  rlimit before_{};
};

// One rank has no memory for the object of another: all ranks get the error, and none waits.
void objects_without_room() {
  const std::string object(hvd::rank() == 0 ? std::size_t{128} << 20 : 0, 'x');
  std::optional<NoMemory> little;
  if (hvd::rank() == 1) little.emplace();
  throws<hvd::OutOfMemoryError>("an object without room", {"\"big\"", "rank 1", "134217728 bytes"},
                                [&] { hvd::broadcast_object(object, {.name = "big"}); });
}
#else
void objects_without_room() {}  // sanitizers end the process instead
#endif

void all_go_on(const std::string& after) {
  std::vector<int> one{1};
  hvd::allreduce(one, {.name = "t", .op = hvd::Sum});
  same(one[0], hvd::size(), "after " + after);
}

void disagreements() {
  hvd::init();
  const bool first = hvd::rank() == 0;
  for (const auto& mismatch : mismatches()) {
    const auto said = throws<hvd::InvalidArgumentError>(mismatch.what, mismatch.said,
                                                        [&] { mismatch.call(first); });
    for (const auto& other : hvd::allgather_object(said)) {
      same(other, said, mismatch.what + ", on all ranks");
    }
    all_go_on(mismatch.what);
  }

  // A group on one side, single tensors of the same names on the other.
  std::vector<float> a(2);
  std::vector<float> b(2);
  std::vector<hvd::Handle> handles;
  if (first) {
    handles.push_back(hvd::grouped_allreduce_async({a, b}, {.name = "g"}));
  } else {
    handles.push_back(hvd::allreduce_async(a, {.name = "g_1of2"}));
    handles.push_back(hvd::allreduce_async(b, {.name = "g_2of2"}));
  }
  for (const auto& handle : handles) {
    throws<hvd::InvalidArgumentError>("group", {"no group", "group \"g\" of 2"},
                                      [&] { handle.wait(); });
    bool told = false;
    handle.on_done([&told](const std::exception_ptr& error) { told = error != nullptr; });
    check::that(told, "a callback that comes late is called at once, with the error");
  }
  all_go_on("group");

  // Duplicate names and errors of one rank alone: reported at once, without the other ranks.
  if (first) {
    const auto handle = hvd::allreduce_async(a, {.name = "twice"});
    throws<hvd::InvalidArgumentError>("name", {"\"twice\"", "already in flight"},
                                      [&] { hvd::allreduce(b, {.name = "twice"}); });
    throws<hvd::InvalidArgumentError>(
        "group with a name that is in flight", {"\"twice_1of1\"", "already in flight"}, [&] {
          const auto other = hvd::allreduce_async(b, {.name = "twice_1of1"});
          try {
            hvd::grouped_allreduce({b}, {.name = "twice"});
          } catch (...) {
            hvd::barrier({.name = "now"});
            other.wait();
            throw;
          }
        });
    handle.wait();
  } else {
    hvd::barrier({.name = "now"});
    hvd::allreduce(b, {.name = "twice_1of1"});
    hvd::allreduce(a, {.name = "twice"});
  }
  all_go_on("names");
  objects_without_room();
  all_go_on("an object without room");
  check::say_ok();
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run(argc, argv, {{"disagreements", disagreements}});
}
