// The account of workers' output that the observer still holds. Bytes that it has consumed are
// returned to their agent as credit (base/protocol/agent_link.h), not one by one but when a good
// part of the window is owed, so that a worker that prints little costs no wake-up at all.
//
// take() and close() belong to the driver's thread. What receipt() returns may be called from any
// thread, also after close().
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

  // `send` is called on the driver's thread; `post` brings work there from any thread.
  OutputCredit(Send send, Post post);
  ~OutputCredit();
  OutputCredit(const OutputCredit&) = delete;
  OutputCredit& operator=(const OutputCredit&) = delete;

  // Bytes have arrived. Returns what the observer calls once when it is done with them; an error if
  // the agent sent more than its window. After forgive() the function is empty if the observer
  // still holds a whole window of this stream: then these bytes are not for it.
  Result<std::function<void()>> take(agent_link::Incarnation worker, agent_link::Stream stream,
                                     std::size_t bytes);
  // Nothing more will come of this stream; its account goes when the observer holds nothing of it.
  void end(agent_link::Incarnation worker, agent_link::Stream stream);
  // From now on nobody waits for the observer: everything is paid at once, and what it has no room
  // for is lost. For a job that is being killed while its reader stands still.
  void forgive();
  // How many streams there is an account of.
  std::size_t accounts() const;
  // From now on nothing is sent any more.
  void close();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd::driver
