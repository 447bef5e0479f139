// A relay between two ranks, which both believe to have the other at the end of their connection.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "base/socket.h"
#include "base/wire.h"
#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {

// Takes connections at a port of its own and passes their bytes on, at most kAtOnce of them in each
// interval, until it has passed as many as it may, each way of each connection.
class Relay {
 public:
  enum class Way { to_rank_0, to_rank_1 };
  struct Options {
    std::chrono::milliseconds between{0};
    std::size_t most = ~std::size_t{0};
    // May change bytes that pass; the first of them is number `at` of those behind the handshake.
    // On threads of the relay, one call at a time.
    std::function<void(Way way, std::size_t at, std::string& bytes)> edit = {};
  };

  Relay(SocketAddress to, Options options) : to_(std::move(to)), options_(std::move(options)) {
    auto listener = listen_tcp({"127.0.0.1", 0});
    if (!listener.ok()) throw std::runtime_error(listener.status().to_string());
    listener_ = std::move(*listener);
    shrink_buffers(listener_.get());
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Relay() {
    stops_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (auto& pump : pumps_) pump.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::uint16_t port() const { return local_address(listener_.get())->port; }

 private:
  static constexpr std::size_t kAtOnce = std::size_t{64} << 10;
  static constexpr std::chrono::milliseconds kLook{20};

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
      pumps_.emplace_back([this, one, other] { pump(one, other, Way::to_rank_0); });
      pumps_.emplace_back([this, one, other] { pump(other, one, Way::to_rank_1); });
    }
  }

  // So many frames of the handshake go this way: the proof, or the challenge and the welcome.
  static int handshake_frames(Way way) { return way == Way::to_rank_0 ? 1 : 2; }

  void pump(int from, int to, Way way) {
    std::vector<char> bytes(kAtOnce);
    std::size_t left = options_.most;
    std::string handshake;
    int frames = handshake_frames(way);
    std::size_t at = 0;

    while (!stops_) {
      // This is how slow the link is.
      if (options_.between.count() > 0) std::this_thread::sleep_for(options_.between);
      if (left == 0 || !wait_for(from, POLLIN, Clock::now() + kLook).ok()) continue;
      const ssize_t got = ::recv(from, bytes.data(), std::min(bytes.size(), left), 0);
      if (got <= 0) break;
      left -= static_cast<std::size_t>(got);

      std::string passed;
      std::string behind(bytes.data(), static_cast<std::size_t>(got));
      if (frames > 0) {
        handshake += std::exchange(behind, "");
        passed = take_frames(handshake, frames);
        if (frames == 0) behind.swap(handshake);
      }
      if (options_.edit && !behind.empty()) {
        const std::size_t before = behind.size();
        const std::lock_guard lock(mutex_);
        options_.edit(way, at, behind);
        at += before;
      }
      if (!send_all(to, passed + behind, Clock::now() + kLong).ok()) break;
    }
    ::shutdown(to, SHUT_WR);
  }

  // Takes whole frames off, as many as are there and wanted.
  static std::string take_frames(std::string& bytes, int& wanted) {
    std::string taken;
    while (wanted > 0 && bytes.size() >= sizeof(std::uint32_t)) {
      const std::size_t whole = sizeof(std::uint32_t) + WireReader(bytes).u32();
      if (bytes.size() < whole) break;
      taken += bytes.substr(0, whole);
      bytes.erase(0, whole);
      --wanted;
    }
    return taken;
  }

  const SocketAddress to_;
  const Options options_;
  std::mutex mutex_;
  std::atomic<bool> stops_ = false;
  UniqueFd listener_;
  std::list<UniqueFd> connections_;
  std::thread acceptor_;
  std::list<std::thread> pumps_;
};

using RelayBody = std::function<void(int rank, runtime::TcpMesh& mesh, runtime::TcpMesh& other)>;

// Two ranks; rank 1 reaches rank 0 through a relay.
inline void over_relay(const Relay::Options& options, const RelayBody& body) {
  const auto low = make_tcp_mesh(mesh_options(0, 2));
  const auto high = make_tcp_mesh(mesh_options(1, 2));
  const std::string address = low->address();
  WireReader in(address);
  SocketAddress where;
  where.host = in.str();
  where.port = in.u16();
  const Relay relay(where, options);
  std::string detour = WireWriter().str(where.host).u16(relay.port()).take();
  detour += address.substr(detour.size());
  ASSERT_TRUE(low->connect({address, high->address()}).ok());
  ASSERT_TRUE(high->connect({detour, high->address()}).ok());

  std::thread other([&] { body(1, *high, *low); });
  body(0, *low, *high);
  other.join();
}

}  // namespace hvd::test
