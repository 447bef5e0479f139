// hvd_reform_bench [RANKS [ROUNDS]]: how long until a world that is formed anew has done its first
// collective: the data connections alone, with a barrier, and whole worlds, with an allreduce of
// 4 KB, on our transport and on Gloo's. Each rank is a process; what they tell each other lies in
// memory that they share. From when all begin until the last has finished, as rank 0 sees it;
// medians and worst in ms.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "bench/arguments.h"
#include "bench/collectives/worlds.h"
#include "runtime/core/threads.h"
#include "runtime/ops/algorithms.h"
#include "runtime/ops/gloo_mesh.h"
#include "runtime/transport/tcp_mesh.h"

namespace hvd::bench {
namespace {

using runtime::Transport;

class Reform {
 public:
  explicit Reform(Ranks& ranks) : ranks_(ranks), token_(*Token::from_hex(std::string(64, '5'))) {}

  void mesh(Transport transport) {
    auto mesh = make_mesh(transport);
    const auto addresses = ranks_.exchange(mesh->address(), kNever);
    check(addresses.status());
    check(mesh->connect(*addresses));
    std::vector<int> all(static_cast<std::size_t>(ranks_.size()));
    std::iota(all.begin(), all.end(), 0);
    runtime::barrier({mesh->transport(), all, ranks_.rank(), 0, std::chrono::seconds(60)});
    leave_together();
  }

  void world(Transport transport) {
    runtime::Config config;
    config.transport = transport;
    auto world = form_world(ranks_, ++generation_, config);
    std::vector<float> data(1024, 1);
    check(allreduce(*world, data).status);
    leave_together();
    check(world->shutdown(Clock::now() + std::chrono::seconds(60)).status);
  }

  // Medians over the rounds.
  void measure(const char* what, int rounds, const std::function<void()>& work) {
    std::vector<double> times;
    for (int i = -2; i < rounds; ++i) {
      ranks_.meet();
      begin_ = Clock::now();
      work();
      if (i >= 0) times.push_back(std::chrono::duration<double, std::milli>(end_ - begin_).count());
    }
    if (ranks_.rank() != 0) return;
    std::sort(times.begin(), times.end());
    std::printf("%-28s %10.1f %10.1f\n", what, times[times.size() / 2], times.back());
    std::fflush(stdout);
  }

 private:
  std::unique_ptr<runtime::Mesh> make_mesh(Transport transport) {
    if (transport == Transport::gloo_tcp) {
      auto mesh = runtime::GlooMesh::create(
          {ranks_.rank(), ranks_.size(), "127.0.0.1", std::chrono::seconds(60)});
      check(mesh.status());
      return std::move(*mesh);
    }
    auto mesh = runtime::TcpMesh::create(
        {{ranks_.rank(), ranks_.size(), "127.0.0.1", ++generation_, token_}});
    check(mesh.status());
    return std::move(*mesh);
  }
  void leave_together() {
    ranks_.meet();
    end_ = Clock::now();
  }

  Ranks& ranks_;
  Token token_;
  std::uint64_t generation_ = 0;
  TimePoint begin_;
  TimePoint end_;
};

int run(int size, int rounds) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  Reform reform(ranks);
  if (ranks.rank() == 0) {
    std::printf("%-28s %10s %10s\n", cat(size, " processes, ms").c_str(), "median", "worst");
  }
  reform.measure("connections, hvd", rounds, [&] { reform.mesh(Transport::hvd); });
  reform.measure("connections, gloo-tcp", rounds, [&] { reform.mesh(Transport::gloo_tcp); });
  reform.measure("world, hvd", rounds, [&] { reform.world(Transport::hvd); });
  reform.measure("world, gloo-tcp", rounds, [&] { reform.world(Transport::gloo_tcp); });
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const int size = hvd::bench::number_argument(argc, argv, 1, 8);
  const int rounds = hvd::bench::number_argument(argc, argv, 2, 11);
  return hvd::bench::run(size, rounds);
}
