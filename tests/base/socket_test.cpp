#include "base/socket.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "base/frame_sender.h"
#include "base/wire.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;

TimePoint generous() { return Clock::now() + test::kGenerous; }

bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

bool has_no_delay(int fd) {
  int on = 0;
  socklen_t size = sizeof(on);
  return ::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on != 0;
}

TEST(Socket, ConnectsOverBothFamilies) {
  for (const char* const host : {"127.0.0.1", "::1"}) {
    const auto listener = listen_tcp({host, 0});
    if (!listener.ok() && std::string_view(host) == "::1") {
      GTEST_SKIP() << "this machine has no IPv6 loopback: " << listener.status().to_string();
    }
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    const auto address = local_address(listener->get());
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(address->host, host);
    EXPECT_GT(address->port, 0);
    const auto client = connect_tcp(*address, generous());
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    const auto server = accept_tcp(listener->get(), generous());
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    for (const int fd : {listener->get(), client->get(), server->get()}) {
      EXPECT_TRUE(closes_on_exec(fd));
    }
    EXPECT_TRUE(has_no_delay(client->get()));
    EXPECT_TRUE(has_no_delay(server->get()));
    EXPECT_EQ(::fcntl(client->get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Socket, WritesAddressesAsPeopleReadThem) {
  EXPECT_EQ((SocketAddress{"127.0.0.1", 80}).to_string(), "127.0.0.1:80");
  EXPECT_EQ((SocketAddress{"::1", 80}).to_string(), "[::1]:80");
}

TEST(Socket, NamesTheAddressThatItCouldNotReach) {
  std::uint16_t free_port = 0;
  {
    const auto listener = listen_tcp({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    free_port = local_address(listener->get())->port;
  }
  const auto refused = connect_tcp({"127.0.0.1", free_port}, generous());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::unavailable);
  EXPECT_NE(refused.status().message().find("127.0.0.1:" + std::to_string(free_port)),
            std::string::npos);
}

TEST(Socket, RefusesNamesAndTakenPorts) {
  EXPECT_EQ(listen_tcp({"localhost", 0}).status().code(), Code::invalid_argument);
  EXPECT_EQ(connect_tcp({"", 1}, generous()).status().code(), Code::invalid_argument);
  const auto listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const auto second = listen_tcp(*local_address(listener->get()));
  EXPECT_EQ(second.status().code(), Code::already_exists);
}

TEST(Socket, AcceptEndsAtItsDeadline) {
  const auto listener = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(accept_tcp(listener->get(), Clock::now() + milliseconds(1)).status().code(),
            Code::deadline_exceeded);
}

TEST(Socket, SendsWhatIsLargerThanItsBuffers) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  EXPECT_TRUE(closes_on_exec(pair->first.get()));
  ASSERT_TRUE(set_nonblocking(pair->first.get(), true).ok());
  const std::string payload(8'000'000, 'x');
  std::thread sender(
      [&] { EXPECT_TRUE(send_all(pair->first.get(), encode_frame(9, payload), generous()).ok()); });
  FrameDecoder decoder;
  const auto frame = receive_frame(pair->second.get(), decoder, generous());
  sender.join();
  ASSERT_TRUE(frame.ok()) << frame.status().to_string();
  EXPECT_EQ(frame->kind, 9);
  EXPECT_TRUE(frame->payload == payload);
}

TEST(Socket, SendingToNobodyIsAnErrorAndNoSignal) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  pair->second.reset();
  EXPECT_EQ(send_all(pair->first.get(), "x", generous()).code(), Code::unavailable);
}

TEST(Socket, SendingEndsAtItsDeadlineWhenNobodyReads) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  const Status sent =
      send_all(pair->first.get(), std::string(50'000'000, 'x'), Clock::now() + milliseconds(20));
  EXPECT_EQ(sent.code(), Code::deadline_exceeded);
}

TEST(Socket, ReceivesFrameAfterFrameAndThenTheEnd) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  FrameDecoder decoder;
  EXPECT_EQ(receive_frame(pair->second.get(), decoder, Clock::now()).status().code(),
            Code::deadline_exceeded);
  ASSERT_TRUE(
      send_all(pair->first.get(), encode_frame(1, "a") + encode_frame(2, "b"), generous()).ok());
  pair->first.reset();
  EXPECT_EQ(receive_frame(pair->second.get(), decoder, generous())->payload, "a");
  EXPECT_EQ(receive_frame(pair->second.get(), decoder, generous())->payload, "b");
  EXPECT_EQ(receive_frame(pair->second.get(), decoder, generous()).status().code(),
            Code::unavailable);
}

// Else the other side would take the beginning of the next frame for the end of that one.
TEST(FrameSender, AFrameThatCameOnlyHalfThroughIsFinishedBeforeTheNext) {
  const auto pair = *socket_pair();
  const int sending = pair.first.get();
  const std::string large = encode_frame(1, std::string(std::size_t{4} << 20, 'x'));
  FrameSender sender;
  const auto soon = [] { return Clock::now() + milliseconds(10); };
  EXPECT_EQ(sender.send(sending, large, soon()).code(), Code::deadline_exceeded);
  EXPECT_EQ(sender.send(sending, encode_frame(2, "given up"), soon()).code(),
            Code::deadline_exceeded);

  std::thread reader([&] {
    FrameDecoder decoder;
    for (const std::uint16_t kind : {1, 3}) {
      const auto frame = receive_frame(pair.second.get(), decoder, generous());
      ASSERT_TRUE(frame.ok()) << frame.status().to_string();
      EXPECT_EQ(frame->kind, kind);
    }
  });
  EXPECT_TRUE(sender.send(sending, encode_frame(3, "the next"), generous()).ok());
  reader.join();
}

TEST(Socket, ReceivingRubbishIsDataLoss) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  FrameDecoder decoder(100);
  ASSERT_TRUE(send_all(pair->first.get(), WireWriter().u32(101).take(), generous()).ok());
  EXPECT_EQ(receive_frame(pair->second.get(), decoder, generous()).status().code(),
            Code::data_loss);
}

TEST(Socket, AWaitEndsWhenItsInterruptCanBeRead) {
  auto pair = socket_pair();
  auto interrupt = socket_pair();
  ASSERT_TRUE(pair.ok() && interrupt.ok());
  const int silent = pair->first.get();
  const int descriptor = interrupt->first.get();
  EXPECT_EQ(wait_for(silent, POLLIN, Clock::now(), descriptor).code(), Code::deadline_exceeded);
  ASSERT_TRUE(send_all(interrupt->second.get(), "now", generous()).ok());
  EXPECT_EQ(wait_for(silent, POLLIN, generous(), descriptor).code(), Code::aborted);
  EXPECT_EQ(connect_tcp({"192.0.2.1", 9}, generous(), descriptor).status().code(), Code::aborted);
}

TEST(Socket, OwnsItsDescriptorOnce) {
  auto pair = socket_pair();
  ASSERT_TRUE(pair.ok());
  const int number = pair->first.get();
  UniqueFd moved = std::move(pair->first);
  EXPECT_EQ(moved.get(), number);
  moved.reset();
  EXPECT_FALSE(moved);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace hvd
