#include "cmd/hvd-agent/driver_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <unistd.h>
#include <utility>

#include "base/text.h"

namespace hvd::agent {

Status DriverLink::receive() {
  std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const ssize_t got = ::read(in_.get(), buffer.data(), buffer.size());
  if (got > 0) {
    decoder_.feed({buffer.data(), static_cast<std::size_t>(got)});
    // Credentials of workers are in some messages.
    wipe(buffer.data(), static_cast<std::size_t>(got));
    return {};
  }
  if (got == 0) return {Code::unavailable, "the driver closed its end of the link"};
  if (errno == EAGAIN || errno == EINTR) return {};
  return Status::from_errno("read from the driver", errno);
}

void DriverLink::send_first(std::string frame) {
  waiting_bytes_ += frame.size();
  urgent_.push_back({agent_link::kAllWorkers, std::move(frame)});
}

void DriverLink::send(std::string frame) {
  waiting_bytes_ += frame.size();
  first_.push_back({agent_link::kAllWorkers, std::move(frame)});
}

void DriverLink::send_output(agent_link::Incarnation worker, std::string frame) {
  waiting_bytes_ += frame.size();
  ordered_.push_back({worker, std::move(frame)});
}

void DriverLink::send_in_order(agent_link::Incarnation worker, std::string frame) {
  waiting_bytes_ += frame.size();
  // Right behind the last of its own, in front of what only others wait for.
  const auto last = std::find_if(ordered_.rbegin(), ordered_.rend(),
                                 [&](const Item& item) { return item.worker == worker; });
  if (last == ordered_.rend()) {
    first_.push_back({worker, std::move(frame)});
  } else {
    ordered_.insert(last.base(), {worker, std::move(frame)});
  }
}

Status DriverLink::flush() {
  for (;;) {
    if (writing_.empty()) {
      auto& queue = !urgent_.empty() ? urgent_ : !first_.empty() ? first_ : ordered_;
      if (queue.empty()) return {};
      writing_ = std::move(queue.front().frame);
      queue.pop_front();
      written_ = 0;
    }
    const ssize_t done =
        ::write(out_.get(), writing_.data() + written_, writing_.size() - written_);
    if (done < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Status::from_errno("write to the driver", errno);
      if (waiting_bytes_ > kFarTooMuchWaiting) {
        return {Code::resource_exhausted, "the driver has stopped reading the link"};
      }
      return {};
    }
    written_ += static_cast<std::size_t>(done);
    waiting_bytes_ -= static_cast<std::size_t>(done);
    if (written_ == writing_.size()) writing_.clear();
  }
}

}  // namespace hvd::agent
