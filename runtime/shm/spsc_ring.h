// A ring of short messages in shared memory, with a single producer and a single consumer in two
// processes, neither of which ever waits. All zeros are its initial state.
//
// A message is there as a whole or not at all, also if its writer is killed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace hvd::runtime {

inline constexpr std::size_t kSharedLine = 128;  // what processors fetch at once, in pairs of lines

class SpscRing {
 public:
  static constexpr std::size_t kSlots = 8;
  static constexpr std::size_t kMaxBytes = 496;  // of a message

  struct Message {
    std::uint64_t after = 0;  // as the writer says
    std::string_view bytes;   // until take()
  };

  // --- the writer ---

  // False: it is too long, or there is no room.
  bool put(std::uint64_t after, std::string_view bytes) {
    const auto written = written_.load(std::memory_order_relaxed);
    if (bytes.size() > kMaxBytes || written - read_.load(std::memory_order_acquire) >= kSlots) {
      return false;
    }
    Place& place = places_[written % kSlots];
    place.after = after;
    place.size = static_cast<std::uint32_t>(bytes.size());
    std::memcpy(place.bytes.data(), bytes.data(), bytes.size());
    written_.store(written + 1, std::memory_order_release);
    return true;
  }
  bool all_read() const { return read_.load() == written_.load(std::memory_order_relaxed); }

  // --- the reader ---

  // The oldest that was not taken; an empty one, to be read at once, for what no writer of ours can
  // have left there.
  std::optional<Message> look() const {
    const auto read = read_.load(std::memory_order_relaxed);
    const auto unread = written_.load(std::memory_order_acquire) - read;
    if (unread == 0) return std::nullopt;
    const Place& place = places_[read % kSlots];
    const std::size_t size = place.size;
    if (unread > kSlots || size > kMaxBytes) return Message{};
    return Message{place.after, {place.bytes.data(), size}};
  }
  void take() { read_.store(read_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  struct Place {
    std::uint64_t after;
    std::uint32_t size;
    std::array<char, kMaxBytes> bytes;
  };

  alignas(kSharedLine) std::atomic<std::uint64_t> written_;
  alignas(kSharedLine) std::atomic<std::uint64_t> read_;
  alignas(kSharedLine) std::array<Place, kSlots> places_;
};

}  // namespace hvd::runtime
