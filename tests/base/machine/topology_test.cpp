#include "base/machine/topology.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <set>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

using Numbers = std::vector<int>;

// Two nodes of two cores, each of two processors, numbered as on most machines: the second
// processors of all cores after the first ones.
std::vector<Processor> two_nodes() {
  return {{0, 0, 0}, {4, 0, 0}, {1, 1, 0}, {5, 1, 0}, {2, 2, 1}, {6, 2, 1}, {3, 3, 1}, {7, 3, 1}};
}

TEST(Topology, CoresAreDividedAmongTheWorkersOfAHost) {
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 0, 1), Numbers({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 0, 2), Numbers({0, 1, 4, 5}));
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 1, 2), Numbers({2, 3, 6, 7}));
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 0, 3), Numbers({0, 4}));
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 1, 3), Numbers({1, 5}));
  EXPECT_EQ(part_of(two_nodes(), Binding::cores, 2, 3), Numbers({2, 3, 6, 7}));
}

TEST(Topology, NodesAreDividedAsAWhole) {
  EXPECT_EQ(part_of(two_nodes(), Binding::numa, 0, 1), Numbers({0, 1, 2, 3, 4, 5, 6, 7}));
  for (const int part : {0, 1}) {
    EXPECT_EQ(part_of(two_nodes(), Binding::numa, part, 4), Numbers({0, 1, 4, 5}));
    EXPECT_EQ(part_of(two_nodes(), Binding::numa, part + 2, 4), Numbers({2, 3, 6, 7}));
  }
}

TEST(Topology, EveryPartHasACoreAndEveryCoreIsInAPart) {
  for (int parts = 1; parts <= 9; ++parts) {
    std::set<int> all;
    for (int part = 0; part < parts; ++part) {
      const auto own = part_of(two_nodes(), Binding::cores, part, parts);
      EXPECT_GE(own.size(), 2U) << part << " of " << parts;
      all.insert(own.begin(), own.end());
    }
    EXPECT_EQ(all.size(), 8U) << parts;
  }
}

TEST(Topology, WithoutABindingOrProcessorsThereIsNothingToBindTo) {
  EXPECT_EQ(part_of(two_nodes(), Binding::none, 0, 2), Numbers());
  EXPECT_EQ(part_of({}, Binding::cores, 0, 2), Numbers());
  EXPECT_EQ(part_of({}, Binding::numa, 1, 2), Numbers());
}

TEST(Topology, ListsAreThoseOfTheKernel) {
  EXPECT_EQ(processors_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(processors_text({}), "");
  EXPECT_EQ(read_processors("0-3,8,10-11"), Numbers({0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(read_processors(""), Numbers());
  EXPECT_EQ(read_processors("x,-1,3-,2,5-4,0-99999999"), Numbers({2}));
}

class DescribedMachine : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const auto path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::vector<Processor> processors() const { return usable_processors(folder_.path()); }

 private:
  test::TemporaryDirectory folder_;
};

TEST_F(DescribedMachine, NodesAndCoresAreReadFromTheSystem) {
  const auto all = processors();
  ASSERT_FALSE(all.empty());
  const int first = all.front().number;
  const int last = all.back().number;
  write("node/node3/cpulist", cat(first));
  write("node/node1/cpulist", cat(last));
  write("node/has_cpu", "0");
  write(cat("cpu/cpu", last, "/topology/thread_siblings_list"), cat(last, ",", last + 64));

  const auto described = processors();
  ASSERT_EQ(described.size(), all.size());
  if (first == last) GTEST_SKIP() << "this machine has one processor: there is no order to look at";
  EXPECT_EQ(described.back().number, first);
  EXPECT_EQ(described.back().node, 3);
}

TEST_F(DescribedMachine, WithoutADescriptionEachProcessorIsACoreOfOneNode) {
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  const auto all = processors();
  EXPECT_EQ(all.size(), static_cast<std::size_t>(CPU_COUNT(&set)));
  for (const auto& one : all) {
    EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(one.number), &set));
    EXPECT_EQ(one.core, one.number);
    EXPECT_EQ(one.node, 0);
  }
}

}  // namespace
}  // namespace hvd
