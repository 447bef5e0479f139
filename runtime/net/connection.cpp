#include "runtime/net/connection.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>

#include "base/wire.h"

namespace hvd::runtime {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

std::span<std::byte> bytes_of(char* data, std::size_t bytes) {
  return {reinterpret_cast<std::byte*>(data), bytes};
}

Status altered() {
  return {Code::data_loss,
          "its control connection was altered on the way: a record is not what it has sent"};
}

}  // namespace

void Connection::protect(const SessionKeys& keys) {
  sealing_.emplace(keys.to_send, Protection::encrypted);
  opening_.emplace(keys.to_receive, Protection::encrypted);
}

Status Connection::send(std::string_view frames) {
  if (sealing_) {
    seal(frames);
  } else {
    unsent_ += frames;
  }
  return flush();
}

void Connection::seal(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.substr(0, kRecordBytes);
    bytes.remove_prefix(part.size());
    unsent_ += WireWriter().u32(static_cast<std::uint32_t>(part.size())).bytes();
    unsent_ += part;
    const auto record = bytes_of(unsent_.data() + unsent_.size() - part.size(), part.size());
    const auto tag = sealing_->seal(record, record.data());
    unsent_.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  }
}

// Opens the records that have become whole.
Status Connection::take_received(std::string_view bytes) {
  if (!opening_) {
    decoder_.feed(bytes);
    return {};
  }
  sealed_ += bytes;
  std::size_t begin = 0;
  while (sealed_.size() - begin >= kLengthBytes) {
    const std::size_t length = WireReader(std::string_view(sealed_).substr(begin)).u32();
    if (length > kRecordBytes) return altered();
    if (sealed_.size() - begin < kLengthBytes + length + RecordCipher::kTagBytes) break;

    char* const record = sealed_.data() + begin + kLengthBytes;
    RecordCipher::Tag tag;
    std::memcpy(tag.data(), record + length, tag.size());
    if (!opening_->open(bytes_of(record, length), tag)) return altered();
    decoder_.feed({record, length});
    begin += kLengthBytes + length + tag.size();
  }
  sealed_.erase(0, begin);
  return {};
}

Status Connection::flush() {
  while (has_unsent()) {
    const ssize_t sent = ::send(fd_.get(), unsent_.data() + sent_, unsent_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return Status::from_errno("send", errno);
    }
  }
  unsent_.clear();
  sent_ = 0;
  return {};
}

Status Connection::receive(std::size_t most) {
  std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  std::size_t taken = 0;
  while (taken <= most) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) {
      HVD_RETURN_IF_ERROR(take_received({buffer.data(), static_cast<std::size_t>(got)}));
      taken += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return {Code::unavailable, "closed its connection"};
    } else if (errno == EAGAIN) {
      return {};
    } else if (errno != EINTR) {
      return Status::from_errno("connection lost", errno);
    }
  }
  return {};
}

}  // namespace hvd::runtime
