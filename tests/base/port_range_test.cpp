#include "base/port_range.h"

#include <gtest/gtest.h>
#include <set>
#include <vector>

#include "base/machine/ports.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd {
namespace {

TEST(PortRange, IsTwoPortsOfWhichTheFirstIsNotTheLargerOne) {
  EXPECT_EQ(parse_port_range("40000-40999"), (PortRange{40000, 40999}));
  EXPECT_EQ(parse_port_range("1-65535"), (PortRange{1, 65535}));
  EXPECT_EQ(parse_port_range("7000-7000"), (PortRange{7000, 7000}));
  EXPECT_EQ(parse_port_range("40000-40999")->to_string(), "40000-40999");
  EXPECT_EQ(parse_port_range("40000-40999")->size(), 1000);
  for (const char* const wrong :
       {"", "-", "40000", "40000-", "-40000", "0-10", "40999-40000", "40000-65536", "a-b",
        "40000:40999", "40000-40999-41000", "4e4-5e4"}) {
    EXPECT_FALSE(parse_port_range(wrong)) << wrong;
  }
}

TEST(PortRange, EveryPortIsTriedOnceFromARandomOneOn) {
  const PortRange range{40000, 40009};
  std::set<std::uint16_t> first;
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint16_t> tried;
    const auto port = take_port(range, 0, "here", [&](std::uint16_t candidate) {
      tried.push_back(candidate);
      return Status(Code::already_exists, "taken");
    });
    EXPECT_FALSE(port.ok());
    EXPECT_EQ(std::set(tried.begin(), tried.end()).size(), 10U);
    EXPECT_EQ(tried.size(), 10U);
    first.insert(tried.front());
  }
  EXPECT_GT(first.size(), 5U) << "two processes that look at the same time begin elsewhere";
}

TEST(PortRange, ThePortThatAnotherProgramWillNeedIsLeftToIt) {
  std::set<std::uint16_t> tried;
  const auto port = take_port({40000, 40002}, 40001, "here", [&](std::uint16_t candidate) {
    tried.insert(candidate);
    return Status(Code::already_exists, "taken");
  });
  EXPECT_FALSE(port.ok());
  EXPECT_EQ(tried, (std::set<std::uint16_t>{40000, 40002}));
}

TEST(PortRange, AnErrorThatIsNotOfThePortEndsTheSearch) {
  int tries = 0;
  const auto port = take_port({40000, 40009}, 0, "here", [&](std::uint16_t) {
    ++tries;
    return Status(Code::permission_denied, "not for you");
  });
  EXPECT_EQ(tries, 1);
  EXPECT_EQ(port.status().message(), "not for you");
}

// Ports of a range that no other program has while the test runs.
PortRange free_range(std::uint16_t size) {
  const auto outside = ports_outside(ephemeral_ports()).value_or(PortRange{10000, 65535});
  for (int first = outside.first; first + size <= outside.last; first += size) {
    bool is_free = true;
    for (int port = first; port < first + size; ++port) {
      is_free = is_free && listen_tcp({"127.0.0.1", static_cast<std::uint16_t>(port)}).ok();
    }
    if (is_free) {
      return {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(first + size - 1)};
    }
  }
  ADD_FAILURE() << "no free ports";
  return {};
}

TEST(PortRange, ListenersShareARangeUntilNoneOfItsPortsIsLeft) {
  const ListenPorts ports{free_range(4)};
  std::vector<UniqueFd> listeners;
  std::set<std::uint16_t> taken;
  for (int i = 0; i < 4; ++i) {
    auto listener = listen_tcp({"127.0.0.1", 0}, ports);
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    const auto port = local_address(listener->get())->port;
    EXPECT_TRUE(ports.range->contains(port)) << port;
    taken.insert(port);
    listeners.push_back(std::move(*listener));
  }
  EXPECT_EQ(taken.size(), 4U);

  const auto none = listen_tcp({"127.0.0.1", 0}, ports);
  EXPECT_EQ(none.status().code(), Code::resource_exhausted);
  EXPECT_EQ(none.status().message(),
            cat("listen on 127.0.0.1: all ports of --port-range ", ports.range->to_string(),
                " (4) are taken; a host needs 2 for each worker and 1 more, the host of hvdrun 2 "
                "more"));

  listeners.pop_back();
  EXPECT_TRUE(listen_tcp({"127.0.0.1", 0}, ports).ok());
}

TEST(PortRange, WithoutARangeTheKernelChooses) {
  const auto listener = listen_tcp({"127.0.0.1", 0}, ListenPorts{});
  ASSERT_TRUE(listener.ok());
  EXPECT_NE(local_address(listener->get())->port, 0);
}

TEST(PortRange, APortThatIsNamedNeedNotBeOfTheRange) {
  const auto other = local_address(listen_tcp({"127.0.0.1", 0})->get())->port;
  const auto listener = listen_tcp({"127.0.0.1", other}, ListenPorts{PortRange{1, 1}});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_EQ(local_address(listener->get())->port, other);
}

TEST(PortRange, AnAddressThatIsNotOfThisHostIsAnErrorAtOnce) {
  const auto listener = listen_tcp({"192.0.2.1", 0}, ListenPorts{free_range(4)});
  EXPECT_NE(listener.status().message().find("192.0.2.1"), std::string::npos);
  EXPECT_NE(listener.status().code(), Code::resource_exhausted);
}

}  // namespace
}  // namespace hvd
