#include "runtime/transport/link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#include "base/machine/bulk_copy.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
constexpr std::size_t kSendParts = 16;  // of one system call: eight messages

// Whether a message has ended with this part of it.
bool is_last(const std::shared_ptr<Stripes>& stripes) { return !stripes || --stripes->left == 0; }

}  // namespace

void Link::open(UniqueFd fd) {
  fd_ = std::move(fd);
  state_ = State::open;
  stage_.reset(new std::byte[kStageBytes]);
}

void Link::close(Status why) {
  missed_ = missed_ || is_awaited();
  state_ = State::closed;
  closed_because_ = std::move(why);
  fd_.reset();
  readable_ = writable_ = false;
  stopped_ = in_message_ = false;
  outgoing_.clear();
  for (const auto& receive : expected_) {
    if (!receive->taken) --receive->sources;
  }
  expected_.clear();
  receive_.reset();
  keeping_ = nullptr;
  // Messages that have arrived whole can still be had.
  while (!kept_.empty() && !kept_.back().whole) {
    unexpected_.bytes_left += kept_.back().header.bytes;
    kept_.pop_back();
  }
  stage_.reset();
  stage_begin_ = stage_end_ = 0;
}

void Link::mark(bool readable, bool writable, bool hung_up) {
  readable_ = readable_ || readable || hung_up;
  writable_ = writable_ || writable || hung_up;
  hung_up_ = hung_up_ || hung_up;
}

bool Link::is_needed() const {
  if (!outgoing_.empty() || receive_) return true;
  return std::any_of(expected_.begin(), expected_.end(), [](const auto& receive) {
    return !receive->taken && (receive->sources == 1 || receive->is_begun());
  });
}

bool Link::is_awaited() const {
  if (!outgoing_.empty() || receive_) return true;
  return std::any_of(expected_.begin(), expected_.end(), [this](const auto& receive) {
    return !receive->taken && receive->may_be_from(rank_);
  });
}

bool Link::serves(const Endpoint& endpoint, Direction direction) const {
  if (direction == Direction::send) {
    return std::any_of(outgoing_.begin(), outgoing_.end(),
                       [&](const Outgoing& message) { return message.endpoint == &endpoint; });
  }
  if (receive_ && receive_->endpoint == &endpoint) return true;
  return std::any_of(expected_.begin(), expected_.end(), [&](const auto& receive) {
    return receive->endpoint == &endpoint && !receive->taken && receive->may_be_from(rank_);
  });
}

std::uint64_t Link::moved(Direction direction) const {
  if (direction == Direction::receive) return all_read_;
  int queued = 0;  // not acknowledged by the other end
  if (!fd_ || ::ioctl(fd_.get(), SIOCOUTQ, &queued) != 0) queued = 0;
  return all_written_ - std::min(static_cast<std::uint64_t>(queued), all_written_);
}

std::string Link::explain() const {
  if (stopped_) {
    return cat("the next message of rank ", rank_, " has ", header_.bytes, " bytes and slot ",
               header_.slot, ", which rank ", own_rank_, " does not expect");
  }
  if (state_ == State::awaited) return cat("there is no data connection with rank ", rank_);
  return {};
}

// --- out ----------------------------------------------------------------------------------------

void Link::send(Endpoint& endpoint, std::uint64_t slot, const std::byte* data, std::size_t bytes,
                std::shared_ptr<Stripes> stripes) {
  MessageHeader header;
  header.sequence = next_sequence_++;
  header.slot = slot;
  header.bytes = bytes;
  outgoing_.push_back({&endpoint, header, data, std::move(stripes)});
}

