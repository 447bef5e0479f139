// How the ranks of one host come to share memory. Each rank listens on a Unix socket with a random
// abstract name, so that no file is left behind. The first rank creates the memory, connects to
// all others, and passes its descriptor to each rank that proves the key of the world, the
// generation and its own number.
//
// Host names may be wrong about which ranks share a kernel, and containers may forbid sockets or
// memory. Then all ranks of the host do without: the first rank tells all that it reaches, and a
// rank that it cannot reach sees that the first one no longer listens, and has not come. A rank
// that has confirmed the memory must hear whether all have it; without that answer the world cannot
// be formed. With these two messages the ranks also hand on their heaps (shared_heap.h).
//
// One thread calls open() before the ranks exchange their names and form() once after it. abort()
// is safe from any thread and ends form().
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "runtime/net/member_acceptor.h"
#include "runtime/net/poller.h"
#include "runtime/shm/shm_layout.h"

namespace hvd::runtime {

struct LocalRank {
  int rank = 0;      // of the world
  std::string name;  // ShmRendezvous::name() there; empty: it does without
};

class ShmRendezvous {
 public:
  struct Shared {
    std::optional<ShmLayout> memory;
    Status why_not;  // if there is none
    // One of each rank, for the others to read; empty: not all of them could be had.
    std::vector<UniqueFd> heaps = {};
  };

  ShmRendezvous(const Token& token, int rank, std::uint64_t generation,
                std::chrono::milliseconds handshake_timeout);

  Status open();
  const std::string& name() const { return name_; }
  // Hosts of more ranks do without each other's heaps: so many descriptors and mappings cost more
  // than they could save.
  static constexpr std::size_t kMostHeaps = 64;

  // `ranks`: all of this host, ascending, at least two. An error: they cannot agree.
  Result<Shared> form(const std::vector<LocalRank>& ranks, std::size_t chunk_bytes,
                      TimePoint deadline);
  void abort();

 private:
  Result<Shared> make(const std::vector<LocalRank>& ranks, std::size_t chunk_bytes,
                      TimePoint deadline);
  Result<Shared> receive(const std::vector<LocalRank>& ranks, std::size_t chunk_bytes,
                         TimePoint deadline);
  Result<UniqueFd> connect_to(const LocalRank& other, TimePoint deadline) const;
  // `reached`: a connection to where the first rank listens.
  Result<std::unique_ptr<Connection>> accept_rank(int first, int reached, TimePoint deadline);

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
