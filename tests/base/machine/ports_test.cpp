#include "base/machine/ports.h"

#include <gtest/gtest.h>
#include <set>

namespace hvd {
namespace {

TEST(Ports, ReadsTheKernelsRange) {
  EXPECT_EQ(parse_ephemeral_ports("32768\t60999\n"), (PortRange{32768, 60999}));
  EXPECT_EQ(parse_ephemeral_ports("1 65535"), (PortRange{1, 65535}));
  for (const char* const wrong : {"", "32768", "60999 32768", "a b", "1 65536", "-1 5"}) {
    EXPECT_FALSE(parse_ephemeral_ports(wrong)) << wrong;
  }
}

TEST(Ports, LooksInTheLargerPartOutsideOfTheRange) {
  EXPECT_EQ(ports_outside({32768, 60999}), (PortRange{10000, 32767}));
  EXPECT_EQ(ports_outside({10000, 20000}), (PortRange{20001, 65535}));
  EXPECT_EQ(ports_outside({1024, 60999}), (PortRange{61000, 65535}));
  EXPECT_EQ(ports_outside({15000, 65535}), (PortRange{10000, 14999}));
  EXPECT_EQ(ports_outside({1024, 9999}), (PortRange{10000, 65535}));
  EXPECT_EQ(ports_outside({1024, 5000}), (PortRange{10000, 65535}));
  EXPECT_EQ(ports_outside({1024, 65535}), std::nullopt);
  EXPECT_EQ(ports_outside({10100, 65500}), std::nullopt) << "too few are left on either side";
}

TEST(Ports, FindsOneOutsideOfTheRange) {
  std::set<std::uint16_t> found;
  for (int i = 0; i < 200; ++i) {
    const std::uint16_t port = find_port({32768, 60999}, [](std::uint16_t) { return true; });
    EXPECT_GE(port, 10000);
    EXPECT_LE(port, 32767);
    found.insert(port);
  }
  EXPECT_GT(found.size(), 150U) << "two processes that look at the same time find different ports";
}

TEST(Ports, TakesNoneThatSomebodyHas) {
  const auto port = find_port({32768, 60999}, [](std::uint16_t tried) { return tried % 16 == 3; });
  EXPECT_EQ(port % 16, 3);
  EXPECT_EQ(find_port({32768, 60999}, [](std::uint16_t) { return false; }), 0);
  EXPECT_EQ(find_port({1024, 65535}, [](std::uint16_t) { return true; }), 0);
}

}  // namespace
}  // namespace hvd