Status Link::move_out(std::vector<Ended>& ended) {
  std::size_t moved = 0;
  while (writable_ && !outgoing_.empty() && moved < kMoveBytes) {
    std::array<iovec, kSendParts> parts{};
    std::size_t count = 0;
    std::size_t asked = 0;
    std::size_t skip = written_;
    const auto add = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      bytes = std::min(bytes - skipped, kMoveBytes - std::min(asked, kMoveBytes));
      if (bytes == 0) return;
      const auto* const from = static_cast<const std::byte*>(data) + skipped;
      parts.at(count++) = {const_cast<std::byte*>(from), bytes};
      asked += bytes;
    };
    for (const auto& message : outgoing_) {
      if (count + 2 > kSendParts || asked >= kMoveBytes) break;
      add(&message.header, kHeaderBytes);
      add(message.data, message.header.bytes);
    }
    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        writable_ = false;
        return {};
      }
      return Status::from_errno(cat("rank ", rank_, " is gone: send"), errno);
    }
    moved += static_cast<std::size_t>(sent);
    all_written_ += static_cast<std::size_t>(sent);
    written_ += static_cast<std::size_t>(sent);
    while (!outgoing_.empty()) {
      const auto& message = outgoing_.front();
      const std::size_t all = kHeaderBytes + message.header.bytes;
      if (written_ < all) break;
      written_ -= all;
      if (is_last(message.stripes)) {
        ended.push_back({message.endpoint, Direction::send, rank_, message.stripes});
      }
      outgoing_.pop_front();
    }
  }
  return {};
}

bool Link::forget(const Endpoint& endpoint) {
  if (receive_ && receive_->endpoint == &endpoint) return false;
  for (const auto& message : outgoing_) {
    if (message.endpoint == &endpoint) return false;
  }
  for (const auto& receive : expected_) {
    if (receive->endpoint == &endpoint && !receive->taken && receive->is_begun()) return false;
  }
  std::erase_if(expected_, [&](const auto& receive) { return receive->endpoint == &endpoint; });
  return true;
}

// --- in -----------------------------------------------------------------------------------------

std::uint64_t Link::waiting_since(const Receive& receive) const {
  for (const auto& kept : kept_) {
    if (kept.header.slot == receive.slot) return kept.since;
  }
  return stopped_ && header_.slot == receive.slot ? since_ : 0;
}

// The message is for this receive.
Status Link::claim(const MessageHeader& header, Receive& receive) const {
  if (header.bytes == receive.bytes) {
    receive.taken = true;
    if (receive.stripes) receive.stripes->rank = rank_;
    return {};
  }
  return {Code::data_loss,
          cat("rank ", rank_, " sent a message of ", header.bytes, " bytes where rank ", own_rank_,
              " expects ", receive.bytes, " (slot ", header.slot, ")")};
}

Status Link::put_into(std::shared_ptr<Receive> receive) {
  HVD_RETURN_IF_ERROR(claim(header_, *receive));
  place_ = receive->data;
  receive_ = std::move(receive);
  stopped_ = false;
  return {};
}

Status Link::take_waiting(const std::shared_ptr<Receive>& receive, std::vector<Ended>& ended) {
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& message) {
    return message.header.slot == receive->slot;
  });
  if (kept == kept_.end()) return put_into(receive);
  const bool whole = kept->whole;
  const std::size_t there = whole ? kept->header.bytes : received_;
  if (whole) {
    HVD_RETURN_IF_ERROR(claim(kept->header, *receive));
    if (is_last(receive->stripes)) {
      ended.push_back({receive->endpoint, Direction::receive, rank_, receive->stripes});
    }
  } else {
    HVD_RETURN_IF_ERROR(put_into(receive));
    keeping_ = nullptr;
  }
  if (there > 0) bulk_copy(receive->data, kept->data.get(), there);
  unexpected_.bytes_left += kept->header.bytes;
  kept_.erase(kept);
  return {};
}

bool Link::keep() {
  if (header_.bytes > unexpected_.bytes_left) return false;
  auto memory = std::make_unique_for_overwrite<std::byte[]>(header_.bytes);
  unexpected_.bytes_left -= header_.bytes;
  kept_.push_back({header_, std::move(memory), since_});
  keeping_ = &kept_.back();
  place_ = keeping_->data.get();
  stopped_ = false;
  return true;
}

void Link::keep_what_holds_up() {
  if (stopped_) keep();
}

