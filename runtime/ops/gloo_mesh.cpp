#include "runtime/ops/gloo_mesh.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <netinet/in.h>
#include <set>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/text.h"
#include "base/wire.h"
#include "runtime/ops/abortable_transport.h"

namespace hvd::runtime {
namespace {

namespace tcp = gloo::transport::tcp;

// The bytes of an IP address and port, to be compared; empty for anything else.
std::string endpoint_of(const sockaddr_storage& storage) {
  std::string endpoint;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    endpoint.append(reinterpret_cast<const char*>(&v4.sin_addr), sizeof(v4.sin_addr));
    endpoint.append(reinterpret_cast<const char*>(&v4.sin_port), sizeof(v4.sin_port));
  } else if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    endpoint.append(reinterpret_cast<const char*>(&v6.sin6_addr), sizeof(v6.sin6_addr));
    endpoint.append(reinterpret_cast<const char*>(&v6.sin6_port), sizeof(v6.sin6_port));
  }
  return endpoint;
}

std::string endpoint_of_socket(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return endpoint_of(storage);
}

std::string endpoint_of_peer(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return endpoint_of(storage);
}

// A pair's address as Gloo writes it begins with the sockaddr_storage.
std::string endpoint_of_gloo(const std::vector<char>& bytes) {
  sockaddr_storage storage{};
  if (bytes.size() < sizeof(storage)) return {};
  std::memcpy(&storage, bytes.data(), sizeof(storage));
  return endpoint_of(storage);
}

// The pair with the greater address connects, the other one accepts: Gloo's rule.
bool connects(const std::string& own_endpoint, const std::string& peer_endpoint) {
  const std::size_t address_size = own_endpoint.size() - sizeof(std::uint16_t);
  const int order = own_endpoint.compare(0, address_size, peer_endpoint, 0, address_size);
  if (order != 0) return order > 0;
  std::uint16_t own_port = 0;
  std::uint16_t peer_port = 0;
  std::memcpy(&own_port, own_endpoint.data() + address_size, sizeof(own_port));
  std::memcpy(&peer_port, peer_endpoint.data() + address_size, sizeof(peer_port));
  return own_port > peer_port;
}

Result<tcp::attr> attributes_for(const std::string& address) {
  // Filled in by hand: Gloo would ask the resolver, which may take seconds where there is none.
  tcp::attr attr;
  attr.hostname = address;
  attr.ai_socktype = SOCK_STREAM;
  attr.ai_protocol = 0;
  attr.ai_addr = {};
  auto& v4 = reinterpret_cast<sockaddr_in&>(attr.ai_addr);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(attr.ai_addr);
  if (::inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
    attr.ai_family = v4.sin_family = AF_INET;
    attr.ai_addrlen = sizeof(v4);
  } else if (::inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    attr.ai_family = v6.sin6_family = AF_INET6;
    attr.ai_addrlen = sizeof(v6);
  } else {
    return Status(Code::invalid_argument, cat("\"", address, "\" is not an IP address"));
  }
  return attr;
}

std::vector<int> all_but(int rank, int size) {
  std::vector<int> others;
  for (int other = 0; other < size; ++other) {
    if (other != rank) others.push_back(other);
  }
  return others;
}

}  // namespace

// Gloo's loop sleeps up to 10 ms between two looks at its surroundings, and a thread that takes a
// descriptor out of it waits for the next look: once per pair when connecting, once when closing. A
// timer that only wakes the loop makes that a fraction of a millisecond.
class GlooMesh::Ticker final : public tcp::Handler {
 public:
  Ticker() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}
  void attach(tcp::Device& device) {
    if (timer_) device.registerDescriptor(timer_.get(), EPOLLIN, this);
  }
  void run(bool on) {
    itimerspec period{};
    if (on) period.it_value.tv_nsec = period.it_interval.tv_nsec = 200'000;
    if (timer_) ::timerfd_settime(timer_.get(), 0, &period, nullptr);
  }
  void handleEvents(int /*events*/) override {  // NOLINT(readability-identifier-naming): Gloo's
    std::uint64_t expirations = 0;
    [[maybe_unused]] const auto got = ::read(timer_.get(), &expirations, sizeof(expirations));
  }

 private:
  UniqueFd timer_;
};

struct GlooMesh::Gloo {
  std::shared_ptr<tcp::Device> device;
  std::shared_ptr<gloo::transport::Context> transport;
};

GlooMesh::GlooMesh(const MeshOptions& options)
    : options_(options),
      partners_(all_but(options.rank, options.size)),
      ticker_(std::make_unique<Ticker>()),
      gloo_(std::make_unique<Gloo>()) {}

GlooMesh::~GlooMesh() {
  ticker_->run(true);
  abort({});
  {
    const std::lock_guard lock(mutex_);
    descriptors_.clear();
  }
  transport_.reset();
  gloo_.reset();
}

Result<std::unique_ptr<GlooMesh>> GlooMesh::create(const MeshOptions& options) {
  std::unique_ptr<GlooMesh> mesh(new GlooMesh(options));
  HVD_RETURN_IF_ERROR(mesh->listen());
  return mesh;
}

