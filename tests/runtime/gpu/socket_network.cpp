// The network of processes: sockets without a name in the file system, which end with their
// processes.
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/text.h"
#include "tests/runtime/gpu/host_network.h"

namespace hvd::test {
namespace {

int unix_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

// Without what fills it up.
std::string name_of(const std::string& id) { return id.substr(0, id.find('\0')); }

// Bound, or connected, to the abstract name `id`.
template <typename Call>
bool with_address(Call call, int socket, const std::string& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = name_of(id);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return call(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

bool send_bytes(int to, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto sent = ::send(to, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_bytes(int from, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const auto received = ::recv(from, at, bytes, 0);
    if (received <= 0) return false;
    at += received;
    bytes -= static_cast<std::size_t>(received);
  }
  return true;
}

bool send_text(int to, const std::string& text) {
  const std::uint64_t size = text.size();
  return send_bytes(to, &size, sizeof(size)) && send_bytes(to, text.data(), text.size());
}

bool receive_text(int from, std::string& text) {
  std::uint64_t size = 0;
  if (!receive_bytes(from, &size, sizeof(size))) return false;
  text.resize(size);
  return receive_bytes(from, text.data(), text.size());
}

class SocketRoom final : public Room {
 public:
  // `socket` listens, if this is rank 0; else it is connected to rank 0.
  SocketRoom(int socket, int rank, int size)
      : socket_(socket), rank_(rank), members_(static_cast<std::size_t>(size)) {
    const std::int32_t own = rank;
    if (rank != 0) send_bytes(socket, &own, sizeof(own));
  }

  bool meet(std::string mine, std::vector<std::string>& all) override {
    if (rank_ == 0 ? pass_on(std::move(mine), all) : ask(mine, all)) return true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return left_; });
    return false;
  }
  void leave() override {
    const std::lock_guard lock(mutex_);
    left_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    for (const auto& member : members_) {
      if (member) ::shutdown(member.get(), SHUT_RDWR);
    }
    changed_.notify_all();
  }

 private:
  // The data of a member is larger than a socket's buffer, so all members are read before any is
  // answered.
  bool pass_on(std::string mine, std::vector<std::string>& all) {
    if (!gather()) return false;
    all.assign(members_.size(), {});
    all[0] = std::move(mine);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (!receive_text(members_[rank].get(), all[rank])) return false;
    }
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      for (const auto& text : all) {
        if (!send_text(members_[rank].get(), text)) return false;
      }
    }
    return true;
  }
  bool ask(const std::string& mine, std::vector<std::string>& all) {
    all.assign(members_.size(), {});
    if (!send_text(socket_.get(), mine)) return false;
    for (auto& text : all) {
      if (!receive_text(socket_.get(), text)) return false;
    }
    return true;
  }
  bool gather() {
    for (; come_ < members_.size(); ++come_) {
      UniqueFd member(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::int32_t rank = 0;
      if (!member || !receive_bytes(member.get(), &rank, sizeof(rank))) return false;
      const std::lock_guard lock(mutex_);
      if (left_) return false;
      members_[static_cast<std::size_t>(rank)] = std::move(member);
    }
    return true;
  }

  UniqueFd socket_;
  int rank_;
  std::size_t come_ = 1;  // members that are here; this one is
  std::mutex mutex_;
  std::condition_variable changed_;
  bool left_ = false;              // under mutex_
  std::vector<UniqueFd> members_;  // of rank 0: its ends of the others' connections
};

}  // namespace

SocketNetwork::~SocketNetwork() {
  for (const auto& [id, listener] : listeners_) ::close(listener);
}

std::string SocketNetwork::new_id() {
  const std::lock_guard lock(mutex_);
  const int listener = unix_socket();
  std::string id = cat("hvd-host-gpu.", ::getpid(), ".", ++ids_);
  with_address(::bind, listener, id);
  ::listen(listener, SOMAXCONN);
  listeners_[id] = listener;
  id.resize(kIdSize);
  return id;
}

std::shared_ptr<Room> SocketNetwork::enter(const std::string& id, int rank, int size) {
  if (rank == 0) {
    const std::lock_guard lock(mutex_);
    const auto listener = listeners_.extract(name_of(id));
    return std::make_shared<SocketRoom>(listener ? listener.mapped() : -1, rank, size);
  }
  const int connection = unix_socket();
  with_address(::connect, connection, id);
  return std::make_shared<SocketRoom>(connection, rank, size);
}

}  // namespace hvd::test
