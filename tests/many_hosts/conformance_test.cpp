// Every collective between hosts, on whatever carries the bytes: a real job of workers that check
// what they get (programs/conforms.cpp).
#include <set>

#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

struct Layout {
  const char* name;
  int hosts;
  int workers;
  const char* list;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.name; }

// The report of each worker at its end.
struct Said {
  std::set<std::string> memory;
  std::set<std::string> bits;
};

class ConformanceOnHostsTest : public ManyHostsTest, public testing::WithParamInterface<Layout> {
 protected:
  Said said_on(const Words& flags, const Words& arguments = {}) {
    const Layout& layout = GetParam();
    Words words{"-np", std::to_string(layout.workers), "-H", layout.list};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("./conforms");
    words.insert(words.end(), arguments.begin(), arguments.end());
    const ExitStatus end = run_job(words);
    EXPECT_EQ(end.code, 0) << join(flags, " ") << end.out << end.err;
    Said said;
    for (int rank = 0; rank < layout.workers; ++rank) {
      const auto lines = lines_of_rank(end.out, rank);
      const auto parts = split(lines.empty() ? "" : lines.back(), ',');
      if (parts.size() != 3 || parts.front() != cat("ok ", rank)) {
        ADD_FAILURE() << "rank " << rank << " is not ok with " << join(flags, " ") << ": "
                      << end.out << end.err;
        continue;
      }
      said.memory.insert(parts[1]);
      said.bits.insert(parts[2]);
    }
    EXPECT_EQ(said.bits.size(), 1U) << "not the same bits on all ranks: " << end.out;
    return said;
  }
};

TEST_P(ConformanceOnHostsTest, EveryCollectiveIsRightOnWhateverCarriesTheBytes) {
  make_bed({.hosts = GetParam().hosts});
  place({"conforms"});
  const std::set<std::string> nobody{" memory 0"};
  // It takes milliseconds for each call where workers share cores.
  const Said stock = said_on({"--transport", "gloo-tcp", "--no-shared-memory"}, {"--brief"});
  EXPECT_EQ(stock.memory, nobody);
  const Said own = said_on({"--no-shared-memory"});
  EXPECT_EQ(own.memory, nobody);
  EXPECT_EQ(own.bits, stock.bits) << "the algorithms are the same";
  const Said shared = said_on({"--no-hierarchical-allreduce", "--no-hierarchical-allgather"});
  EXPECT_TRUE(shared.memory.contains(" memory 1"));
  EXPECT_EQ(shared.bits, own.bits) << "between hosts it makes no difference";
  const Said by_hosts = said_on({});
  EXPECT_TRUE(by_hosts.memory.contains(" memory 1"));
  EXPECT_NE(by_hosts.bits, own.bits) << "it did not go by hosts";
}

std::string name_of_layout(const testing::TestParamInfo<Layout>& which) { return which.param.name; }

INSTANTIATE_TEST_SUITE_P(On, ConformanceOnHostsTest,
                         testing::Values(Layout{"HostsOfThreeAndOne", 2, 4, "h1:3,h2:1"}),
                         name_of_layout);
INSTANTIATE_TEST_SUITE_P(NightlyOn, ConformanceOnHostsTest,
                         testing::Values(Layout{"TwoHostsOfFour", 2, 8, "h1:4,h2:4"},
                                         Layout{"FourHostsOfTwo", 4, 8, "h1:2,h2:2,h3:2,h4:2"}),
                         name_of_layout);

}  // namespace
}  // namespace hvd::test