Status GlooMesh::listen() {
  auto attr = attributes_for(options_.bind_address);
  HVD_RETURN_IF_ERROR(attr.status());
  try {
    gloo_->device = std::make_shared<tcp::Device>(*attr);
    ticker_->attach(*gloo_->device);
    ticker_->run(true);
    gloo_->transport = gloo_->device->createContext(options_.rank, options_.size);
    // Gloo waits five times as long for a connection as it does for anything else.
    gloo_->transport->setTimeout(
        std::max(options_.connect_timeout / 5, std::chrono::milliseconds(1)));
    for (const int partner : partners_) gloo_->transport->createPair(partner);
    transport_ = std::make_shared<AbortableTransport>(gloo_->transport);
  } catch (const std::exception& error) {
    return {Code::unavailable,
            cat("listen on ", options_.bind_address, " for data: ", error.what())};
  }
  keep_descriptors();
  return {};
}

std::string GlooMesh::address() const {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(partners_.size()));
  for (const int partner : partners_) {
    const auto bytes = gloo_->transport->getPair(partner)->address().bytes();
    out.i32(partner).str({bytes.data(), bytes.size()});
  }
  return out.take();
}

Status GlooMesh::connect_pair(int partner, const std::string& bytes) {
  try {
    gloo_->transport->getPair(partner)->connect({bytes.begin(), bytes.end()});
  } catch (const std::exception& error) {
    return {Code::unavailable, cat("connect to rank ", partner, " for data: ", error.what())};
  }
  return {};
}

Status GlooMesh::connect(const std::vector<std::string>& addresses) {
  struct Peer {
    int rank;
    std::string bytes;
    bool we_connect;
  };
  std::vector<Peer> peers;
  for (const int partner : partners_) {
    WireReader in(addresses[static_cast<std::size_t>(partner)]);
    std::string for_us;
    for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
      const int rank = in.i32();
      const auto bytes = in.view();
      if (rank == options_.rank) for_us = bytes;
    }
    HVD_RETURN_IF_ERROR(in.finish(cat("data addresses of rank ", partner)));
    const auto own_bytes = gloo_->transport->getPair(partner)->address().bytes();
    const auto own = endpoint_of_gloo(own_bytes);
    const auto theirs = endpoint_of_gloo({for_us.begin(), for_us.end()});
    if (for_us.size() != own_bytes.size() || theirs.size() != own.size() || own.empty()) {
      return {Code::data_loss, cat("rank ", partner, " gave no address for data that rank ",
                                   options_.rank, " could connect to")};
    }
    peers.push_back({partner, for_us, connects(own, theirs)});
    if (peers.back().we_connect) dialled_.insert(theirs);
  }
  // Peers that we connect to answer by themselves; peers that connect to us do so in their own
  // time. In this order there is no circle of waiting ranks.
  std::stable_partition(peers.begin(), peers.end(), [](const Peer& p) { return p.we_connect; });
  for (const auto& peer : peers) {
    if (aborted_) return {Code::aborted, "connecting was aborted"};
    HVD_RETURN_IF_ERROR(connect_pair(peer.rank, peer.bytes));
  }
  keep_descriptors();
  ticker_->run(false);
  if (aborted_) return {Code::aborted, "connecting was aborted"};
  return {};
}

gloo::transport::Context& GlooMesh::transport() const { return *transport_; }

// A connected pair calls its address what its socket is bound to. Where Gloo has connected, the
// kernel chose that port, and may have chosen it for other connections of this process, too, as
// long as they lead elsewhere: so there, the other end must be right as well.
void GlooMesh::keep_descriptors() {
  std::set<std::string> wanted;
  for (const int partner : partners_) {
    wanted.insert(endpoint_of_gloo(gloo_->transport->getPair(partner)->address().bytes()));
  }
  wanted.erase(std::string());
  if (listening_.empty()) listening_ = wanted;
  const auto is_ours = [&](int fd) {
    const auto own = endpoint_of_socket(fd);
    return wanted.contains(own) &&
           (listening_.contains(own) || dialled_.contains(endpoint_of_peer(fd)));
  };
  std::vector<UniqueFd> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), &::closedir);
  if (!directory) return;
  while (const dirent* const item = ::readdir(directory.get())) {
    const auto fd = parse_number<int>(item->d_name);
    if (!fd || !is_ours(*fd)) continue;
    // Between the look and the duplicate the number may have changed hands: only the duplicate is
    // believed.
    UniqueFd duplicate(::fcntl(*fd, F_DUPFD_CLOEXEC, 0));
    if (!duplicate || !is_ours(duplicate.get())) continue;
    // Gloo leaves its descriptors open to programs that this one starts.
    ::fcntl(*fd, F_SETFD, FD_CLOEXEC);
    found.push_back(std::move(duplicate));
  }
  const std::lock_guard lock(mutex_);
  descriptors_.swap(found);
  if (aborted_) {
    for (const auto& fd : descriptors_) ::shutdown(fd.get(), SHUT_RDWR);
  }
}

// Gloo's exceptions say what they say.
void GlooMesh::abort(const Status& /*why*/) {
  const std::lock_guard lock(mutex_);
  if (aborted_.exchange(true)) return;
  for (const auto& fd : descriptors_) ::shutdown(fd.get(), SHUT_RDWR);
  if (transport_) transport_->abort();
}

}  // namespace hvd::runtime
