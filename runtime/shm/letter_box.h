// Short messages from one process to another in memory that they share: one writes, one reads, and
// none of them ever waits. It lies in that memory, and zeros are a good beginning.
//
// A letter that was put there is whole, or not there, also when its writer is killed.
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

class LetterBox {
 public:
  static constexpr std::size_t kLetters = 8;
  static constexpr std::size_t kMostBytes = 496;  // of a letter

  struct Letter {
    std::uint64_t after = 0;  // as the writer says
    std::string_view bytes;   // until take()
  };

  // --- the writer ---

  // False: it is too long, or there is no room.
  bool put(std::uint64_t after, std::string_view bytes) {
    const auto written = written_.load(std::memory_order_relaxed);
    if (bytes.size() > kMostBytes || written - read_.load(std::memory_order_acquire) >= kLetters) {
      return false;
    }
    Place& place = places_[written % kLetters];
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
  std::optional<Letter> look() const {
    const auto read = read_.load(std::memory_order_relaxed);
    const auto unread = written_.load(std::memory_order_acquire) - read;
    if (unread == 0) return std::nullopt;
    const Place& place = places_[read % kLetters];
    const std::size_t size = place.size;
    if (unread > kLetters || size > kMostBytes) return Letter{};
    return Letter{place.after, {place.bytes.data(), size}};
  }
  void take() { read_.store(read_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

 private:
  struct Place {
    std::uint64_t after;
    std::uint32_t size;
    std::array<char, kMostBytes> bytes;
  };

  alignas(kSharedLine) std::atomic<std::uint64_t> written_;
  alignas(kSharedLine) std::atomic<std::uint64_t> read_;
  alignas(kSharedLine) std::array<Place, kLetters> places_;
};

}  // namespace hvd::runtime
