#include "driver/ssh/algorithms.h"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "base/descriptors.h"
#include "base/text.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {
namespace {

TEST(SshAlgorithms, APrefixChangesTheDefaultList) {
  EXPECT_EQ(complete_algorithms("", "a,b"), "");
  EXPECT_EQ(complete_algorithms("x,y", "a,b"), "x,y");
  EXPECT_EQ(complete_algorithms("+x,a", "a,b"), "a,b,x");
  EXPECT_EQ(complete_algorithms("-b,x", "a,b,c"), "a,c");
  EXPECT_EQ(complete_algorithms("-a*", "a1,b,a2"), "b");
  EXPECT_EQ(complete_algorithms("^c,x", "a,b,c"), "c,x,a,b");
  EXPECT_EQ(complete_algorithms("^b?", "a,b1,b2"), "b1,b2,a");
  EXPECT_EQ(complete_algorithms("-*", "a,b"), "-*") << "nothing is left, which is an error";
}

// The lists of names that libssh offers in its first packet (RFC 4253, 7.1).
std::vector<std::string> offered_by_libssh() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd host(ends[0]);
  const SessionPtr session(ssh_new());
  ssh_options_set(session.get(), SSH_OPTIONS_HOST, "host");
  ssh_options_set(session.get(), SSH_OPTIONS_FD, &ends[1]);
  ssh_set_blocking(session.get(), 0);
  constexpr std::string_view kBanner = "SSH-2.0-test\r\n";
  EXPECT_EQ(::send(host.get(), kBanner.data(), kBanner.size(), 0), std::ssize(kBanner));

  std::string text;
  std::vector<std::string> lists;
  const TimePoint until = Clock::now() + std::chrono::seconds(60);
  while (lists.size() < 8 && Clock::now() < until) {
    ssh_connect(session.get());
    std::array<char, 4096> buffer{};
    const auto count = ::recv(host.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    constexpr std::size_t kBefore = 4 + 1 + 1 + 16;  // lengths, the kind of packet, the cookie
    std::size_t at = text.find('\n') + 1 + kBefore;
    lists.clear();
    while (at + 4 <= text.size() && lists.size() < 8) {
      std::size_t size = 0;
      for (int i = 0; i < 4; ++i) size = (size << 8U) | static_cast<unsigned char>(text[at++]);
      if (at + size > text.size()) break;
      lists.push_back(text.substr(at, size));
      at += size;
    }
  }
  return lists;
}

TEST(SshAlgorithms, TheDefaultListsAreThoseOfLibssh) {
  const auto lists = offered_by_libssh();
  ASSERT_EQ(lists.size(), 8U);
  EXPECT_TRUE(lists[0].starts_with(cat(kDefaultKexAlgorithms, ",ext-info-c"))) << lists[0];
  EXPECT_EQ(lists[1], kDefaultPubkeyAlgorithms);
  for (const int i : {2, 3})
    EXPECT_EQ(lists.at(i).substr(0, kDefaultCiphers.size()), kDefaultCiphers);
  for (const int i : {4, 5}) EXPECT_EQ(lists.at(i), kDefaultMacs);
}

}  // namespace
}  // namespace hvd::driver::ssh
