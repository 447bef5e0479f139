// How the ranks of one host come to share memory. Each listens on a Unix socket whose name is
// random and abstract, so that no file is left; the first of them makes the memory, visits all
// others, and hands its descriptor to those who prove the job's token, for this generation and as
// the rank that they should be.
//
// Names of hosts may be wrong about who shares a kernel, and containers may forbid any of it. Then
// they all do without: the first rank says so to all that it reaches, and whoever it cannot reach
// does not reach it either, and knows by that. Whoever has said that he has the memory must hear
// whether all have it; if he does not, the world cannot be formed.
//
// open() before the ranks exchange their names, form() once after it, by one thread; abort() may
// come from any and ends form().
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "runtime/net/member_acceptor.h"
#include "runtime/net/poller.h"
#include "runtime/shm/host_memory.h"

namespace hvd::runtime {

struct HostRank {
  int rank = 0;      // of the world
  std::string name;  // HostDoor::name() there; empty: it does without
};

class HostDoor {
 public:
  struct Shared {
    std::optional<HostMemory> memory;
    Status why_not;  // if there is none
  };

  HostDoor(const Token& token, int rank, std::uint64_t generation,
           std::chrono::milliseconds handshake_timeout);

  Status open();
  const std::string& name() const { return name_; }
  // `ranks`: all of this host, ascending, at least two. An error: they cannot agree.
  Result<Shared> form(const std::vector<HostRank>& ranks, std::size_t window_bytes,
                      TimePoint deadline);
  void abort();

 private:
  Result<Shared> make(const std::vector<HostRank>& ranks, std::size_t window_bytes,
                      TimePoint deadline);
  Result<Shared> receive(const std::vector<HostRank>& ranks, std::size_t window_bytes,
                         TimePoint deadline);
  Result<UniqueFd> visit(const HostRank& other, TimePoint deadline) const;
  Result<std::unique_ptr<Connection>> await_visit(int first, TimePoint deadline);

  Token token_;
  int rank_;
  std::uint64_t generation_;
  std::string name_;
  Poller poller_;
  MemberAcceptor acceptor_;
  std::atomic<bool> aborted_ = false;
  UniqueFd abort_;  // an eventfd, readable once aborted
};

}  // namespace hvd::runtime
