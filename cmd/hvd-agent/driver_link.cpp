#include "cmd/hvd-agent/driver_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <unistd.h>
#include <utility>

#include "base/text.h"

namespace hvd::agent {
namespace {

agent_link::Kind kind_of(const std::string& frame) {
  std::uint16_t kind = 0;
  std::memcpy(&kind, frame.data() + kFrameHeaderSize - sizeof(kind), sizeof(kind));
  return static_cast<agent_link::Kind>(le16toh(kind));
}

// Of a worker, and still true for a later driver. Few come of each worker.
bool is_report(agent_link::Kind kind) {
  using agent_link::Kind;
  switch (kind) {
    case Kind::launched:
    case Kind::launch_failed:
    case Kind::output_closed:
    case Kind::exited:
    case Kind::worker_initialised:
    case Kind::worker_done:
    case Kind::worker_ready:
    case Kind::worker_leaves:
    case Kind::worker_left:
    case Kind::world_committed:
    case Kind::host_leaves:
      return true;
    default:
      return false;
  }
}

}  // namespace

void DriverLink::cut() {
  in_.reset();
  out_.reset();
  decoder_ = FrameDecoder();
  writing_.clear();
  written_ = 0;
  urgent_.clear();
  first_.clear();
  ordered_.clear();
  waiting_bytes_ = 0;
}

void DriverLink::renew(UniqueFd in, UniqueFd out, std::string_view received) {
  cut();
  in_ = std::move(in);
  out_ = std::move(out);
  decoder_.feed(received);
}

void DriverLink::repeat_reports(const std::function<void(const agent_link::Output&)>& on_output) {
  const auto repeat = [this](std::string frame) {
    waiting_bytes_ += frame.size();
    first_.push_back({agent_link::kAllWorkers, std::move(frame)});
  };
  auto kept = kept_output_.begin();
  for (std::size_t i = 0; i <= reports_.size(); ++i) {
    for (; kept != kept_output_.end() && kept->reports_before == i; ++kept) {
      on_output(kept->output);
      repeat(kept->output.encode());
    }
    if (i < reports_.size()) repeat(reports_[i]);
  }
  kept_output_.clear();
  kept_size_ = 0;
}

void DriverLink::keep_output(const agent_link::Output& output) {
  KeptOutput* const last = kept_output_.empty() ? nullptr : &kept_output_.back();
  const bool continues =
      last != nullptr && last->reports_before == reports_.size() &&
      last->output.incarnation == output.incarnation && last->output.stream == output.stream &&
      last->output.bytes.size() + output.bytes.size() <= agent_link::kMaxOutputChunk;
  if (continues) {
    last->output.bytes += output.bytes;
  } else {
    kept_output_.push_back({output, reports_.size()});
    kept_size_ += kCostOfPiece;
  }
  kept_size_ += output.bytes.size();

  while (kept_size_ > kMostKeptOutput) {
    const std::size_t bytes = kept_output_.front().output.bytes.size();
    dropped_output_ += bytes;
    kept_size_ -= bytes + kCostOfPiece;
    kept_output_.pop_front();
  }
}

DriverLink::Parts DriverLink::release() {
  Parts parts{std::move(in_), std::move(out_), decoder_.take_rest()};
  cut();
  return parts;
}

bool DriverLink::takes(const std::string& frame) {
  if (keeps_reports_ && is_report(kind_of(frame))) reports_.push_back(frame);
  if (is_cut()) return false;
  waiting_bytes_ += frame.size();
  return true;
}

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
  if (!takes(frame)) return;
  urgent_.push_back({agent_link::kAllWorkers, std::move(frame)});
}

void DriverLink::send(std::string frame) {
  if (!takes(frame)) return;
  first_.push_back({agent_link::kAllWorkers, std::move(frame)});
}

void DriverLink::send_output(const agent_link::Output& output) {
  if (is_cut()) return keep_output(output);
  std::string frame = output.encode();
  waiting_bytes_ += frame.size();
  ordered_.push_back({output.incarnation, std::move(frame)});
}

void DriverLink::send_in_order(agent_link::Incarnation worker, std::string frame) {
  if (!takes(frame)) return;
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
