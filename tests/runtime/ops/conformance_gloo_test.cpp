// The conformance tables over the data connections, of both transports.
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/runtime/ops/conformance.h"
#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {
namespace {

Backend mesh_backend(runtime::Transport transport) {
  return {transport_name(transport), false,
          [transport](RanksAs how, int size, const Backend::Body& body) {
            on_gloo_ranks(transport, size, body,
                          {kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8}, how);
          }};
}

// The same inside hosts and between them: `hosts[r]` is where rank r is. With so little memory that
// the sizes of the tables need many chunks; hosts in `without` have none.
Backend hierarchical_backend(const std::string& name, const std::vector<int>& hosts,
                             const std::set<int>& without = {}, int sockets = 1) {
  return {
      name, false, [=](RanksAs how, int size, const Backend::Body& body) {
        const MeshSockets several(sockets, 1'000);
        runtime::GlooOperationOptions options{kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8};
        options.hosts.assign(hosts.begin(), hosts.begin() + size);
        on_gloo_hosts(runtime::Transport::hvd, body, options, 4096, without, how);
      }};
}

// The same with links that make four hosts and more take one algorithm for most sizes of the
// tables: halving up to some hundred kilobytes, and doubling for all.
constexpr runtime::LinkSpeed kHalvingLinks{std::chrono::microseconds(1), 1};
constexpr runtime::LinkSpeed kDoublingLinks{std::chrono::seconds(10), 1'000'000};
constexpr runtime::LinkSpeed kDirectLinks{std::chrono::seconds(10), 1};
Backend links_backend(const std::string& name, const runtime::LinkSpeed& links,
                      const std::vector<int>& hosts) {
  return {
      name, false, [=](RanksAs how, int size, const Backend::Body& body) {
        runtime::GlooOperationOptions options{kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8};
        options.hosts.assign(hosts.begin(), hosts.begin() + size);
        options.links = std::make_shared<runtime::LinkMeter>(links);
        on_gloo_hosts(runtime::Transport::hvd, body, options, 4096, {}, how);
      }};
}

// Of eight ranks 4 and 4, of four 3 and 1; four pairs, and two; of eight ranks hosts of 1, 4 and 3,
// and not one after the other.
Backend two_hosts_backend() { return hierarchical_backend("two", {0, 0, 0, 1, 0, 1, 1, 1}); }
Backend pairs_backend(const std::set<int>& without = {}, int sockets = 1) {
  return hierarchical_backend("pairs", {0, 0, 1, 1, 2, 2, 3, 3}, without, sockets);
}
Backend uneven_backend(const std::set<int>& without) {
  return hierarchical_backend("uneven", {0, 1, 1, 2, 2, 1, 1, 2}, without);
}

// Several sockets for each pair of ranks: with so little cut into parts that nearly everything is,
// or as it is by default, so that of what is passed on in pieces the last one travels whole.
Backend sockets_backend(int sockets, std::size_t striped_from, std::size_t little_bytes) {
  return {cat(sockets, " sockets"), false, [=](RanksAs how, int size, const Backend::Body& body) {
            const MeshSockets several(sockets, striped_from);
            on_gloo_ranks(runtime::Transport::hvd, size, body,
                          {kLong, little_bytes, little_bytes, little_bytes / 8}, how);
          }};
}
Backend many_parts_backend(int sockets) { return sockets_backend(sockets, 16, kLittleBytes / 16); }
Backend large_parts_backend(int sockets) {
  return sockets_backend(sockets, runtime::Messenger::Options().striped_from, kLittleBytes);
}

HVD_CONFORMANCE(Hvd, every_table(mesh_backend(runtime::Transport::hvd)));
HVD_CONFORMANCE(HvdInProcesses,
                every_table(mesh_backend(runtime::Transport::hvd), RanksAs::processes));
HVD_CONFORMANCE(HvdAlongTrees, values_along_trees(mesh_backend(runtime::Transport::hvd)));
// Stock Gloo, which is there to be compared with, takes ten times as long.
INSTANTIATE_TEST_SUITE_P(
    NightlyGlooTcp, Conformance,
    ::testing::ValuesIn(every_table(mesh_backend(runtime::Transport::gloo_tcp))), table_name);
INSTANTIATE_TEST_SUITE_P(NightlyGlooTcpInProcesses, Conformance,
                         ::testing::ValuesIn(values_of_four(
                             mesh_backend(runtime::Transport::gloo_tcp), RanksAs::processes)),
                         table_name);
HVD_CONFORMANCE(HvdOnTwoSockets, values_of_four(many_parts_backend(2)));
HVD_CONFORMANCE(HvdOnFourSockets, values_of_several(large_parts_backend(4)));
HVD_CONFORMANCE(HvdOnTwoHosts, tables_by_hosts(two_hosts_backend()));
HVD_CONFORMANCE(HvdOnTwoHostsInProcesses, tables_by_hosts(two_hosts_backend(), RanksAs::processes));
HVD_CONFORMANCE(HvdOnPairsOfRanks, tables_by_hosts(pairs_backend()));
HVD_CONFORMANCE(HvdOnPairsOfRanksAlongTrees, values_along_trees(pairs_backend()));
HVD_CONFORMANCE(HvdByHalving, values_of_four(links_backend("halving", kHalvingLinks, {0, 1, 2, 3}),
                                             RanksAs::threads));
HVD_CONFORMANCE(HvdByDoubling,
                values_of_four(links_backend("doubling", kDoublingLinks, {0, 1, 2, 3}),
                               RanksAs::threads));
HVD_CONFORMANCE(HvdDirectly, values_of_four(links_backend("direct", kDirectLinks, {0, 1, 2, 3}),
                                            RanksAs::threads));
HVD_CONFORMANCE(HvdOnPairsDirectly, tables_by_hosts(links_backend("pairs directly", kDirectLinks,
                                                                  {0, 0, 1, 1, 2, 2, 3, 3})));
HVD_CONFORMANCE(HvdOnPairsByHalving,
                tables_by_hosts(links_backend("pairs by halving", kHalvingLinks,
                                              {0, 0, 1, 1, 2, 2, 3, 3})));
HVD_CONFORMANCE(HvdOnUnevenHostsSomeWithoutMemory, tables_by_hosts(uneven_backend({1})));
HVD_CONFORMANCE(HvdOnPairsWithoutMemoryOnThreeSockets,
                tables_by_hosts(pairs_backend({0, 1, 2, 3}, 3)));

}  // namespace
}  // namespace hvd::test
