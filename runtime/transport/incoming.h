// The receiving half of a link: what arrives goes straight into the memory that expects it. A
// message that arrives before anybody expects it stays where it is, in the kernel, and holds up
// what is behind it: that is the backpressure. Only if something else is expected of the same rank,
// or if the messenger says so because all would stand still, it is kept in memory of ours, within a
// budget.
//
// On a protected connection (base/security/sealing.h) each record is checked, and decrypted where
// it lies, as soon as it is whole; a message has ended only when all of its records have been
// checked. Nothing here blocks, waits or locks: all of it is guarded by the mutex of the messenger
// that owns the link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/security/sealing.h"
#include "base/status.h"
#include "runtime/transport/endpoint.h"
#include "runtime/transport/message_header.h"

namespace hvd::runtime {

// A message that is expected, of one rank or of any of several, or a part of one.
struct Receive {
  Endpoint* endpoint;
  std::uint64_t slot;
  std::byte* data;
  std::size_t bytes;
  bool taken = false;  // a message has been found for it
  std::size_t sources = 1;
  std::shared_ptr<Stripes> stripes = nullptr;

  bool may_be_from(int rank) const {
    return !stripes || stripes->rank < 0 || stripes->rank == rank;
  }
  bool is_begun() const { return stripes && stripes->rank >= 0; }
};

// Memory for unexpected messages of all links of a messenger, and their order.
struct Unexpected {
  std::size_t bytes_left;
  std::uint64_t arrivals = 0;
};

class Incoming {
 public:
  Incoming(int own_rank, int rank, Unexpected& unexpected)
      : own_rank_(own_rank), rank_(rank), unexpected_(unexpected) {}

  void open();
  // Before the first byte is read.
  void protect(RecordCipher cipher) { cipher_ = std::move(cipher); }
  // What was under way is dropped. Messages that have arrived whole can still be had.
  void close();

  void expect(std::shared_ptr<Receive> receive) { expected_.push_back(std::move(receive)); }
  // When the oldest unexpected message that fits the receive came; 0: there is none.
  std::uint64_t waiting_since(const Receive& receive) const;
  // Gives that message to the receive. An error breaks the link.
  Status take_waiting(const std::shared_ptr<Receive>& receive, std::vector<Ended>& ended);
  // False if a message of the endpoint has begun.
  bool may_forget(const Endpoint& endpoint) const;
  void forget(const Endpoint& endpoint);

  // A message is in the middle of its way, or expected of this rank alone.
  bool is_needed() const;
  // One is in the middle of its way, or might come from this rank.
  bool is_awaited() const;
  bool serves(const Endpoint& endpoint) const;
  // The next message has no place.
  bool holds_up() const { return stopped_; }
  // Such a message is kept, if there is room.
  void keep_what_holds_up() {
    if (stopped_) keep();
  }
  // Headers and tags included.
  std::uint64_t all_read() const { return all_read_; }
  // For errors: the message that nobody expects, or empty.
  std::string explain() const;

  // Reads some bytes, while there are any; `readable` says whether there may be more. If the other
  // end has hung up, that stays true until the end of the stream was read. unavailable: the other
  // end has closed the connection.
  Status read(int fd, bool& readable, bool hung_up, std::vector<Ended>& ended);

 private:
  static constexpr std::size_t kStageBytes = std::size_t{16} << 10;
  static constexpr std::size_t kMoveBytes = std::size_t{1} << 20;  // at a time
  // The records that are received in one go, and one that began before.
  static constexpr std::size_t kMostRecords = kMoveBytes / MessageHeader::kRecordBytes + 2;

  struct Kept {
    MessageHeader header;
    std::unique_ptr<std::byte[]> data;
    std::uint64_t since;
    bool whole = false;
  };
  struct Extent {
    std::byte* data;
    std::size_t bytes;
  };

  std::size_t staged() const { return stage_end_ - stage_begin_; }
  std::size_t tag_bytes() const { return cipher_ ? RecordCipher::kTagBytes : 0; }
  std::size_t header_bytes() const { return sizeof(MessageHeader) + tag_bytes(); }
  std::size_t record_bytes(std::size_t record) const;
  std::size_t wire_bytes() const;
  std::size_t data_received() const;
  Extent extent_at(std::size_t received);
  Status altered() const;

  Status begin_message();
  Status claim(const MessageHeader& header, Receive& receive) const;
  Status put_into(std::shared_ptr<Receive> receive);
  bool keep();
  Status open_records();
  void end_message(std::vector<Ended>& ended);
  Status use_staged(std::vector<Ended>& ended);
  Result<std::size_t> read_more(int fd, bool& readable, bool hung_up);

  const int own_rank_;
  const int rank_;
  Unexpected& unexpected_;
  std::optional<RecordCipher> cipher_;
  std::uint64_t all_read_ = 0;

  // The message that is arriving.
  bool in_message_ = false;
  bool stopped_ = false;  // in a message that has no place
  MessageHeader header_;
  std::uint64_t since_ = 0;
  std::size_t received_ = 0;                            // behind its header, tags included
  std::size_t opened_ = 0;                              // records of it
  std::array<RecordCipher::Tag, kMostRecords> tags_{};  // by record, modulo
  std::byte* place_ = nullptr;
  std::shared_ptr<Receive> receive_;  // it goes there, or ...
  Kept* keeping_ = nullptr;           // ... to the last of kept_
  std::uint32_t expected_sequence_ = 0;

  std::unique_ptr<std::byte[]> stage_;  // headers, and what came with them
  std::size_t stage_begin_ = 0;
  std::size_t stage_end_ = 0;

  std::deque<std::shared_ptr<Receive>> expected_;  // some may have been taken elsewhere
  std::list<Kept> kept_;
};

}  // namespace hvd::runtime
