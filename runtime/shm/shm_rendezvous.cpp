#include "runtime/shm/shm_rendezvous.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "base/text.h"
#include "runtime/net/member_connector.h"
#include "runtime/shm/shared_heap.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kSharedMemory = "shared memory";

// The messages after the handshake, one byte each. From the first rank: here is the memory, with
// its descriptor; from the others: I have it, with that of the heap; from the first rank: we all
// have it, with those of all heaps.
constexpr char kYes = 'y';
constexpr char kNo = 'n';

std::string identity_of(int rank) { return cat("rank ", rank); }

Result<UniqueFd> connect_abstract(std::string_view name, TimePoint deadline) {
  const AbstractAddress where(name);
  auto fd = connect_unix(where.get(), where.size, deadline);
  if (!fd.ok()) return fd.status().with_context("connect");
  return fd;
}

constexpr std::size_t kMostDescriptors = ShmRendezvous::kMostHeaps;

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> bytes{};
};

// One byte, with these descriptors.
Status send_byte(int socket, char byte, const std::vector<int>& fds, TimePoint deadline) {
  HVD_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
  iovec data{&byte, 1};
  Control control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    const std::size_t bytes = fds.size() * sizeof(int);
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), fds.data(), bytes);
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Status::from_errno("send", errno);
  }
  return {};
}

// A user may have only so many descriptors in flight (ETOOMANYREFS). World and memory do not depend
// on the heaps: without them tensors are copied.
Status send_with_heaps(int socket, char byte, const std::vector<int>& heaps, TimePoint deadline) {
  const Status sent = send_byte(socket, byte, heaps, deadline);
  return sent.ok() || heaps.empty() ? sent : send_byte(socket, byte, {}, deadline);
}

struct Answer {
  char byte = 0;
  std::vector<UniqueFd> fds = {};
};

Result<Answer> receive_byte(int socket, TimePoint deadline, int interrupt) {
  HVD_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline, interrupt));
  Answer answer;
  iovec data{&answer.byte, 1};
  Control control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t got = 0;
  while ((got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return Status::from_errno("receive", errno);
  }
  if (got == 0) return Status(Code::unavailable, "the other side closed the connection");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof(number), sizeof(number));
      answer.fds.emplace_back(number);
    }
  }
  return answer;
}

// The descriptor of this process's heap, where ranks hand their heaps on and it has one.
std::vector<int> own_heap(const std::vector<LocalRank>& ranks) {
  if (ranks.size() > ShmRendezvous::kMostHeaps) return {};
  const int fd = SharedHeap::of_process().fd();
  return fd < 0 ? std::vector<int>{} : std::vector{fd};
}

}  // namespace

ShmRendezvous::ShmRendezvous(const Token& token, int rank, std::uint64_t generation,
                             std::chrono::milliseconds handshake_timeout)
    : token_(token),
      rank_(rank),
      generation_(generation),
      acceptor_(poller_, token, {identity_of(rank), generation}, handshake_timeout, kSharedMemory,
                1) {}

