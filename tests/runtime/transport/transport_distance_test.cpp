// The socket options of a data connection. All of 127.0.0.0/8 is this machine, but two
// addresses of it are two hosts to the transport.
#include <array>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>

#include "base/socket.h"
#include "runtime/transport/distance.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr const char* kThere = "127.0.0.2";

struct Connection {
  UniqueFd near;
  UniqueFd far;
};

Connection connection_to(const std::string& host) {
  auto listener = listen_tcp({host, 0});
  if (!listener.ok()) {
    ADD_FAILURE() << listener.status().to_string();
    return {};
  }
  auto near = connect_tcp(*local_address(listener->get()), Clock::now() + kLong);
  auto far = accept_tcp(listener->get(), Clock::now() + kLong);
  EXPECT_TRUE(near.ok() && far.ok());
  return {near.ok() ? std::move(*near) : UniqueFd(), far.ok() ? std::move(*far) : UniqueFd()};
}

bool use_control(const UniqueFd& fd, const std::string& name) {
  return ::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string control_of(const UniqueFd& fd) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  EXPECT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length), 0);
  return name.data();
}

int send_buffer_of(const UniqueFd& fd) {
  int bytes = 0;
  socklen_t length = sizeof(bytes);
  EXPECT_EQ(::getsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
  return bytes;
}

// The buffer that the kernel grants to a request for 512 KB.
int granted() {
  const UniqueFd probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int bytes = 512 << 10;
  EXPECT_EQ(::setsockopt(probe.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
  return send_buffer_of(probe);
}

// On a busy machine the handshake of a connection may take longer than a short way does, so there
// are several.
TEST(Distance, ToAHostThatIsNearAConnectionThatPacesTakesNoMoreAheadThanTheWayHolds) {
  const int bound = granted();
  const auto deadline = Clock::now() + kLong;
  int bytes = 0;
  do {
    const auto connection = connection_to(kThere);
    if (!use_control(connection.near, "bbr")) GTEST_SKIP() << "this kernel has no bbr for us";
    ASSERT_NE(send_buffer_of(connection.near), bound);
    runtime::suit_distance(connection.near.get());
    EXPECT_EQ(control_of(connection.near), "bbr");
    bytes = send_buffer_of(connection.near);
  } while (bytes != bound && !HasFailure() && Clock::now() < deadline);
  EXPECT_EQ(bytes, bound);
}

TEST(Distance, AConnectionThatDoesNotPaceKeepsWhatTheKernelGaveIt) {
  const auto connection = connection_to(kThere);
  ASSERT_TRUE(use_control(connection.near, "reno"));
  const int bytes = send_buffer_of(connection.near);
  runtime::suit_distance(connection.near.get());
  EXPECT_EQ(control_of(connection.near), "reno");
  EXPECT_EQ(send_buffer_of(connection.near), bytes);
}

TEST(Distance, WithinAHostNothingPaces) {
  const auto connection = connection_to(kHere);
  if (!use_control(connection.near, "bbr")) GTEST_SKIP() << "this kernel has no bbr for us";
  const int bytes = send_buffer_of(connection.near);
  runtime::suit_distance(connection.near.get());
  const auto control = control_of(connection.near);
  EXPECT_TRUE(control == "cubic" || control == "reno") << control;
  EXPECT_EQ(send_buffer_of(connection.near), bytes);
}

}  // namespace
}  // namespace hvd::test
