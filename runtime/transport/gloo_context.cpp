#include "runtime/transport/gloo_context.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text.h"

// NOLINTBEGIN(readability-identifier-naming): Gloo's names
namespace hvd::runtime {
namespace {

namespace transport = gloo::transport;

[[noreturn]] void refuse(const std::string& why) { throw gloo::InvalidOperationException(why); }

void check(const Status& status) {
  if (status.ok()) return;
  if (status.code() == Code::invalid_argument) refuse(status.message());
  throw TransportError(status);
}

class Buffer final : public transport::UnboundBuffer {
 public:
  Buffer(std::shared_ptr<Messenger> messenger, const transport::Context& context, void* data,
         std::size_t bytes)
      : transport::UnboundBuffer(data, bytes),
        messenger_(std::move(messenger)),
        default_timeout_(context.getTimeout()) {}
  ~Buffer() override { messenger_->forget(endpoint_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    return wait(Direction::receive, rank, timeout);
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    return wait(Direction::send, rank, timeout);
  }
  void abortWaitRecv() override { messenger_->release(endpoint_, Direction::receive); }
  void abortWaitSend() override { messenger_->release(endpoint_, Direction::send); }

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    bytes = part(offset, bytes);
    check(messenger_->send(endpoint_, to, slot, at(offset), bytes));
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    bytes = part(offset, bytes);
    check(messenger_->receive(endpoint_, {&from, 1}, slot, at(offset), bytes));
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    bytes = part(offset, bytes);
    check(messenger_->receive(endpoint_, from, slot, at(offset), bytes));
  }

 private:
  std::byte* at(std::size_t offset) const {
    return static_cast<std::byte*>(ptr) + std::min(offset, size);
  }
  // The bytes meant, which must lie in the buffer. Gloo's ring sends none of them from anywhere.
  std::size_t part(std::size_t offset, std::size_t bytes) const {
    if (bytes == 0) return 0;
    if (offset <= size) {
      if (bytes == kUnspecifiedByteCount) return size - offset;
      if (bytes <= size - offset) return bytes;
    }
    refuse(cat(bytes, " bytes from ", offset, " on: the buffer has ", size));
  }
  bool wait(Direction direction, int* rank, std::chrono::milliseconds timeout) {
    if (timeout == transport::kUnsetTimeout) timeout = default_timeout_;
    const auto ended = messenger_->wait(endpoint_, direction, timeout);
    check(ended.status());
    if (!ended->has_value()) return false;
    if (rank != nullptr) *rank = **ended;
    return true;
  }

  std::shared_ptr<Messenger> messenger_;
  std::chrono::milliseconds default_timeout_;
  Endpoint endpoint_;
};

class NoAddress final : public transport::Address {
 public:
  std::string str() const override { return "by rank"; }
  std::vector<char> bytes() const override { return {}; }
};

// Algorithms ask that there is one; messages go through the buffers. The functions that newer
// versions of Gloo ask for beyond Debian's are here without "override", so that the class fits all
// of them.
class Pair final : public transport::Pair {
 public:
  Pair(int rank, std::shared_ptr<Messenger> messenger)
      : rank_(rank), messenger_(std::move(messenger)) {
    localRank_ = 0;
  }
  const transport::Address& address() const override { return address_; }
  void connect(const std::vector<char>& /*bytes*/) override {}
  void close() override {}
  void setSync(bool /*enable*/, bool /*busyPoll*/) override {}
  std::unique_ptr<transport::Buffer> createSendBuffer(int /*slot*/, void* /*ptr*/,
                                                      std::size_t /*size*/) override {
    refuse("this transport has no bound buffers");
  }
  std::unique_ptr<transport::Buffer> createRecvBuffer(int /*slot*/, void* /*ptr*/,
                                                      std::size_t /*size*/) override {
    refuse("this transport has no bound buffers");
  }
  void send(transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    buffer->send(rank_, slot, offset, bytes);
  }
  void recv(transport::UnboundBuffer* buffer, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    buffer->recv(rank_, slot, offset, bytes);
  }
  // NOLINTBEGIN(modernize-use-override)
  virtual bool isConnected() { return messenger_->failure().ok(); }
  virtual int getPeerRank() const { return rank_; }

 protected:
  virtual const transport::Address& peer() const { return address_; }
  // NOLINTEND(modernize-use-override)

 private:
  int rank_;
  std::shared_ptr<Messenger> messenger_;
  NoAddress address_;
};

class Context final : public transport::Context {
 public:
  Context(int own_rank, int all, std::shared_ptr<Messenger> messenger)
      : transport::Context(own_rank, all), messenger_(std::move(messenger)) {
    for (int peer = 0; peer < all; ++peer) {
      if (peer != own_rank) createPair(peer);
    }
  }
  std::unique_ptr<transport::Pair>& createPair(int peer) override {
    auto& pair = pairs_.at(static_cast<std::size_t>(peer));
    if (!pair) pair = std::make_unique<Pair>(peer, messenger_);
    return pair;
  }
  std::unique_ptr<transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                std::size_t bytes) override {
    return std::make_unique<Buffer>(messenger_, *this, data, bytes);
  }

 private:
  std::shared_ptr<Messenger> messenger_;
};

}  // namespace

std::shared_ptr<gloo::transport::Context> make_gloo_context(int rank, int size,
                                                            std::shared_ptr<Messenger> messenger,
                                                            std::chrono::milliseconds timeout) {
  auto context = std::make_shared<Context>(rank, size, std::move(messenger));
  context->setTimeout(timeout);
  return context;
}

}  // namespace hvd::runtime
// NOLINTEND(readability-identifier-naming)