Status Link::begin_message() {
  std::memcpy(&header_, stage_.get() + stage_begin_, kHeaderBytes);
  stage_begin_ += kHeaderBytes;
  if (header_.magic != MessageHeader::kMagic || header_.sequence != expected_sequence_) {
    return {Code::data_loss,
            cat("rank ", rank_, " sent a malformed message on its data connection")};
  }
  ++expected_sequence_;
  in_message_ = true;
  received_ = 0;
  since_ = ++unexpected_.arrivals;
  std::erase_if(expected_, [](const auto& receive) { return receive->taken; });
  const auto match = std::find_if(expected_.begin(), expected_.end(), [&](const auto& receive) {
    return receive->slot == header_.slot && receive->may_be_from(rank_);
  });
  if (match != expected_.end()) {
    auto receive = *match;
    expected_.erase(match);
    return put_into(std::move(receive));
  }
  stopped_ = true;
  if (!expected_.empty()) keep();
  return {};
}

void Link::end_message(std::vector<Ended>& ended) {
  in_message_ = false;
  if (receive_) {
    if (is_last(receive_->stripes)) {
      ended.push_back({receive_->endpoint, Direction::receive, rank_, receive_->stripes});
    }
    receive_.reset();
  } else {
    keeping_->whole = true;
    keeping_ = nullptr;
  }
}

// Until nothing staged can be used.
Status Link::use_staged(std::vector<Ended>& ended) {
  while (!stopped_) {
    if (!in_message_) {
      if (staged() < kHeaderBytes) return {};
      HVD_RETURN_IF_ERROR(begin_message());
      continue;
    }
    const std::size_t missing = header_.bytes - received_;
    const std::size_t part = std::min(missing, staged());
    if (part > 0) bulk_copy(place_ + received_, stage_.get() + stage_begin_, part);
    stage_begin_ += part;
    received_ += part;
    if (part < missing) return {};
    end_message(ended);
  }
  return {};
}

// The rest of a message goes where it belongs, and what comes behind it on the stage.
Result<std::size_t> Link::read_more() {
  if (stage_begin_ > 0) {
    std::memmove(stage_.get(), stage_.get() + stage_begin_, staged());
    stage_end_ -= std::exchange(stage_begin_, 0);
  }
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  std::size_t direct = 0;
  if (in_message_) {
    const std::size_t missing = header_.bytes - received_;
    direct = std::min(missing, kMoveBytes);
    parts.at(count++) = {place_ + received_, direct};
    if (direct == missing) parts.at(count++) = {stage_.get(), kStageBytes};
  } else {
    parts.at(count++) = {stage_.get() + stage_end_, kStageBytes - stage_end_};
  }
  msghdr call{};
  call.msg_iov = parts.data();
  call.msg_iovlen = count;
  const ssize_t result = ::recvmsg(fd_.get(), &call, MSG_DONTWAIT);
  if (result < 0) {
    if (errno == EINTR) return std::size_t{0};
    if (errno != EAGAIN) return Status::from_errno(cat("rank ", rank_, " is gone: receive"), errno);
    readable_ = false;
    return std::size_t{0};
  }
  if (result == 0)
    return Status(Code::unavailable, cat("rank ", rank_, " closed its data connection"));
  const auto got = static_cast<std::size_t>(result);
  std::size_t asked = 0;
  for (std::size_t i = 0; i < count; ++i) asked += parts.at(i).iov_len;
  // Less than asked for: there is no more. But the end that epoll has told of is not told again.
  if (got < asked) readable_ = hung_up_;
  all_read_ += got;
  received_ += std::min(got, direct);
  if (got > direct) stage_end_ += got - direct;
  return got;
}

Status Link::move_in(std::vector<Ended>& ended) {
  std::size_t moved = 0;
  HVD_RETURN_IF_ERROR(use_staged(ended));
  while (readable_ && !stopped_ && moved < kMoveBytes) {
    const auto got = read_more();
    HVD_RETURN_IF_ERROR(got.status());
    moved += *got;
    HVD_RETURN_IF_ERROR(use_staged(ended));
  }
  return {};
}

}  // namespace hvd::runtime
