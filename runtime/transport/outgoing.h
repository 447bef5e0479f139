// The sending half of a link: messages in order, each a header and its bytes, straight from the
// sender's memory to the socket. On a protected connection (base/security/sealing.h) header and
// bytes travel in records, and each has its tag behind it. Nothing here blocks, waits or locks: all
// of it is guarded by the mutex of the messenger that owns the link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/security/sealing.h"
#include "base/status.h"
#include "runtime/transport/endpoint.h"
#include "runtime/transport/message_header.h"

namespace hvd::runtime {

class Outgoing {
 public:
  explicit Outgoing(int rank) : rank_(rank) {}

  // Before the first message.
  void protect(RecordCipher cipher) { cipher_ = std::move(cipher); }
  void add(Endpoint& endpoint, std::uint64_t slot, const std::byte* data, std::size_t bytes,
           std::shared_ptr<Stripes> stripes);
  void drop_all();

  bool empty() const { return messages_.empty(); }
  bool has_message_of(const Endpoint& endpoint) const;
  // Taken by the kernel, headers and tags included.
  std::uint64_t all_written() const { return all_written_; }
  // Writes some bytes, while the socket takes any; `writable` says whether it still does.
  Status write(int fd, bool& writable, std::vector<Ended>& ended);

 private:
  // One system call or one copy moves at most so much. Records are made for one call at a time, so
  // that the kernel finds their bytes in a cache; calls for a quarter of it cost more than they
  // gain.
  static constexpr std::size_t kMoveBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostPieces = 32;
  static constexpr std::size_t kSealedAhead = kMoveBytes / MessageHeader::kRecordBytes;  // records

  struct Message {
    Endpoint* endpoint;
    std::uint64_t slot;
    const std::byte* data;
    std::size_t bytes;
    std::shared_ptr<Stripes> stripes;
  };
  // A header, or a part of a message's bytes, as it is written.
  struct Piece {
    std::array<std::byte, sizeof(MessageHeader)> header{};
    const std::byte* data = nullptr;  // null: the header
    std::size_t bytes = 0;
    bool is_sealed_copy = false;
    bool ends_message = false;
    RecordCipher::Tag tag{};
  };

  void cut_pieces();
  std::size_t room_ahead() const;
  void cut_header(const Message& message);
  bool cut_data(const Message& message);
  void add_cut(const Piece& piece);
  std::byte* room_for_sealed();
  std::size_t wire_bytes(const Piece& piece) const {
    return piece.bytes + (cipher_ ? RecordCipher::kTagBytes : 0);
  }
  void take_off(std::size_t bytes, std::vector<Ended>& ended);

  const int rank_;  // of the other end
  std::optional<RecordCipher> cipher_;
  std::deque<Message> messages_;
  std::uint32_t next_sequence_ = 0;

  // What is cut already, from the front of the messages.
  std::size_t cut_messages_ = 0;  // whole ones
  bool header_is_cut_ = false;    // of the one behind these
  std::size_t cut_bytes_ = 0;     // and so much of its bytes

  std::deque<Piece> pieces_;
  std::size_t waiting_bytes_ = 0;  // in the pieces
  std::size_t written_ = 0;        // of the first piece, its tag included
  std::uint64_t all_written_ = 0;

  // Encrypted copies of the pieces that wait: room for up to kSealedAhead records, each made when
  // it is first needed, and used in turn.
  std::vector<std::unique_ptr<std::byte[]>> sealed_;
  std::size_t next_sealed_ = 0;
  std::size_t sealed_pieces_ = 0;
};

}  // namespace hvd::runtime
