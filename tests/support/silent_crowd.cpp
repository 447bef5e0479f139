#include "tests/support/silent_crowd.h"

#include <arpa/inet.h>
#include <cerrno>
#include <poll.h>
#include <vector>

#include "base/descriptors.h"
#include "base/machine/machine.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

constexpr std::size_t kMostInAll = 30'000;
constexpr std::size_t kAtOnce = 200;  // before those that were closed are looked for again

UniqueFd connection(const std::string& from, const SocketAddress& where) {
  auto target = raw_address(where);
  auto source = raw_address({from, 0});
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), source->get(), source->size) != 0) return {};
  if (::connect(fd.get(), target->get(), target->size) != 0 && errno != EINPROGRESS) return {};
  return fd;
}

}  // namespace

SilentCrowd::SilentCrowd(SocketAddress where, std::size_t count, std::string from)
    : where_(std::move(where)), count_(count), from_(std::move(from)) {
  raise_open_files();
  thread_ = std::thread([this] { loop(); });
}

SilentCrowd::~SilentCrowd() {
  stopping_ = true;
  thread_.join();
}

bool SilentCrowd::wait_for(std::size_t made) const {
  return eventually([&] { return made_ >= made; });
}

void SilentCrowd::loop() {
  std::vector<UniqueFd> sockets;
  std::vector<pollfd> polled;
  while (!stopping_) {
    for (std::size_t i = 0; i < kAtOnce && sockets.size() < count_ && made_ < kMostInAll; ++i) {
      auto fd = connection(from_, where_);
      if (!fd) break;
      sockets.push_back(std::move(fd));
      ++made_;
    }
    polled.clear();
    for (const auto& fd : sockets) polled.push_back({fd.get(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), 10);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      if (polled[i].revents == 0) std::swap(sockets[kept++], sockets[i]);
    }
    sockets.resize(kept);
  }
}

}  // namespace hvd::test
