#include "tests/runtime/ranks.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/wire.h"

namespace hvd::test {
namespace {

constexpr std::uint16_t kBlob = 1;
constexpr std::uint16_t kAllBlobs = 2;
constexpr int kFailed = 1;  // exit code of a rank that printed its failures

void on_threads(int size, const RankBody& body) {
  Hub hub(size);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      HubExchange exchange(hub, rank);
      body(rank, exchange);
    });
  }
  for (auto& thread : threads) thread.join();
}

[[noreturn]] void be_rank(int rank, int fd, pid_t test, const RankBody& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != test) ::_exit(kFailed);
  bool failed = false;
  try {
    SocketExchange exchange(fd);
    body(rank, exchange);
  } catch (const std::exception& error) {
    failed = true;
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
  std::fflush(nullptr);
  ::_exit(failed || ::testing::Test::HasFailure() ? kFailed : 0);
}

std::string end_text(int status) {
  if (WIFSIGNALED(status)) return cat("died of signal ", WTERMSIG(status));
  return cat("ended with exit code ", WEXITSTATUS(status),
             WEXITSTATUS(status) == kFailed ? ", as said above" : "");
}

class RankProcesses {
 public:
  RankProcesses() = default;
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses() {
    for (auto& one : ranks_) {
      if (one.pid > 0) ::kill(one.pid, SIGKILL);
    }
    for (auto& one : ranks_) {
      if (one.pid > 0) ::waitpid(one.pid, nullptr, 0);
    }
  }

  Status start(int size, const RankBody& body) {
    const pid_t test = ::getpid();
    std::fflush(nullptr);
    for (int rank = 0; rank < size; ++rank) {
      auto pair = socket_pair();
      HVD_RETURN_IF_ERROR(pair.status());
      const pid_t pid = ::fork();
      if (pid < 0) return Status::from_errno("fork", errno);
      if (pid == 0) {
        for (auto& other : ranks_) other.fd.reset();
        pair->first.reset();
        be_rank(rank, pair->second.get(), test, body);
      }
      auto& one = ranks_.emplace_back();
      one.pid = pid;
      one.fd = std::move(pair->first);
    }
    return {};
  }

  // Returns when all ranks have succeeded; the error names the rank that failed or is missing.
  Status serve(TimePoint deadline) {
    while (running() > 0) {
      std::vector<pollfd> polled;
      for (const auto& one : ranks_) polled.push_back({one.fd.get(), POLLIN, 0});
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return {Code::deadline_exceeded, cat(running(), " ranks do not end")};
      if (::poll(polled.data(), polled.size(), static_cast<int>(left.count())) < 0) continue;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (polled[i].revents != 0) HVD_RETURN_IF_ERROR(hear(static_cast<int>(i)));
      }
      HVD_RETURN_IF_ERROR(answer(deadline));
    }
    return {};
  }

 private:
  struct Rank {
    pid_t pid = -1;  // -1: it has ended
    UniqueFd fd;
    FrameDecoder decoder;
    std::string blob;
    bool waits = false;  // it has sent its blob, and awaits the answer
  };

  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const auto& one) { return one.pid > 0; }));
  }

  Status hear(int rank) {
    Rank& one = ranks_[static_cast<std::size_t>(rank)];
    auto frame = receive_frame(one.fd.get(), one.decoder, Clock::now() + kLong);
    if (frame.ok()) {
      one.blob = std::move(frame->payload);
      one.waits = true;
      return {};
    }
    if (frame.status().code() != Code::unavailable) return frame.status();
    int status = 0;
    ::waitpid(one.pid, &status, 0);
    one.pid = -1;
    one.fd.reset();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return {Code::aborted, cat("rank ", rank, " of ", ranks_.size(), " ", end_text(status))};
  }

  Status answer(TimePoint deadline) {
    const auto waiting =
        std::count_if(ranks_.begin(), ranks_.end(), [](const auto& one) { return one.waits; });
    if (waiting == 0) return {};
    if (waiting < static_cast<std::ptrdiff_t>(ranks_.size())) {
      if (running() == static_cast<int>(ranks_.size())) return {};
      return {Code::aborted, "a rank has ended, and others wait in an exchange for it"};
    }
    WireWriter blobs;
    std::vector<std::string> all;
    for (auto& one : ranks_) all.push_back(std::move(one.blob));
    const std::string frame = encode_frame(kAllBlobs, blobs.strings(all).bytes());
    for (auto& one : ranks_) {
      one.waits = false;
      HVD_RETURN_IF_ERROR(send_all(one.fd.get(), frame, deadline));
    }
    return {};
  }

  std::vector<Rank> ranks_;
};

}  // namespace

Result<std::vector<std::string>> SocketExchange::exchange(std::string_view blob,
                                                          TimePoint deadline) {
  HVD_RETURN_IF_ERROR(send_all(fd_, encode_frame(kBlob, blob), deadline));
  FrameDecoder decoder;
  auto frame = receive_frame(fd_, decoder, deadline);
  HVD_RETURN_IF_ERROR(frame.status());
  WireReader in(frame->payload);
  auto blobs = in.strings();
  HVD_RETURN_IF_ERROR(in.finish("what the ranks tell each other"));
  return blobs;
}

void on_ranks(RanksAs how, int size, const RankBody& body) {
  if (how == RanksAs::threads) {
    on_threads(size, body);
    return;
  }
  RankProcesses processes;
  Status ran = processes.start(size, body);
  if (ran.ok()) ran = processes.serve(Clock::now() + 4 * kLong);
  EXPECT_TRUE(ran.ok()) << ran.message();
}

}  // namespace hvd::test
