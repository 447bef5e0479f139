#include "bench/rendezvous/load.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/text.h"
#include "rendezvous/auth.h"
#include "rendezvous/client.h"

namespace hvd::bench {
namespace {

constexpr std::chrono::seconds kTimeout{60};

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double in_milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// One connection that asks for one key, signs each request and checks each answer in full.
class Asker {
 public:
  Asker(UniqueFd socket, const Token& token, std::uint64_t client, std::string target)
      : socket_(std::move(socket)), signer_(token, client), target_(std::move(target)) {}

  int fd() const { return socket_.get(); }

  Status send() {
    const auto signature = signer_.sign({"GET", target_, "-"}, unix_now());
    id_ = signature.id;
    request_ = "GET ";
    request_.append(target_).append(" HTTP/1.1\r\nHost: bench\r\nAuthorization: ");
    request_.append(signature.authorization).append("\r\n\r\n");
    sent_ = Clock::now();
    return send_all(fd(), request_, sent_ + kTimeout);
  }

  // True when the answer is there, whole and proved.
  Result<bool> receive() {
    std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) return Status(Code::unavailable, "the server closed a connection");
    answer_.append(buffer.data(), static_cast<std::size_t>(got));
    const std::size_t end = answer_.find("\r\n\r\n");
    if (end == std::string::npos) return false;
    const std::string_view head = std::string_view(answer_).substr(0, end);
    const auto length = parse_number<std::size_t>(field(head, "Content-Length: "));
    const auto version = parse_number<std::uint64_t>(field(head, "Hvd-Version: "));
    if (!head.starts_with("HTTP/1.1 200 ") || !length || !version) {
      return Status(Code::data_loss, cat("an answer is not 200: ", answer_));
    }
    if (answer_.size() < end + 4 + *length) return false;
    const auto body = std::string_view(answer_).substr(end + 4);
    if (!signer_.verify(id_, {200, *version, 0, sha256(body)}, field(head, "Hvd-Proof: "))) {
      return Status(Code::data_loss, "an answer's signature is wrong");
    }
    answer_.clear();
    return true;
  }

  TimePoint sent_at() const { return sent_; }

 private:
  static std::string_view field(std::string_view head, std::string_view name) {
    const std::size_t at = head.find(name);
    if (at == std::string_view::npos) return {};
    const auto value = head.substr(at + name.size());
    return value.substr(0, value.find("\r\n"));
  }

  UniqueFd socket_;
  rendezvous::Signer signer_;
  std::string target_;
  rendezvous::RequestId id_;
  std::string request_;
  std::string answer_;
  TimePoint sent_;
};

struct Crowd {
  std::vector<std::unique_ptr<Asker>> askers;
  UniqueFd poll;

  // Calls `answered` for each whole answer until it returns false.
  template <typename Answered>
  Status run(Answered answered) {
    std::array<epoll_event, 256> events{};
    for (;;) {
      const int ready = ::epoll_wait(poll.get(), events.data(), events.size(),
                                     static_cast<int>(std::chrono::milliseconds(kTimeout).count()));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) return {Code::deadline_exceeded, "the server does not answer"};
      for (int i = 0; i < ready; ++i) {
        Asker& asker = *static_cast<Asker*>(events[static_cast<std::size_t>(i)].data.ptr);
        auto whole = asker.receive();
        HVD_RETURN_IF_ERROR(whole.status());
        if (*whole && !answered(asker)) return {};
      }
    }
  }
};

// Each asks as soon as it is connected, as hvd's clients do: to the server a crowd of connections
// that say nothing is a flood.
Result<Crowd> gather(const SocketAddress& server, const Token& token, int clients,
                     const std::string& target) {
  Crowd crowd;
  crowd.poll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  const std::string random = random_bytes(8);
  std::uint64_t client = 0;
  std::memcpy(&client, random.data(), sizeof(client));
  for (int i = 0; i < clients; ++i) {
    auto socket = connect_tcp(server, Clock::now() + kTimeout);
    HVD_RETURN_IF_ERROR(socket.status());
    crowd.askers.push_back(std::make_unique<Asker>(std::move(*socket), token,
                                                   client + static_cast<std::uint64_t>(i), target));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = crowd.askers.back().get();
    if (::epoll_ctl(crowd.poll.get(), EPOLL_CTL_ADD, crowd.askers.back()->fd(), &event) != 0) {
      return Status::from_errno("epoll_ctl", errno);
    }
    HVD_RETURN_IF_ERROR(crowd.askers.back()->send());
  }
  return crowd;
}

