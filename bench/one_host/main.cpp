// [WINDOW_KB=n] mpirun -np RANKS hvd_one_host_bench [ROUNDS [ROW]]: allreduce of float32 on one
// host through the whole pipeline, side by side with Open MPI's and stock Gloo's own allreduce of
// the same bytes in one buffer. The three take turns in the same processes, so that all see the
// same weather; medians of what rank 0 sees. A second column of ours is of tensors in the shared
// heap, as hvd::empty() gives them. ROW: only those that are called so.
//
// A row's first call in a turn comes after the other sides have used the cores and the caches for
// milliseconds. MPI_Barrier, which begins each turn, spares Open MPI most of that. The row of calls
// in a row shows all sides without it.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#define OMPI_SKIP_MPICXX 1  // only its C functions
#include <mpi.h>

#include "base/text.h"
#include "bench/collectives/resnet50.h"
#include "bench/collectives/tensors.h"
#include "bench/times.h"
#include "runtime/control/world.h"
#include "runtime/core/threads.h"

namespace hvd::bench {
namespace {

class MpiExchange final : public runtime::Exchange {
 public:
  explicit MpiExchange(int size) : size_(size) {}
  Result<std::vector<std::string>> exchange(std::string_view blob,
                                            TimePoint /*deadline*/) override {
    constexpr int kMost = 1 << 12;
    std::string own(blob);
    if (own.size() > kMost) return Status(Code::internal, "the blob is too long");
    const auto length = static_cast<int>(own.size());
    own.resize(kMost);
    const auto count = static_cast<std::size_t>(size_);
    std::vector<int> lengths(count);
    std::vector<char> all(count * kMost);
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgather(own.data(), kMost, MPI_CHAR, all.data(), kMost, MPI_CHAR, MPI_COMM_WORLD);
    std::vector<std::string> blobs;
    for (std::size_t rank = 0; rank < count; ++rank) {
      blobs.emplace_back(all.data() + rank * kMost, static_cast<std::size_t>(lengths[rank]));
    }
    return blobs;
  }

 private:
  int size_;
};

std::shared_ptr<gloo::Context> stock_gloo(int rank, int size) {
  std::string folder = cat("/tmp/hvd-one-host-bench-", ::getpid());
  folder.resize(64);
  MPI_Bcast(folder.data(), 64, MPI_CHAR, 0, MPI_COMM_WORLD);
  folder.resize(folder.find('\0'));
  if (rank == 0) std::filesystem::create_directory(folder);
  MPI_Barrier(MPI_COMM_WORLD);
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) std::filesystem::remove_all(folder);
  return context;
}

// The time of one of `calls` calls in a row. All ranks begin at the same time.
template <typename Work>
double milliseconds_together(int calls, const Work& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double all = milliseconds([&] {
    for (int i = 0; i < calls; ++i) work();
  });
  return all / calls;
}

struct Row {
  const char* what;
  std::vector<std::size_t> tensors;  // ours
  int repeats;
  double most_of_mpi;  // 0: no bar
  double most_ms;      // 0: no bar
  int calls = 1;       // in a row, in each turn; times are of one
};

void compare(int rank, runtime::World& world, const std::shared_ptr<gloo::Context>& gloo,
             const Row& row) {
  // Under the same names, so that the response cache has room for both.
  Tensors tensors(world, row.what, row.tensors);
  Tensors shared(world, row.what, row.tensors, Tensors::Memory::shared);
  std::size_t elements = 0;
  for (const auto size : row.tensors) elements += size;
  std::vector<float> in(elements, 1.0F);
  std::vector<float> out(elements, 1.0F);
  std::vector<double> ours;
  std::vector<double> in_place;
  std::vector<double> mpi;
  std::vector<double> stock;
  for (int i = -3; i < row.repeats; ++i) {  // the first three fill caches of all kinds
    const double a = milliseconds_together(row.calls, [&] { tensors.allreduce(); });
    const double s = milliseconds_together(row.calls, [&] { shared.allreduce(); });
    const double b = milliseconds_together(row.calls, [&] {
      MPI_Allreduce(in.data(), out.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
    const double c = milliseconds_together(row.calls, [&] {
      gloo::AllreduceOptions options(gloo);
      options.setOutput(out.data(), elements);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      gloo::allreduce(options);
    });
    if (i < 0) continue;
    ours.push_back(a);
    in_place.push_back(s);
    mpi.push_back(b);
    stock.push_back(c);
  }
  if (rank != 0) return;
  const double ratio = median(ours) / median(mpi);
  const bool missed = (row.most_of_mpi > 0 && ratio > row.most_of_mpi) ||
                      (row.most_ms > 0 && median(ours) > row.most_ms);
  std::printf("%-34s %10.3f %12.3f %10.3f %10.3f %8.2f   at most %s%s\n", row.what, median(ours),
              median(in_place), median(mpi), median(stock), ratio,
              row.most_ms > 0 ? cat(row.most_ms, " ms").c_str() : cat(row.most_of_mpi).c_str(),
              missed ? "  <-- missed" : "");
  std::fflush(stdout);
}

int run(int rank, int size, int rounds, std::string_view only) {
  const runtime::SignalShield shield;
  std::vector<runtime::Member> members;
  for (int other = 0; other < size; ++other) {
    members.push_back({cat("localhost#", other), "localhost", "127.0.0.1"});
  }
  // A token that all processes have, without asking anybody: nobody else is here.
  const auto token = Token::from_hex(std::string(64, '5'));
  if (!token.ok()) give_up(token.status());
  MpiExchange exchange(size);
  runtime::WorldSpec spec{rank, members, 1, *token};
  if (const char* const kilobytes = std::getenv("WINDOW_KB")) {
    spec.config.chunk_bytes = std::strtoul(kilobytes, nullptr, 10) << 10;
  }
  auto world = runtime::World::create(spec, exchange);
  if (!world.ok()) give_up(world.status());
  const auto gloo = stock_gloo(rank, size);
  if (rank == 0) {
    std::printf("%d processes; medians in ms%21s %12s %10s %10s %8s\n", size, "hvd", "hvd empty()",
                "Open MPI", "Gloo", "hvd/MPI");
  }
  for (int round = 0; round < rounds; ++round) {
    for (const Row& row :
         {Row{"161 tensors, 102 MB; one flat", resnet50_sizes(), 11, 0.4, 0},
          Row{"one tensor of 64 MB", {16 << 20}, 11, 0.35, 0},
          Row{"one tensor of 16 MB", {4 << 20}, 21, 0.6, 0},
          Row{"one tensor of 1 MB", {1 << 18}, 101, 1.2, 0},
          Row{"one tensor of 4 KB", {1 << 10}, 301, 0, 0.25},
          Row{"20 x 4,096 bytes in a row, each", {1 << 10}, 61, 2, 0, 20},
          Row{"1,000 tensors of 1 KB", std::vector<std::size_t>(1000, 256), 31, 0, 3}}) {
      if (std::string_view(row.what).find(only) == std::string_view::npos) continue;
      compare(rank, **world, gloo, row);
    }
  }
  const auto left = (*world)->shutdown(Clock::now() + std::chrono::seconds(60));
  if (!left.ok()) give_up(left.status);
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int result =
      hvd::bench::run(rank, size, argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? argv[2] : "");
  MPI_Finalize();
  return result;
}
