#include "runtime/transport/outgoing.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "base/text.h"

namespace hvd::runtime {

void Outgoing::add(Endpoint& endpoint, std::uint64_t slot, const std::byte* data, std::size_t bytes,
                   std::shared_ptr<Stripes> stripes) {
  messages_.push_back({&endpoint, slot, data, bytes, std::move(stripes)});
}

void Outgoing::drop_all() {
  messages_.clear();
  pieces_.clear();
  cut_messages_ = cut_bytes_ = waiting_bytes_ = written_ = 0;
  header_is_cut_ = false;
  sealed_.clear();
  next_sealed_ = sealed_pieces_ = 0;
}

bool Outgoing::has_message_of(const Endpoint& endpoint) const {
  return std::any_of(messages_.begin(), messages_.end(),
                     [&](const Message& message) { return message.endpoint == &endpoint; });
}

// --- what is written next -----------------------------------------------------------------------

void Outgoing::cut_pieces() {
  while (cut_messages_ < messages_.size() && pieces_.size() < kMostPieces && room_ahead() > 0) {
    const Message& message = messages_[cut_messages_];
    if (!header_is_cut_) {
      cut_header(message);
    } else if (!cut_data(message)) {
      return;
    }
  }
}

// How many bytes more may be cut before others have been written.
std::size_t Outgoing::room_ahead() const {
  return kMoveBytes - std::min(waiting_bytes_ - written_, kMoveBytes);
}

void Outgoing::cut_header(const Message& message) {
  MessageHeader header;
  header.sequence = next_sequence_++;
  header.slot = message.slot;
  header.bytes = message.bytes;

  Piece piece;
  std::memcpy(piece.header.data(), &header, sizeof(header));
  piece.bytes = sizeof(header);
  piece.ends_message = message.bytes == 0;
  if (cipher_) piece.tag = cipher_->seal(piece.header, piece.header.data());
  header_is_cut_ = true;
  add_cut(piece);
}

// False if there is no room for an encrypted copy before others have been written.
bool Outgoing::cut_data(const Message& message) {
  const std::size_t most = cipher_ ? MessageHeader::kRecordBytes : room_ahead();
  Piece piece;
  piece.data = message.data + cut_bytes_;
  piece.bytes = std::min(message.bytes - cut_bytes_, most);
  piece.ends_message = cut_bytes_ + piece.bytes == message.bytes;

  if (cipher_) {
    std::byte* sealed = nullptr;
    if (cipher_->hides()) {
      sealed = room_for_sealed();
      if (sealed == nullptr) return false;
    }
    piece.tag = cipher_->seal({piece.data, piece.bytes}, sealed);
    if (sealed != nullptr) {
      piece.data = sealed;
      piece.is_sealed_copy = true;
      ++sealed_pieces_;
    }
  }
  cut_bytes_ += piece.bytes;
  add_cut(piece);
  return true;
}

void Outgoing::add_cut(const Piece& piece) {
  pieces_.push_back(piece);
  waiting_bytes_ += wire_bytes(piece);
  if (!piece.ends_message) return;
  ++cut_messages_;
  header_is_cut_ = false;
  cut_bytes_ = 0;
}

std::byte* Outgoing::room_for_sealed() {
  if (sealed_pieces_ == kSealedAhead) return nullptr;
  // Little that is sent now and then stays in one place.
  if (sealed_pieces_ == 0) next_sealed_ = 0;
  const std::size_t place = std::exchange(next_sealed_, (next_sealed_ + 1) % kSealedAhead);
  if (place == sealed_.size()) {
    sealed_.push_back(std::make_unique_for_overwrite<std::byte[]>(MessageHeader::kRecordBytes));
  }
  return sealed_[place].get();
}

// --- writing ------------------------------------------------------------------------------------

Status Outgoing::write(int fd, bool& writable, std::vector<Ended>& ended) {
  std::size_t moved = 0;
  while (writable && !empty() && moved < kMoveBytes) {
    cut_pieces();

    std::array<iovec, 2 * kMostPieces> parts{};
    std::size_t count = 0;
    std::size_t skip = written_;
    const auto add_part = [&](const std::byte* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        parts.at(count++) = {const_cast<std::byte*>(data) + skipped, bytes - skipped};
    };
    for (const auto& piece : pieces_) {
      add_part(piece.data == nullptr ? piece.header.data() : piece.data, piece.bytes);
      if (cipher_) add_part(piece.tag.data(), piece.tag.size());
    }

    msghdr call{};
    call.msg_iov = parts.data();
    call.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd, &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {
        writable = false;
        return {};
      }
      return Status::from_errno(cat("rank ", rank_, " is gone: send"), errno);
    }
    moved += static_cast<std::size_t>(sent);
    take_off(static_cast<std::size_t>(sent), ended);
  }
  return {};
}

void Outgoing::take_off(std::size_t bytes, std::vector<Ended>& ended) {
  all_written_ += bytes;
  written_ += bytes;
  while (!pieces_.empty() && written_ >= wire_bytes(pieces_.front())) {
    const Piece& piece = pieces_.front();
    written_ -= wire_bytes(piece);
    waiting_bytes_ -= wire_bytes(piece);
    if (piece.is_sealed_copy) --sealed_pieces_;
    if (piece.ends_message) {
      const Message& message = messages_.front();
      if (is_last_part(message.stripes)) {
        ended.push_back({message.endpoint, Direction::send, rank_, message.stripes});
      }
      messages_.pop_front();
      --cut_messages_;
    }
    pieces_.pop_front();
  }
}

}  // namespace hvd::runtime
