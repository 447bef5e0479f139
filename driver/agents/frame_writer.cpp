#include "driver/agents/frame_writer.h"

#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

namespace hvd::driver {

namespace asio = boost::asio;

// The bytes of one write, after which a heartbeat has its turn.
static constexpr std::size_t kWriteSize = std::size_t{64} << 10;

FrameWriter::FrameWriter(Socket& link, Spawn spawn) : link_(link), spawn_(std::move(spawn)) {}

void FrameWriter::send(SharedBytes frame) {
  if (!writable_) return;
  unsent_.push(std::move(frame));
  begin_to_write();
}

void FrameWriter::send(OutgoingFrames::Make make) {
  if (!writable_) return;
  unsent_.push(std::move(make));
  begin_to_write();
}

void FrameWriter::send_program(const SharedBytes& program) {
  if (!std::exchange(program_sent_, true)) send(program);
}

void FrameWriter::send_world(std::uint64_t generation, bool effective, SharedBytes frame,
                             SharedBytes keys) {
  if (!writable_ || (effective && generation <= newest_effective_)) return;
  if (effective) newest_effective_ = generation;
  unsent_.push_world(effective, std::move(frame), std::move(keys));
  begin_to_write();
}

void FrameWriter::send_heartbeat(SharedBytes frame) {
  unsent_.push_urgent(std::move(frame));
  begin_to_write();
}

void FrameWriter::begin_to_write() {
  if (std::exchange(writing_, true)) return;
  write_began_ = Clock::now();
  spawn_(write());
}

asio::awaitable<void> FrameWriter::write() {
  boost::system::error_code error;
  while (writable_ && !unsent_.empty()) {
    std::vector<asio::const_buffer> buffers;
    for (const auto piece : unsent_.next(kWriteSize)) {
      buffers.emplace_back(piece.data(), piece.size());
    }
    const std::size_t written = co_await asio::async_write(
        link_, buffers, asio::redirect_error(asio::use_awaitable, error));
    if (error) writable_ = false;
    unsent_.advance(written);
  }

  if (!writable_) unsent_.clear();
  writing_ = false;
}

}  // namespace hvd::driver
