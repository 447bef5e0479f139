// Messages between two ranks over a slow link, or over one that goes silent.
#include <atomic>
#include <list>
#include <poll.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "base/wire.h"
#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;
using std::chrono::milliseconds;

constexpr std::size_t kMessage = std::size_t{24} << 20;
constexpr std::size_t kAnyNumber = ~std::size_t{0};

// Stands between the ranks: takes connections at a port of its own and passes their bytes on, some
// at a time, until it has passed as many as it may, each way of each connection.
class SlowLink {
 public:
  SlowLink(SocketAddress to, milliseconds between, std::size_t most)
      : to_(std::move(to)), between_(between), most_(most) {
    auto listener = listen_tcp({"127.0.0.1", 0});
    if (!listener.ok()) throw std::runtime_error(listener.status().to_string());
    listener_ = std::move(*listener);
    shrink_buffers(listener_.get());
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~SlowLink() {
    stops_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (auto& pump : pumps_) pump.join();
  }
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  std::uint16_t port() const { return local_address(listener_.get())->port; }

 private:
  static constexpr std::size_t kAtOnce = std::size_t{64} << 10;

  // Little data is to be under way, compared with a message.
  static void shrink_buffers(int fd) {
    const int bytes = kAtOnce;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  }

  void accept_all() {
    for (;;) {
      auto from = accept_tcp(listener_.get(), Clock::now() + kLong);
      if (!from.ok() || stops_) return;
      auto to = connect_tcp(to_, Clock::now() + kLong);
      if (!to.ok()) return;
      shrink_buffers(to->get());
      const int one = connections_.emplace_back(std::move(*from)).get();
      const int other = connections_.emplace_back(std::move(*to)).get();
      pumps_.emplace_back([this, one, other] { pump(one, other); });
      pumps_.emplace_back([this, one, other] { pump(other, one); });
    }
  }

  void pump(int from, int to) {
    std::vector<char> bytes(kAtOnce);
    std::size_t left = most_;
    while (!stops_) {
      std::this_thread::sleep_for(between_);  // this is how slow the link is
      if (left == 0 || !wait_for(from, POLLIN, Clock::now() + between_).ok()) continue;
      const ssize_t got = ::recv(from, bytes.data(), std::min(bytes.size(), left), 0);
      if (got <= 0) break;
      left -= static_cast<std::size_t>(got);
      const std::string_view some(bytes.data(), static_cast<std::size_t>(got));
      if (!send_all(to, some, Clock::now() + kLong).ok()) break;
    }
    ::shutdown(to, SHUT_WR);
  }

  const SocketAddress to_;
  const milliseconds between_;
  const std::size_t most_;
  std::atomic<bool> stops_ = false;
  UniqueFd listener_;
  std::list<UniqueFd> connections_;
  std::thread acceptor_;
  std::list<std::thread> pumps_;
};

using SlowBody = std::function<void(int rank, TcpMesh& mesh, TcpMesh& other)>;

// Two ranks; rank 1 reaches rank 0 over a slow link.
void over_slow_link(milliseconds between, std::size_t most, const SlowBody& body) {
  const auto low = make_tcp_mesh(mesh_options(0, 2));
  const auto high = make_tcp_mesh(mesh_options(1, 2));
  const std::string address = low->address();
  WireReader in(address);
  SocketAddress where;
  where.host = in.str();
  where.port = in.u16();
  const std::uint16_t sockets = in.u16();
  const SlowLink link(where, between, most);
  const std::string detour = WireWriter().str(where.host).u16(link.port()).u16(sockets).take();
  ASSERT_TRUE(low->connect({address, high->address()}).ok());
  ASSERT_TRUE(high->connect({detour, high->address()}).ok());

  std::thread other([&] { body(1, *high, *low); });
  body(0, *low, *high);
  other.join();
}

// With one socket for each pair, and several.
class SlowMessages : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Sockets, SlowMessages, ::testing::Values(1, 3));

TEST_P(SlowMessages, NightlyMayTakeMuchLongerThanASilenceMay) {
  constexpr milliseconds kSilence{3'000};
  const milliseconds between(24 * GetParam());
  over_slow_link(between, kAnyNumber, [&](int rank, TcpMesh& mesh, TcpMesh& /*other*/) {
    Bytes bytes(mesh, kMessage, rank == 0 ? 5 : 0);
    const TimePoint begin = Clock::now();
    const auto error = error_of([&] {
      if (rank == 0) bytes.send(1, 1);
      if (rank == 1) bytes.receive(0, 1);
      EXPECT_TRUE(rank == 0 ? bytes.buffer->waitSend(kSilence) : bytes.buffer->waitRecv(kSilence));
    });
    EXPECT_EQ(error, "nothing was thrown");
    // A sender is done when its kernel has the rest.
    if (rank == 1) {
      EXPECT_GT(Clock::now() - begin, 3 * kSilence / 2) << "the link is too fast for this test";
    }
    EXPECT_TRUE(bytes.is_from(5));
  });
}

TEST_P(SlowMessages, EndInTimeIfTheLinkGoesSilentInTheirMidst) {
  constexpr milliseconds kSilence{200};
  for (const int impatient : {0, 1}) {
    over_slow_link(milliseconds(1), kMessage / 16, [&](int rank, TcpMesh& mesh, TcpMesh& other) {
      Bytes bytes(mesh, kMessage);
      const milliseconds limit = rank == impatient ? kSilence : kLong;
      const auto error = error_of([&] {
        if (rank == 0) bytes.send(1, 1);
        if (rank == 1) bytes.receive(0, 1);
        rank == 0 ? bytes.buffer->waitSend(limit) : bytes.buffer->waitRecv(limit);
      });
      const std::string wanted = rank == impatient ? "timed out after 200 ms" : "";
      EXPECT_NE(error.find(wanted), std::string::npos) << error;
      other.abort({Code::aborted, "enough"});
    });
  }
}

}  // namespace
}  // namespace hvd::test
