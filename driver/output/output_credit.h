// Flow control of the workers' output: counts the bytes that the observer still holds, and returns
// consumed bytes to their agent as credit (base/protocol/agent_link.h). Credit is returned once a
// good part of the window is owed, so that a worker with little output costs no wake-up at all.
//
// All functions are for the driver's thread. The functions that take() returns may be called from
// any thread, even after close().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/protocol/agent_link.h"
#include "base/status.h"

namespace hvd::driver {

class OutputCredit {
 public:
  using Send = std::function<void(const agent_link::Credit& credit)>;
  using Post = std::function<void(std::function<void()> work)>;

  // `send` is called on the driver's thread; `post` runs work on that thread and may be called from
  // any.
  OutputCredit(Send send, Post post);
  ~OutputCredit();
  OutputCredit(const OutputCredit&) = delete;
  OutputCredit& operator=(const OutputCredit&) = delete;

  // Bytes have arrived. Returns the function that the observer calls once when it has consumed
  // them, or an error if the agent has exceeded its window. After waive() the function is empty if
  // the observer still holds a whole window of this stream: these bytes are to be discarded.
  Result<std::function<void()>> take(agent_link::Incarnation worker, agent_link::Stream stream,
                                     std::size_t bytes);
  // This stream has ended. Its account is deleted once the observer holds nothing of it.
  void end(agent_link::Incarnation worker, agent_link::Stream stream);
  // From now on credit is returned at once, and output that the observer has no room for is lost.
  // For a job that is being killed while its output is not read.
  void waive();
  // The number of streams with an account.
  std::size_t accounts() const;
  // From now on no credit is sent any more.
  void close();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::driver
