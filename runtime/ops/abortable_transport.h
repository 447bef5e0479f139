// A Gloo transport that passes everything on to another one, and can be aborted. Gloo's TCP
// transport tells a broken connection only to a waiter whose message has not begun:
// a waiter for the rest of a message that is half sent or half received runs into its timeout. So
// every buffer that a collective makes is known here, and abort() ends its waits.
//
// Aborting is for ever: the buffers stay known to connections that must be shut by then.
#pragma once

#include <atomic>
#include <gloo/transport/context.h>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace hvd::runtime {

class AbortableTransport final : public gloo::transport::Context {
 public:
  explicit AbortableTransport(std::shared_ptr<gloo::transport::Context> inner);
  ~AbortableTransport() override;

  // Gloo's names.
  // NOLINTBEGIN(readability-identifier-naming)
  std::unique_ptr<gloo::transport::Pair>& getPair(int rank) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      std::size_t size) override;
  // NOLINTEND(readability-identifier-naming)

  // From any thread: every wait under way ends with gloo::IoException, every later one at once.
  void abort();

 private:
  class Buffer;
  // The state that buffers share with the transport.
  struct Shared {
    std::mutex mutex;
    std::unordered_set<Buffer*> buffers;  // guarded by mutex
    std::atomic<bool> aborted = false;
  };

  std::shared_ptr<gloo::transport::Context> inner_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::runtime
