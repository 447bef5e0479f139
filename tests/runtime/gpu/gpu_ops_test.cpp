// The operations of a GPU, on GPUs in the memory of the host: everything but the device itself and
// the world around them (gpu_worlds_test.cpp).
#include <algorithm>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/runtime/gpu/gpu_ranks.h"
#include "tests/runtime/gpu/host_gpu.h"

namespace hvd::test {
namespace {

// `packed_bytes`: what is larger is not packed.
Backend host_gpu_backend(std::size_t packed_bytes, int lanes) {
  return {"gpu", false, [=](RanksAs /*threads*/, int size, const Backend::Body& body) {
            Fabric fabric;
            on_gpu_ranks(
                size,
                [&](int /*rank*/) {
                  return GpuRankOptions{open_host_gpus(fabric), lanes, {packed_bytes}};
                },
                body);
            // They have left in peace.
            EXPECT_EQ(fabric.living, 0);
            EXPECT_EQ(fabric.aborted, 0);
          }};
}

// Eight ranks go no other way than four; three are a part of these.
std::vector<Table> tables_of(const Backend& backend) {
  auto tables = every_table(backend, RanksAs::threads);
  std::erase_if(tables, [](const Table& table) { return table.size > 4 || table.size == 3; });
  return tables;
}

HVD_CONFORMANCE(Gpu, tables_of(host_gpu_backend(kLittleBytes, 1)));

// Allreduces on hosts of so many ranks each, or fewer on the last one: then, and on one host alone,
// nothing goes by hosts.
Backend by_hosts_backend(const std::string& name, int ranks_of_a_host) {
  return {name, false, [=](RanksAs /*threads*/, int size, const Backend::Body& body) {
            Fabric fabric;
            std::vector<int> hosts;
            for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / ranks_of_a_host);
            on_gpu_ranks(
                size,
                [&](int /*rank*/) {
                  return GpuRankOptions{open_host_gpus(fabric), 1, {kLittleBytes}, hosts};
                },
                body);
            EXPECT_EQ(fabric.living, 0);
            EXPECT_EQ(fabric.aborted, 0);
            if (size % ranks_of_a_host != 0) {
              EXPECT_EQ(fabric.scattered, 0);
            }
          }};
}

std::vector<Table> allreduces_of(const std::vector<std::pair<Backend, int>>& backends) {
  std::vector<Table> tables;
  for (const auto& [backend, size] : backends) {
    auto all = every_table(backend, RanksAs::threads);
    std::erase_if(all, [size = size](const Table& table) {
      return table.size != size || table.kind != runtime::Kind::allreduce;
    });
    tables.insert(tables.end(), all.begin(), all.end());
  }
  return tables;
}

std::string name_with_hosts(const ::testing::TestParamInfo<Table>& info) {
  auto name = cat(info.param.backend.name, " ", table_name(info));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(GpuByHosts, Conformance,
                         ::testing::ValuesIn(allreduces_of({{by_hosts_backend("2 of 2", 2), 4}})),
                         name_with_hosts);
INSTANTIATE_TEST_SUITE_P(NightlyGpuByHosts, Conformance,
                         ::testing::ValuesIn(allreduces_of({{by_hosts_backend("2 of 4", 4), 8},
                                                            {by_hosts_backend("4 of 2", 2), 8},
                                                            {by_hosts_backend("3 and 1", 3), 4},
                                                            {by_hosts_backend("one", 8), 4}})),
                         name_with_hosts);

}  // namespace
}  // namespace hvd::test
