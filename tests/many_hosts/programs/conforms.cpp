// A worker that runs a brief form of the conformance tables (tests/runtime/ops/conformance.h)
// through the public API: every collective, some types (--brief: only float; --every-type) and
// sizes, in place and not, with factors and compression; in the world, in a set that spans hosts
// and has gaps, and in one of neighbours. Says "ok RANK, memory M, bits B" at its end: whether it
// has memory that it shares, and a digest of a sum whose rounding tells the order of its additions.
// Errors are printed on stderr.
#include <cstdio>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <random>

#include <hvd/adapter.h>
#include <hvd/hvd.h>

#include "tests/runtime/ops/conformance.h"

namespace {

using hvd::test::Call;
using hvd::test::RankUnderTest;

class Worker final : public RankUnderTest {
 public:
  explicit Worker(const std::vector<std::vector<int>>& sets) {
    for (const auto& ranks : sets) sets_.emplace(ranks, hvd::add_process_set(ranks));
  }

  hvd::Status run(const hvd::runtime::Response& response, const hvd::runtime::Group& group,
                  std::vector<hvd::runtime::Entry>& entries,
                  std::vector<hvd::runtime::Outcome>& outcomes) override {
    std::vector<std::promise<void>> ends(entries.size());
    std::vector<hvd::adapter::Submission> works;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      works.push_back(submission(response.kind, group, entries[i]));
      works.back().done = [&end = ends[i],
                           &outcome = outcomes[i]](const hvd::adapter::Completion& completion) {
        if (completion.error) outcome.failure = text_of(completion.error);
        outcome.output = completion.output;
        outcome.shape = completion.shape;
        outcome.received_splits = completion.received_splits;
        end.set_value();
      };
    }
    if (works.size() == 1) {
      hvd::adapter::submit(std::move(works.front()));
    } else {
      hvd::adapter::submit_group("together", std::move(works));
    }
    for (auto& end : ends) end.get_future().wait();
    return {};
  }

 private:
  static hvd::Status text_of(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& caught) {
      return {hvd::Code::internal, caught.what()};
    }
  }

  hvd::adapter::Submission submission(hvd::runtime::Kind kind, const hvd::runtime::Group& group,
                                      const hvd::runtime::Entry& entry) const {
    const auto& request = entry.request;
    hvd::adapter::Submission work;
    work.collective = kind;
    work.name = request.name;
    work.input = {entry.input, request.shape, request.type};
    work.output = {entry.output, request.shape, request.type};
    work.allocate = entry.allocate;
    if (!work.allocate && kind != hvd::Collective::barrier) {
      // Memory of the right size, which the table has made.
      work.allocate = [output = entry.output](const std::vector<std::int64_t>& /*shape*/) {
        return output;
      };
    }
    work.op = request.op;
    work.prescale = request.prescale;
    work.postscale = request.postscale;
    work.compression = request.compression;
    work.root = request.root;
    work.splits = entry.splits;
    if (group.size() < hvd::size()) work.process_set = sets_.at(group.ranks);
    return work;
  }

  std::map<std::vector<int>, hvd::ProcessSet> sets_;
};

constexpr hvd::Collective kKinds[] = {hvd::Collective::allreduce, hvd::Collective::reducescatter,
                                      hvd::Collective::allgather, hvd::Collective::broadcast,
                                      hvd::Collective::alltoall,  hvd::Collective::barrier};
constexpr hvd::DataType kSomeTypes[] = {hvd::DataType::uint8, hvd::DataType::int64,
                                        hvd::DataType::float16, hvd::DataType::float32};

enum class Types { usual, some, all };

std::vector<hvd::DataType> types_of(Types types) {
  if (types == Types::usual) return {hvd::DataType::float32};
  if (types == Types::some) return {std::begin(kSomeTypes), std::end(kSomeTypes)};
  return {std::begin(hvd::test::kAllTypes), std::end(hvd::test::kAllTypes)};
}

bool reduces(hvd::Collective kind) {
  return kind == hvd::Collective::allreduce || kind == hvd::Collective::reducescatter;
}

