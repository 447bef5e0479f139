#include "runtime/transport/link.h"

#include <algorithm>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <utility>

#include "base/text.h"

namespace hvd::runtime {

void Link::open(UniqueFd fd, const SessionKeys& keys, Protection protection) {
  if (protection != Protection::none) {
    incoming_.protect(RecordCipher(keys.to_receive, protection));
    outgoing_.protect(RecordCipher(keys.to_send, protection));
  }
  incoming_.open();
  fd_ = std::move(fd);
  state_ = State::open;
}

void Link::close(Status why) {
  missed_ = missed_ || is_stuck_sending() || incoming_.is_awaited();
  state_ = State::closed;
  closed_because_ = std::move(why);
  fd_.reset();
  readable_ = writable_ = false;
  outgoing_.drop_all();
  incoming_.close();
}

void Link::mark(bool readable, bool writable, bool hung_up) {
  readable_ = readable_ || readable || hung_up;
  writable_ = writable_ || writable || hung_up;
  hung_up_ = hung_up_ || hung_up;
}

bool Link::forget(const Endpoint& endpoint) {
  if (outgoing_.has_message_of(endpoint) || !incoming_.may_forget(endpoint)) return false;
  incoming_.forget(endpoint);
  return true;
}

bool Link::serves(const Endpoint& endpoint, Direction direction) const {
  return direction == Direction::send ? outgoing_.has_message_of(endpoint)
                                      : incoming_.serves(endpoint);
}

std::uint64_t Link::moved(Direction direction) const {
  if (direction == Direction::receive) return all_read();
  int queued = 0;  // not acknowledged by the other end
  if (!fd_ || ::ioctl(fd_.get(), SIOCOUTQ, &queued) != 0) queued = 0;
  return all_written() - std::min(static_cast<std::uint64_t>(queued), all_written());
}

std::string Link::explain() const {
  if (holds_up()) return incoming_.explain();
  if (state_ == State::awaited) return cat("there is no data connection with rank ", rank());
  return {};
}

}  // namespace hvd::runtime
