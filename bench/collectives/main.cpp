// hvd_collectives_bench [RANKS [ROUNDS [ROW [COLUMN,...]]]]: allreduce of float32 through the whole
// pipeline, side by side with Gloo's own allreduce called directly, each on our transport and on
// Gloo's stock one. Each rank is a process. All take turns, so that they see the same weather;
// medians of what rank 0 sees. Columns: hvd, gloo-tcp (our pipeline on Gloo's transport), gloo
// (Gloo's allreduce on its own), gloo-on-hvd (the same on ours). With ROW, only the rows whose
// names contain it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>

#include "base/text.h"
#include "bench/collectives/ranks.h"
#include "bench/collectives/resnet50.h"
#include "bench/collectives/stock_gloo.h"
#include "bench/collectives/tensors.h"
#include "bench/times.h"
#include "runtime/core/threads.h"
#include "runtime/transport/tcp_mesh.h"

namespace hvd::bench {
namespace {

// --- taking turns -------------------------------------------------------------------------------

struct Row {
  const char* what;
  std::vector<std::size_t> tensors;  // ours
  std::size_t flat;                  // Gloo's
  int repeats;
  double target;  // of ours on our transport to Gloo's on its own
};

constexpr std::array kColumns{"hvd", "gloo-tcp", "gloo", "gloo-on-hvd"};

// The algorithms that are compared, and the transports that they run on: our pipeline and Gloo's
// allreduce, each on our transport and on Gloo's.
struct Sides {
  std::unique_ptr<runtime::World> hvd;
  std::unique_ptr<runtime::World> hvd_on_stock;
  std::shared_ptr<gloo::Context> gloo;
  std::unique_ptr<runtime::TcpMesh> mesh;
  std::shared_ptr<gloo::Context> gloo_on_ours;
};

void compare(Ranks& ranks, const Sides& sides, const Row& row) {
  std::array<std::function<void()>, kColumns.size()> work;
  std::list<Tensors> tensors;
  std::list<Flat> flats;
  const auto ours = [&](const std::unique_ptr<runtime::World>& world) -> std::function<void()> {
    if (!world) return {};
    return [&on = tensors.emplace_back(*world, row.what, row.tensors)] { on.allreduce(); };
  };
  const auto flat = [&](const std::shared_ptr<gloo::Context>& context) -> std::function<void()> {
    if (!context) return {};
    return [&on = flats.emplace_back(context, row.flat)] { on.allreduce(); };
  };
  work = {ours(sides.hvd), ours(sides.hvd_on_stock), flat(sides.gloo), flat(sides.gloo_on_ours)};
  std::array<std::vector<double>, kColumns.size()> times;
  for (int i = -3; i < row.repeats; ++i) {  // the first three fill caches of all kinds
    for (std::size_t column = 0; column < work.size(); ++column) {
      if (!work.at(column)) continue;
      ranks.meet();
      const double taken = milliseconds(work.at(column));
      if (i >= 0) times.at(column).push_back(taken);
    }
  }
  if (ranks.rank() != 0) return;
  std::printf("%-36s", row.what);
  for (const auto& column : times) {
    if (column.empty()) {
      std::printf(" %11s", "-");
    } else {
      std::printf(" %11.3f", median(column));
    }
  }
  if (!times[0].empty() && !times[2].empty()) {
    const double ratio = median(times[0]) / median(times[2]);
    std::printf(" %7.2f  at most %.1f%s", ratio, row.target,
                ratio <= row.target ? "" : "  <-- missed");
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::unique_ptr<runtime::World> form_world(Ranks& ranks, const Token& token,
                                           runtime::Transport transport) {
  std::vector<runtime::Member> members;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    members.push_back({cat("localhost#", rank), "localhost", "127.0.0.1"});
  }
  runtime::WorldSpec spec(ranks.rank(), members, 1, token);
  spec.config.transport = transport;
  auto world = runtime::World::create(spec, ranks);
  if (!world.ok()) give_up(world.status());
  return std::move(*world);
}

int run(int size, int rounds, std::string_view wanted, const std::string& columns) {
  Ranks ranks(size);
  const runtime::SignalShield shield;
  // A token that all processes have, without asking anybody: nobody else is here.
  const auto token = Token::from_hex(std::string(64, '5'));
  if (!token.ok()) give_up(token.status());
  const auto named = split(columns, ',');
  const auto wants = [&](std::string_view column) {
    return columns.empty() || std::find(named.begin(), named.end(), column) != named.end();
  };
  Sides sides;
  if (wants(kColumns[0])) sides.hvd = form_world(ranks, *token, runtime::Transport::hvd);
  if (wants(kColumns[1]))
    sides.hvd_on_stock = form_world(ranks, *token, runtime::Transport::gloo_tcp);
  if (wants(kColumns[2])) sides.gloo = stock_gloo(ranks.rank(), size, "127.0.0.1", ranks);
  if (wants(kColumns[3])) {
    auto mesh = runtime::TcpMesh::create({{ranks.rank(), size, "127.0.0.1", 1, *token}});
    if (!mesh.ok()) give_up(mesh.status());
    sides.mesh = std::move(*mesh);
    const auto addresses = ranks.exchange(sides.mesh->address(), kNever);
    if (!addresses.ok()) give_up(addresses.status());
    if (const Status connected = sides.mesh->connect(*addresses); !connected.ok())
      give_up(connected);
    sides.gloo_on_ours = gloo_context(ranks.rank(), size, sides.mesh->shared_transport(), nullptr);
  }
  if (ranks.rank() == 0) {
    std::printf("%-36s", cat(size, " processes; medians in ms").c_str());
    for (const auto* const column : kColumns) std::printf(" %11s", column);
    std::printf(" %7s\n", "ratio");
  }
  const auto resnet = resnet50_sizes();
  std::size_t all = 0;
  for (const auto elements : resnet) all += elements;
  const Row rows[] = {
      {"161 tensors, 102 MB; one flat", resnet, all, 21, 1.1},
      {"1,000 tensors of 1 KB; one of 1 MB", std::vector<std::size_t>(1000, 256), 256'000, 51, 3},
      {"one tensor of 4 KB; the same", {1024}, 1024, 201, 2},
      {"one tensor of 1 MB; the same", {262'144}, 262'144, 51, 2},
      {"one tensor of 16 MB; the same", {4'194'304}, 4'194'304, 21, 1.1},
      {"one tensor of 64 MB; the same", {16'777'216}, 16'777'216, 11, 1.1},
  };
  for (int round = 0; round < rounds; ++round) {
    for (const auto& row : rows) {
      if (std::string_view(row.what).find(wanted) != std::string_view::npos) {
        compare(ranks, sides, row);
      }
    }
  }
  for (const auto* const world : {&sides.hvd, &sides.hvd_on_stock}) {
    if (!*world) continue;
    const auto left = (*world)->shutdown(Clock::now() + std::chrono::seconds(60));
    if (!left.ok()) give_up(left.status);
  }
  return 0;
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 4;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  return hvd::bench::run(size, rounds, argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : "");
}
