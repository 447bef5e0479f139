#include "runtime/transport/incoming.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "base/machine/bulk_copy.h"
#include "base/text.h"

namespace hvd::runtime {

void Incoming::open() { stage_.reset(new std::byte[kStageBytes]); }

void Incoming::close() {
  stopped_ = in_message_ = false;
  for (const auto& receive : expected_) {
    if (!receive->taken) --receive->sources;
  }
  expected_.clear();
  receive_.reset();
  keeping_ = nullptr;
  while (!kept_.empty() && !kept_.back().whole) {
    unexpected_.bytes_left += kept_.back().header.bytes;
    kept_.pop_back();
  }
  stage_.reset();
  stage_begin_ = stage_end_ = 0;
}

bool Incoming::is_needed() const {
  if (receive_) return true;
  return std::any_of(expected_.begin(), expected_.end(), [](const auto& receive) {
    return !receive->taken && (receive->sources == 1 || receive->is_begun());
  });
}

bool Incoming::is_awaited() const {
  if (receive_) return true;
  return std::any_of(expected_.begin(), expected_.end(), [this](const auto& receive) {
    return !receive->taken && receive->may_be_from(rank_);
  });
}

bool Incoming::serves(const Endpoint& endpoint) const {
  if (receive_ && receive_->endpoint == &endpoint) return true;
  return std::any_of(expected_.begin(), expected_.end(), [&](const auto& receive) {
    return receive->endpoint == &endpoint && !receive->taken && receive->may_be_from(rank_);
  });
}

bool Incoming::may_forget(const Endpoint& endpoint) const {
  if (receive_ && receive_->endpoint == &endpoint) return false;
  return std::none_of(expected_.begin(), expected_.end(), [&](const auto& receive) {
    return receive->endpoint == &endpoint && !receive->taken && receive->is_begun();
  });
}

void Incoming::forget(const Endpoint& endpoint) {
  std::erase_if(expected_, [&](const auto& receive) { return receive->endpoint == &endpoint; });
}

std::string Incoming::explain() const {
  if (!stopped_) return {};
  return cat("the next message of rank ", rank_, " has ", header_.bytes, " bytes and slot ",
             header_.slot, ", which rank ", own_rank_, " does not expect");
}

// --- unexpected messages ------------------------------------------------------------------------

std::uint64_t Incoming::waiting_since(const Receive& receive) const {
  for (const auto& kept : kept_) {
    if (kept.header.slot == receive.slot) return kept.since;
  }
  return stopped_ && header_.slot == receive.slot ? since_ : 0;
}

// The message is for this receive.
Status Incoming::claim(const MessageHeader& header, Receive& receive) const {
  if (header.bytes == receive.bytes) {
    receive.taken = true;
    if (receive.stripes) receive.stripes->rank = rank_;
    return {};
  }
  return {Code::data_loss,
          cat("rank ", rank_, " sent a message of ", header.bytes, " bytes where rank ", own_rank_,
              " expects ", receive.bytes, " (slot ", header.slot, ")")};
}

Status Incoming::put_into(std::shared_ptr<Receive> receive) {
  HVD_RETURN_IF_ERROR(claim(header_, *receive));
  place_ = receive->data;
  receive_ = std::move(receive);
  stopped_ = false;
  return {};
}

Status Incoming::take_waiting(const std::shared_ptr<Receive>& receive, std::vector<Ended>& ended) {
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& message) {
    return message.header.slot == receive->slot;
  });
  if (kept == kept_.end()) return put_into(receive);
  const bool whole = kept->whole;
  const std::size_t there = whole ? kept->header.bytes : data_received();
  if (whole) {
    HVD_RETURN_IF_ERROR(claim(kept->header, *receive));
    if (is_last_part(receive->stripes)) {
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

bool Incoming::keep() {
  if (header_.bytes > unexpected_.bytes_left) return false;
  auto memory = std::make_unique_for_overwrite<std::byte[]>(header_.bytes);
  unexpected_.bytes_left -= header_.bytes;
  kept_.push_back({header_, std::move(memory), since_});
  keeping_ = &kept_.back();
  place_ = keeping_->data.get();
  stopped_ = false;
  return true;
}

// --- one message --------------------------------------------------------------------------------

// Without protection a message is one record without a tag.
std::size_t Incoming::record_bytes(std::size_t record) const {
  if (!cipher_) return header_.bytes;
  return std::min(header_.bytes - record * MessageHeader::kRecordBytes,
                  MessageHeader::kRecordBytes);
}

std::size_t Incoming::wire_bytes() const {
  const std::size_t records =
      (header_.bytes + MessageHeader::kRecordBytes - 1) / MessageHeader::kRecordBytes;
  return header_.bytes + records * tag_bytes();
}

std::size_t Incoming::data_received() const {
  if (!cipher_) return received_;
  const std::size_t record = received_ / (MessageHeader::kRecordBytes + tag_bytes());
  const std::size_t begun = received_ % (MessageHeader::kRecordBytes + tag_bytes());
  return std::min(
      record * MessageHeader::kRecordBytes + std::min(begun, MessageHeader::kRecordBytes),
      std::size_t{header_.bytes});
}

// Where the bytes go that come when so many have been received: until the end of a record, or of a
// tag.
Incoming::Extent Incoming::extent_at(std::size_t received) {
  if (!cipher_) return {place_ + received, header_.bytes - received};
  const std::size_t record = received / (MessageHeader::kRecordBytes + tag_bytes());
  const std::size_t begun = received % (MessageHeader::kRecordBytes + tag_bytes());
  const std::size_t bytes = record_bytes(record);
  if (begun < bytes) return {place_ + record * MessageHeader::kRecordBytes + begun, bytes - begun};
  return {tags_.at(record % kMostRecords).data() + (begun - bytes), tag_bytes() - (begun - bytes)};
}

Status Incoming::altered() const {
  return {
      Code::data_loss,
      cat("what arrived on the data connection of rank ", rank_, " at rank ", own_rank_,
          " is not what rank ", rank_, " has sent: it was altered on the way",
          cipher_->hides() ? "" : ", or the program wrote to a tensor while it was being sent")};
}

Status Incoming::begin_message() {
  std::byte* const header = stage_.get() + stage_begin_;
  if (cipher_) {
    RecordCipher::Tag tag;
    std::memcpy(tag.data(), header + sizeof(header_), tag.size());
    if (!cipher_->open({header, sizeof(header_)}, tag)) return altered();
  }
  std::memcpy(&header_, header, sizeof(header_));
  stage_begin_ += header_bytes();
  if (header_.magic != MessageHeader::kMagic || header_.sequence != expected_sequence_) {
    return {Code::data_loss,
            cat("rank ", rank_, " sent a malformed message on its data connection")};
  }
  ++expected_sequence_;
  in_message_ = true;
  received_ = opened_ = 0;
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

// Those that have become whole.
Status Incoming::open_records() {
  if (!cipher_) return {};
  for (std::size_t end = 0;; ++opened_) {
    if (opened_ * MessageHeader::kRecordBytes >= header_.bytes) return {};
    const std::size_t bytes = record_bytes(opened_);
    end = opened_ * (MessageHeader::kRecordBytes + tag_bytes()) + bytes + tag_bytes();
    if (received_ < end) return {};
    std::byte* const record = place_ + opened_ * MessageHeader::kRecordBytes;
    if (!cipher_->open({record, bytes}, tags_.at(opened_ % kMostRecords))) return altered();
  }
}

void Incoming::end_message(std::vector<Ended>& ended) {
  in_message_ = false;
  if (receive_) {
    if (is_last_part(receive_->stripes)) {
      ended.push_back({receive_->endpoint, Direction::receive, rank_, receive_->stripes});
    }
    receive_.reset();
  } else {
    keeping_->whole = true;
    keeping_ = nullptr;
  }
}

// --- reading ------------------------------------------------------------------------------------

// Until nothing staged can be used.
Status Incoming::use_staged(std::vector<Ended>& ended) {
  while (!stopped_) {
    if (!in_message_) {
      if (staged() < header_bytes()) return {};
      HVD_RETURN_IF_ERROR(begin_message());
      continue;
    }
    while (staged() > 0 && received_ < wire_bytes()) {
      const Extent extent = extent_at(received_);
      const std::size_t part = std::min(extent.bytes, staged());
      bulk_copy(extent.data, stage_.get() + stage_begin_, part);
      stage_begin_ += part;
      received_ += part;
      HVD_RETURN_IF_ERROR(open_records());
    }
    if (received_ < wire_bytes()) return {};
    end_message(ended);
  }
  return {};
}

// The rest of a message goes where it belongs, and what comes behind it on the stage.
Result<std::size_t> Incoming::read_more(int fd, bool& readable, bool hung_up) {
  if (stage_begin_ > 0) {
    std::memmove(stage_.get(), stage_.get() + stage_begin_, staged());
    stage_end_ -= std::exchange(stage_begin_, 0);
  }

  std::array<iovec, 2 * kMostRecords + 1> parts{};
  std::size_t count = 0;
  std::size_t direct = 0;
  if (in_message_) {
    const std::size_t missing = wire_bytes() - received_;
    while (direct < std::min(missing, kMoveBytes)) {
      Extent extent = extent_at(received_ + direct);
      extent.bytes = std::min(extent.bytes, kMoveBytes - direct);
      parts.at(count++) = {extent.data, extent.bytes};
      direct += extent.bytes;
    }
    if (direct == missing) parts.at(count++) = {stage_.get(), kStageBytes};
  } else {
    parts.at(count++) = {stage_.get() + stage_end_, kStageBytes - stage_end_};
  }

  msghdr call{};
  call.msg_iov = parts.data();
  call.msg_iovlen = count;
  const ssize_t result = ::recvmsg(fd, &call, MSG_DONTWAIT);
  if (result < 0) {
    if (errno == EINTR) return std::size_t{0};
    if (errno != EAGAIN) return Status::from_errno(cat("rank ", rank_, " is gone: receive"), errno);
    readable = false;
    return std::size_t{0};
  }
  if (result == 0)
    return Status(Code::unavailable, cat("rank ", rank_, " closed its data connection"));

  const auto got = static_cast<std::size_t>(result);
  std::size_t asked = 0;
  for (std::size_t i = 0; i < count; ++i) asked += parts.at(i).iov_len;
  // Less than asked for: there is no more. But the end that epoll has told of is not told again.
  if (got < asked) readable = hung_up;
  all_read_ += got;
  received_ += std::min(got, direct);
  if (got > direct) stage_end_ += got - direct;
  return got;
}

Status Incoming::read(int fd, bool& readable, bool hung_up, std::vector<Ended>& ended) {
  std::size_t moved = 0;
  HVD_RETURN_IF_ERROR(use_staged(ended));
  while (readable && !stopped_ && moved < kMoveBytes) {
    const auto got = read_more(fd, readable, hung_up);
    HVD_RETURN_IF_ERROR(got.status());
    moved += *got;
    if (in_message_) HVD_RETURN_IF_ERROR(open_records());
    HVD_RETURN_IF_ERROR(use_staged(ended));
  }
  return {};
}

}  // namespace hvd::runtime