rendezvous::ClientOptions client_options(const SocketAddress& server) {
  rendezvous::ClientOptions options;
  options.host = server.host;
  options.port = server.port;
  return options;
}

Status write_value(const SocketAddress& server, const Token& token, std::string_view key) {
  rendezvous::Client client(client_options(server), token);
  return client.put("bench", key, std::string(100, 'v')).status();
}

}  // namespace

Result<Measured> read_by_connections(const SocketAddress& server, const Token& token, int clients,
                                     std::chrono::milliseconds time) {
  HVD_RETURN_IF_ERROR(write_value(server, token, "read"));
  auto crowd = gather(server, token, clients, "/bench/read");
  HVD_RETURN_IF_ERROR(crowd.status());
  Measured measured;
  const TimePoint begin = Clock::now();
  Status error;
  HVD_RETURN_IF_ERROR(crowd->run([&](Asker& asker) {
    const TimePoint now = Clock::now();
    measured.milliseconds.push_back(in_milliseconds(now - asker.sent_at()));
    if (now - begin >= time) return false;
    error = asker.send();
    return error.ok();
  }));
  HVD_RETURN_IF_ERROR(error);
  measured.seconds = in_milliseconds(Clock::now() - begin) / 1000;
  std::sort(measured.milliseconds.begin(), measured.milliseconds.end());
  return measured;
}

Result<Measured> read_by_clients(const SocketAddress& server, const Token& token, int clients,
                                 std::chrono::milliseconds time) {
  HVD_RETURN_IF_ERROR(write_value(server, token, "read"));
  Measured measured;
  std::mutex mutex;
  Status error;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  const TimePoint begin = Clock::now();
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&] {
      rendezvous::Client client(client_options(server), token);
      std::vector<double> own;
      Status status;
      while (!stop && status.ok()) {
        const TimePoint sent = Clock::now();
        status = client.get("bench", "read").status();
        own.push_back(in_milliseconds(Clock::now() - sent));
      }
      const std::lock_guard lock(mutex);
      if (!status.ok()) error = status;
      measured.milliseconds.insert(measured.milliseconds.end(), own.begin(), own.end());
    });
  }
  std::this_thread::sleep_for(time);
  stop = true;
  for (auto& thread : threads) thread.join();
  HVD_RETURN_IF_ERROR(error);
  measured.seconds = in_milliseconds(Clock::now() - begin) / 1000;
  std::sort(measured.milliseconds.begin(), measured.milliseconds.end());
  return measured;
}

Result<Measured> wake_waiters(const SocketAddress& server, const Token& token, int clients) {
  auto crowd = gather(server, token, clients, "/bench/wake?wait=60");
  HVD_RETURN_IF_ERROR(crowd.status());
  // All requests are on the server's sockets; it has read them all when it has answered ours, which
  // came last, and it takes its clients in turn.
  HVD_RETURN_IF_ERROR(write_value(server, token, "settle"));
  std::this_thread::sleep_for(std::chrono::seconds(1));

  Measured measured;
  const TimePoint begin = Clock::now();
  Status written;
  std::thread writer([&] { written = write_value(server, token, "wake"); });
  const Status woken = crowd->run([&](Asker&) {
    measured.milliseconds.push_back(in_milliseconds(Clock::now() - begin));
    return measured.milliseconds.size() < crowd->askers.size();
  });
  writer.join();
  HVD_RETURN_IF_ERROR(written);
  HVD_RETURN_IF_ERROR(woken);
  measured.seconds = in_milliseconds(Clock::now() - begin) / 1000;
  return measured;
}

}  // namespace hvd::bench
