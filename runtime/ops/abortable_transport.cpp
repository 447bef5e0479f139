#include "runtime/ops/abortable_transport.h"

#include <gloo/common/error.h>
#include <vector>

namespace hvd::runtime {

// NOLINTBEGIN(readability-identifier-naming): Gloo's names
class AbortableTransport::Buffer final : public gloo::transport::UnboundBuffer {
 public:
  Buffer(std::shared_ptr<Shared> shared, std::unique_ptr<gloo::transport::UnboundBuffer> inner)
      : gloo::transport::UnboundBuffer(inner->ptr, inner->size),
        shared_(std::move(shared)),
        inner_(std::move(inner)) {
    const std::lock_guard lock(shared_->mutex);
    shared_->buffers.insert(this);
  }
  ~Buffer() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->buffers.erase(this);
  }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    refuse_if_aborted();
    const bool done = inner_->waitRecv(rank, timeout);
    if (!done) refuse_if_aborted();
    return done;
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    refuse_if_aborted();
    const bool done = inner_->waitSend(rank, timeout);
    if (!done) refuse_if_aborted();
    return done;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->send(rank, slot, offset, bytes);
  }
  void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) override {
    inner_->recv(rank, slot, offset, bytes);
  }
  void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
            std::size_t bytes) override {
    inner_->recv(std::move(ranks), slot, offset, bytes);
  }

 private:
  void refuse_if_aborted() const {
    if (shared_->aborted) throw gloo::IoException("the data connections were shut");
  }

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
};

AbortableTransport::AbortableTransport(std::shared_ptr<gloo::transport::Context> inner)
    : gloo::transport::Context(inner->rank, inner->size),
      inner_(std::move(inner)),
      shared_(std::make_shared<Shared>()) {}

AbortableTransport::~AbortableTransport() = default;

std::unique_ptr<gloo::transport::Pair>& AbortableTransport::getPair(int peer) {
  return inner_->getPair(peer);
}

std::unique_ptr<gloo::transport::Pair>& AbortableTransport::createPair(int peer) {
  return inner_->createPair(peer);
}

std::unique_ptr<gloo::transport::UnboundBuffer> AbortableTransport::createUnboundBuffer(
    void* ptr, std::size_t bytes) {
  return std::make_unique<Buffer>(shared_, inner_->createUnboundBuffer(ptr, bytes));
}
// NOLINTEND(readability-identifier-naming)

void AbortableTransport::abort() {
  const std::lock_guard lock(shared_->mutex);
  // First the flag: each waiter that wakes up, and each later call, must see it.
  shared_->aborted = true;
  for (Buffer* const buffer : shared_->buffers) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

}  // namespace hvd::runtime
