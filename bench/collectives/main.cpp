// hvd_collectives_bench [RANKS [ROUNDS [ROW]]]: allreduce of float32 through the whole pipeline,
// side by side with Gloo's own allreduce, called directly on its stock transport. Each rank is a
// process. The two take turns, so that both see the same weather; medians of what rank 0 sees. With
// ROW, only the rows whose names contain it.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/transport/tcp/device.h>
#include <mutex>

#include "base/text.h"
#include "bench/collectives/ranks.h"
#include "bench/collectives/resnet50.h"
#include "bench/collectives/tensors.h"
#include "runtime/threads.h"

namespace hvd::bench {
namespace {

// --- stock Gloo ---------------------------------------------------------------------------------

// Gloo's rendezvous over what the ranks share: each rank says everything at once.
std::shared_ptr<gloo::Context> stock_gloo(Ranks& ranks) {
  struct Context final : gloo::Context {
    Context(int own_rank, int all) : gloo::Context(own_rank, all) {}
    void set(std::shared_ptr<gloo::transport::Device> device,
             std::shared_ptr<gloo::transport::Context> transport) {
      device_ = std::move(device);
      transportContext_ = std::move(transport);
    }
  };
  gloo::transport::tcp::attr attributes("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  std::shared_ptr<gloo::transport::Context> transport =
      device->createContext(ranks.rank(), ranks.size());
  std::string addresses;
  for (int peer = 0; peer < ranks.size(); ++peer) {
    std::vector<char> address(1024);
    if (peer != ranks.rank()) {
      const auto bytes = transport->createPair(peer)->address().bytes();
      std::copy(bytes.begin(), bytes.end(), address.begin() + 2);
      address[0] = static_cast<char>(bytes.size() / 256);
      address[1] = static_cast<char>(bytes.size() % 256);
    }
    addresses.append(address.data(), address.size());
  }
  const auto all = ranks.exchange(addresses, kNever);
  if (!all.ok()) give_up(all.status());
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer == ranks.rank()) continue;
    const auto& theirs = (*all)[static_cast<std::size_t>(peer)];
    const auto* const at = theirs.data() + 1024 * static_cast<std::size_t>(ranks.rank());
    const auto size = static_cast<std::size_t>(static_cast<unsigned char>(at[0])) * 256 +
                      static_cast<unsigned char>(at[1]);
    transport->getPair(peer)->connect({at + 2, at + 2 + size});
  }
  auto context = std::make_shared<Context>(ranks.rank(), ranks.size());
  context->set(device, transport);
  context->setTimeout(std::chrono::seconds(60));
  return context;
}

class Flat {
 public:
  Flat(std::shared_ptr<gloo::Context> context, std::size_t elements)
      : context_(std::move(context)), data_(elements, 1.0F) {}
  void allreduce() {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data_.data(), data_.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::vector<float> data_;
};

// --- taking turns -------------------------------------------------------------------------------

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Row {
  const char* what;
  std::vector<std::size_t> tensors;  // ours
  std::size_t flat;                  // Gloo's
  int repeats;
  double target;
};

void compare(Ranks& ranks, runtime::World& world, const std::shared_ptr<gloo::Context>& gloo,
             const Row& row) {
  Tensors tensors(world, row.what, row.tensors);
  Flat flat(gloo, row.flat);
  gloo::BarrierOptions together(gloo);
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int i = -3; i < row.repeats; ++i) {  // the first three fill caches of all kinds
    gloo::barrier(together);
    const double a = milliseconds([&] { tensors.allreduce(); });
    gloo::barrier(together);
    const double b = milliseconds([&] { flat.allreduce(); });
    if (i < 0) continue;
    ours.push_back(a);
    theirs.push_back(b);
  }
  if (ranks.rank() != 0) return;
  const double ratio = median(ours) / median(theirs);
  std::printf("%-38s %10.3f %10.3f %8.2f   at most %.1f %s\n", row.what, median(ours),
              median(theirs), ratio, row.target, ratio <= row.target ? "" : "  <-- missed");
  std::fflush(stdout);
}

int run(int size, int rounds, std::string_view wanted) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  std::vector<runtime::Member> members;
  for (int rank = 0; rank < size; ++rank) {
    members.push_back({cat("localhost#", rank), "localhost", "127.0.0.1"});
  }
  // A token that all processes have, without asking anybody: nobody else is here.
  const auto token = Token::from_hex(std::string(64, '5'));
  if (!token.ok()) give_up(token.status());
  auto world = runtime::World::create({ranks.rank(), members, 1, *token}, ranks);
  if (!world.ok()) give_up(world.status());
  const auto gloo = stock_gloo(ranks);
  if (ranks.rank() == 0) {
    std::printf("%d processes; medians in ms%25s %10s %8s\n", size, "hvd", "gloo", "ratio");
  }
  const auto resnet = resnet50_sizes();
  std::size_t all = 0;
  for (const auto elements : resnet) all += elements;
  const Row rows[] = {
      {"161 tensors, 102 MB; one flat", resnet, all, 21, 1.1},
      {"1,000 tensors of 1 KB; one of 1 MB", std::vector<std::size_t>(1000, 256), 256'000, 51, 3},
      {"one tensor of 4 KB; the same", {1024}, 1024, 201, 2},
      {"one tensor of 1 MB; the same", {262'144}, 262'144, 51, 2},
      {"one tensor of 64 MB; the same", {16'777'216}, 16'777'216, 11, 1.1},
  };
  for (int round = 0; round < rounds; ++round) {
    for (const auto& row : rows) {
      if (std::string_view(row.what).find(wanted) != std::string_view::npos) {
        compare(ranks, **world, gloo, row);
      }
    }
  }
  const auto left = (*world)->shutdown(Clock::now() + std::chrono::seconds(60));
  if (!left.ok()) give_up(left.status);
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 4;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  return hvd::bench::run(size, rounds, argc > 3 ? argv[3] : "");
}