Status ShmRendezvous::open() {
  HVD_RETURN_IF_ERROR(poller_.open());
  abort_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Status::from_errno("socket", errno);
  name_ = cat("hvd-", to_hex(random_bytes(16)));
  const AbstractAddress where(name_);
  if (::bind(fd.get(), where.get(), where.size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    name_.clear();
    return Status::from_errno("listen on a Unix socket", errno);
  }
  return acceptor_.adopt(std::move(fd));
}

void ShmRendezvous::abort() {
  aborted_ = true;
  poller_.wake();
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto put = ::write(abort_.get(), &once, sizeof(once));
}

Result<ShmRendezvous::Shared> ShmRendezvous::form(const std::vector<LocalRank>& ranks,
                                                  std::size_t chunk_bytes, TimePoint deadline) {
  for (const auto& other : ranks) {
    if (!other.name.empty()) continue;
    return Shared{{},
                  {Code::failed_precondition, cat("rank ", other.rank,
                                                  " does without, or may not "
                                                  "listen on Unix sockets")}};
  }
  auto shared = rank_ == ranks.front().rank ? make(ranks, chunk_bytes, deadline)
                                            : receive(ranks, chunk_bytes, deadline);
  acceptor_.close();
  if (aborted_) return Status(Code::aborted, "the world has failed");
  return shared;
}

// --- the first rank -----------------------------------------------------------------------------

Result<UniqueFd> ShmRendezvous::connect_to(const LocalRank& other, TimePoint deadline) const {
  auto fd = connect_abstract(other.name, deadline);
  HVD_RETURN_IF_ERROR(fd.status());
  const auto keys =
      authenticate(fd->get(), token_, kSharedMemory, {identity_of(rank_), generation_},
                   {identity_of(other.rank), generation_}, deadline, abort_.get());
  HVD_RETURN_IF_ERROR(keys.status());
  return fd;
}

Result<ShmRendezvous::Shared> ShmRendezvous::make(const std::vector<LocalRank>& ranks,
                                                  std::size_t chunk_bytes, TimePoint deadline) {
  Shared shared;
  const auto fails = [&shared](int rank, const Status& why) {
    if (shared.why_not.ok()) shared.why_not = why.with_context(identity_of(rank));
  };
  std::vector<std::pair<int, UniqueFd>> visited;
  for (const auto& other : ranks) {
    if (other.rank == rank_) continue;
    auto connection = connect_to(other, deadline);
    if (!connection.ok()) {
      fails(other.rank, connection.status());
      continue;
    }
    visited.emplace_back(other.rank, std::move(*connection));
  }
  if (shared.why_not.ok()) {
    auto memory = ShmLayout::create(static_cast<int>(ranks.size()), chunk_bytes);
    if (memory.ok()) shared.memory = std::move(*memory);
    shared.why_not = memory.status();
  }
  for (const auto& [rank, socket] : visited) {
    const bool there = shared.memory.has_value();
    const std::vector<int> memory = there ? std::vector{shared.memory->fd()} : std::vector<int>{};
    const Status sent = send_byte(socket.get(), there ? kYes : kNo, memory, deadline);
    if (!sent.ok()) fails(rank, sent);
  }
  if (!shared.memory) return shared;
  std::vector<int> heaps = own_heap(ranks);
  for (const int fd : heaps) shared.heaps.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  for (const auto& [rank, socket] : visited) {
    auto answer = receive_byte(socket.get(), deadline, abort_.get());
    if (!answer.ok()) {
      fails(rank, answer.status());
    } else if (answer->byte != kYes) {
      fails(rank, {Code::resource_exhausted, "it could not map the shared memory"});
    } else if (answer->fds.size() == 1) {
      heaps.push_back(answer->fds.front().get());
      shared.heaps.push_back(std::move(answer->fds.front()));
    }
  }
  if (heaps.size() != ranks.size()) {
    heaps.clear();
    shared.heaps.clear();
  }
  // A rank that refused or has gone does not listen any more.
  for (const auto& [rank, socket] : visited) {
    (void)send_with_heaps(socket.get(), shared.why_not.ok() ? kYes : kNo, heaps, deadline);
  }
  if (!shared.why_not.ok()) shared.memory.reset();
  return shared;
}

// --- the others ---------------------------------------------------------------------------------

Result<std::unique_ptr<Connection>> ShmRendezvous::accept_rank(int first, int reached,
                                                               TimePoint deadline) {
  poller_.watch(reached);
  bool is_closed = false;
  while (!aborted_) {
    const auto now = Clock::now();
    if (now >= deadline) {
      return Status(Code::deadline_exceeded, cat("rank ", first, " did not come"));
    }
    HVD_RETURN_IF_ERROR(acceptor_.cannot_accept());
    // The first rank listens until it has connected to all that it can reach.
    if (is_closed) return Status(Code::unavailable, "it does not connect to this rank");
    for (const auto& event : poller_.wait(std::min(deadline, acceptor_.expire(now)))) {
      is_closed = is_closed || event.fd == reached;
      if (!acceptor_.owns(event.fd)) continue;
      auto arrival = acceptor_.handle(event, Clock::now());
      if (!arrival) continue;
      poller_.forget(arrival->connection->fd());
      if (arrival->name == identity_of(first)) return std::move(arrival->connection);
    }
  }
  return Status(Code::aborted, "the world has failed");
}

Result<ShmRendezvous::Shared> ShmRendezvous::receive(const std::vector<LocalRank>& ranks,
                                                     std::size_t chunk_bytes, TimePoint deadline) {
  const auto without = [&ranks](const Status& why) {
    return Shared{{}, why.with_context(identity_of(ranks.front().rank))};
  };
  const auto reached = connect_abstract(ranks.front().name, deadline);
  if (!reached.ok()) return without(reached.status());
  auto connect_to = accept_rank(ranks.front().rank, reached->get(), deadline);
  if (!connect_to.ok()) return without(connect_to.status());
  const int socket = (*connect_to)->fd();
  auto offer = receive_byte(socket, deadline, abort_.get());
  if (!offer.ok()) return without(offer.status());
  if (offer->byte != kYes || offer->fds.size() != 1)
    return without({Code::unavailable, "not all ranks can share memory"});
  Shared shared;
  auto memory =
      ShmLayout::adopt(std::move(offer->fds.front()), static_cast<int>(ranks.size()), chunk_bytes);
  const Status answered =
      send_with_heaps(socket, memory.ok() ? kYes : kNo, own_heap(ranks), deadline);
  if (!memory.ok()) return without(memory.status());
  HVD_RETURN_IF_ERROR(answered.with_context("shared memory"));
  auto all = receive_byte(socket, deadline, abort_.get());
  HVD_RETURN_IF_ERROR(all.status().with_context(
      cat("shared memory: rank ", ranks.front().rank, " did not say whether all have it")));
  if (all->byte != kYes) return without({Code::unavailable, "not all ranks can share memory"});
  shared.memory = std::move(*memory);
  if (all->fds.size() == ranks.size()) shared.heaps = std::move(all->fds);
  return shared;
}

}  // namespace hvd::runtime