// A few bytes, several tensors at once, and so much that everything is done in many pieces.
std::vector<std::vector<std::vector<std::int64_t>>> shapes_for(hvd::DataType type) {
  std::vector<std::vector<std::vector<std::int64_t>>> all{{{13}}, {{701, 3}, {5, 0}, {1}, {40, 3}}};
  if (type == hvd::DataType::float32) all.push_back({{100'003}, {3}});
  return all;
}

void run_kind(Worker& self, Call call, Types types) {
  if (call.kind == hvd::Collective::barrier) {
    call.shapes = {{0}};
    hvd::test::run_and_check(self, hvd::rank(), call);
    return;
  }
  for (const auto type : types_of(types)) {
    const bool usual = type == hvd::DataType::float32;
    call.type = type;
    const bool several =
        reduces(call.kind) && (types == Types::all || (usual && types == Types::some));
    for (const auto op : {hvd::Sum, hvd::Average, hvd::Max, hvd::Min, hvd::Product, hvd::Adasum}) {
      if (op != hvd::Sum && !several) continue;
      const bool adasum = op == hvd::Adasum;
      if (adasum && (call.kind != hvd::Collective::allreduce || !usual)) continue;
      call.op = op;
      call.tolerance = adasum ? 1e-5 : 0;
      for (const auto& shapes : shapes_for(type)) {
        call.shapes = shapes;
        // The reference is slow for large tensors.
        const bool much = shapes.front().front() > 100'000;
        if (much && op != hvd::Sum) continue;
        for (const bool in_place : {false, true}) {
          if (in_place ? !usual : much) continue;
          call.in_place = in_place;
          hvd::test::run_and_check(self, hvd::rank(), call);
        }
      }
    }
  }
  call.type = hvd::DataType::float32;
  call.shapes = {{1'201}, {5, 3}};
  call.in_place = false;
  call.tolerance = 0;
  if (call.kind == hvd::Collective::alltoall) {
    call.uneven = true;
    hvd::test::run_and_check(self, hvd::rank(), call);
  }
  if (!reduces(call.kind)) return;
  call.op = hvd::Sum;
  call.prescale = 2;
  call.postscale = 0.5;
  hvd::test::run_and_check(self, hvd::rank(), call);
  call.compression = hvd::Compression::float16;
  hvd::test::run_and_check(self, hvd::rank(), call);
}

bool shares_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:hvd ") != std::string::npos) return true;
  }
  return false;
}

std::uint64_t digest_of_sum() {
  std::mt19937 random(static_cast<unsigned>(hvd::rank()));
  std::uniform_real_distribution<float> any(-1, 1);
  std::vector<float> data(300'007);
  for (auto& value : data) value = any(random);
  hvd::allreduce(data, {.name = "digest", .op = hvd::Sum});
  std::uint64_t digest = 14695981039346656037U;
  for (const float value : data) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 1099511628211U;
  }
  return digest;
}

int conform(Types types) {
  hvd::init({.dynamic_process_sets = true});
  const auto world = hvd::ProcessSet().ranks();
  // One set without rank 0, on several hosts; one of the first two ranks, which share a host.
  const std::vector<int> gaps =
      hvd::size() == 8 ? std::vector<int>{1, 3, 4, 6, 7} : std::vector<int>{1, 2, 3};
  Worker self({gaps, {0, 1}});
  for (const auto& ranks : {world, gaps, std::vector<int>{0, 1}}) {
    if (std::find(ranks.begin(), ranks.end(), hvd::rank()) == ranks.end()) continue;
    for (const auto kind : kKinds) {
      Call call;
      call.kind = kind;
      call.ranks = ranks;
      call.root = ranks.back();
      run_kind(self, call, types);
      if (::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) return 1;
    }
  }
  const auto digest = digest_of_sum();
  std::printf("ok %d, memory %d, bits %016llx\n", hvd::rank(), shares_memory() ? 1 : 0,
              static_cast<unsigned long long>(digest));
  std::fflush(stdout);
  hvd::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    const std::string_view which = argc > 1 ? argv[1] : "";
    return conform(which == "--brief"        ? Types::usual
                   : which == "--every-type" ? Types::all
                                             : Types::some);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
