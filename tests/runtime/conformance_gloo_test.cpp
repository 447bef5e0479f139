// The conformance tables over the data connections, of both transports.
#include "tests/runtime/conformance.h"
#include "tests/runtime/gloo_ranks.h"

namespace hvd::test {
namespace {

Backend mesh_backend(runtime::Transport transport) {
  return {
      transport_name(transport), false,
      [transport](int size, const std::function<void(int, RankUnderTest&)>& body) {
        on_gloo_ranks(transport, size, body, {kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8});
      }};
}

// The same inside hosts and between them: `hosts[r]` is where rank r is. With so little memory that
// the sizes of the tables need many windows; hosts in `without` have none.
Backend hierarchical_backend(const std::string& name, const std::vector<int>& hosts,
                             const std::set<int>& without = {}) {
  return {
      name, false, [=](int size, const std::function<void(int, RankUnderTest&)>& body) {
        runtime::GlooOperationOptions options{kLong, kLittleBytes, kLittleBytes, kLittleBytes / 8};
        options.hosts.assign(hosts.begin(), hosts.begin() + size);
        on_gloo_hosts(runtime::Transport::hvd, body, options, 4096, without);
      }};
}

INSTANTIATE_TEST_SUITE_P(Hvd, Conformance, every_table(mesh_backend(runtime::Transport::hvd)),
                         table_name);
INSTANTIATE_TEST_SUITE_P(GlooTcp, Conformance,
                         every_table(mesh_backend(runtime::Transport::gloo_tcp)), table_name);
// Of eight ranks 4 and 4, of four 3 and 1; four pairs, and two; of eight ranks hosts of 1, 4 and 3,
// and not one after the other.
INSTANTIATE_TEST_SUITE_P(HvdOnTwoHosts, Conformance,
                         tables_by_hosts(hierarchical_backend("two", {0, 0, 0, 1, 0, 1, 1, 1})),
                         table_name);
INSTANTIATE_TEST_SUITE_P(HvdOnPairsOfRanks, Conformance,
                         tables_by_hosts(hierarchical_backend("pairs", {0, 0, 1, 1, 2, 2, 3, 3})),
                         table_name);
INSTANTIATE_TEST_SUITE_P(HvdOnUnevenHostsSomeWithoutMemory, Conformance,
                         tables_by_hosts(hierarchical_backend("uneven", {0, 1, 1, 2, 2, 1, 1, 2},
                                                              {1})),
                         table_name);
INSTANTIATE_TEST_SUITE_P(HvdOnPairsWithoutMemory, Conformance,
                         tables_by_hosts(hierarchical_backend("messages", {0, 0, 1, 1, 2, 2, 3, 3},
                                                              {0, 1, 2, 3})),
                         table_name);
}  // namespace
}  // namespace hvd::test
