// Tells when a process has ended, by the descriptor that becomes readable then
// (base/descriptors.h, AgentHandle::ended_fd()).
//
// Asio's own wait is not enough. Asio may report a descriptor as readable because of an event of
// another one, which was closed in the same turn of the loop and whose place this one took. A
// waitpid() would then block the loop for as long as the process lives.
//
// For the thread of `io`, which outlives this.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "base/descriptors.h"

namespace hvd::driver {

class EndWatch {
 public:
  // Calls `on_end` once, from `io`, when the descriptor is readable, and not after the destructor.
  // `on_end` may destroy this.
  EndWatch(boost::asio::io_context& io, UniqueFd descriptor, std::function<void()> on_end);
  // The same with a duplicate of the descriptor.
  EndWatch(boost::asio::io_context& io, int descriptor, std::function<void()> on_end);
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
