#include "bench/collectives/worlds.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/text.h"

namespace hvd::bench {

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::_Exit(1);
}

std::unique_ptr<runtime::World> form_world(Ranks& ranks, std::uint64_t generation,
                                           const runtime::Config& config) {
  std::vector<runtime::Member> members;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    members.push_back({cat("localhost#", rank), "localhost", "127.0.0.1"});
  }
  runtime::WorldSpec spec(ranks.rank(), std::move(members), generation,
                          *Token::from_hex(std::string(64, '5')));
  spec.config = config;
  auto world = runtime::World::create(spec, ranks);
  check(world.status());
  return std::move(*world);
}

std::future<runtime::Failure> start_allreduce(runtime::World& world, std::vector<float>& data) {
  auto done = std::make_shared<std::promise<runtime::Failure>>();
  runtime::Entry entry;
  entry.request.name = "gradient";
  entry.request.kind = runtime::Kind::allreduce;
  entry.request.type = DataType::float32;
  entry.request.op = ReduceOp::max;
  entry.request.shape = {static_cast<std::int64_t>(data.size())};
  entry.input = entry.output = data.data();
  entry.done = [done](const runtime::Outcome& outcome) { done->set_value(outcome.failure); };
  auto result = done->get_future();
  if (runtime::Failure refused = world.enqueue(std::move(entry)); !refused.ok()) {
    std::promise<runtime::Failure> at_once;
    at_once.set_value(std::move(refused));
    return at_once.get_future();
  }
  return result;
}

void print_tail_header(const std::string& title, int late_ms) {
  std::printf("%-36s %9s %9s %9s %9s %9s\n", title.c_str(), "median", "90 %", "99 %", "worst",
              cat(">= ", late_ms, " ms").c_str());
  std::fflush(stdout);
}

void print_tail(const char* what, std::vector<double> times, int late_ms) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  const auto late =
      std::count_if(times.begin(), times.end(), [late_ms](double ms) { return ms >= late_ms; });
  std::printf("%-36s %9.2f %9.2f %9.2f %9.2f %9td\n", what, at(0.5), at(0.9), at(0.99), at(1),
              late);
  std::fflush(stdout);
}

}  // namespace hvd::bench
