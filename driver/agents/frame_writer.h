// The writing half of the link to an agent: writes frames in order, but for worlds, of which only
// the newest is of interest, and heartbeats, which overtake all others. For one thread.
#pragma once

#include <cstdint>
#include <functional>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "base/clock.h"
#include "base/shared_bytes.h"
#include "driver/agents/outgoing_frames.h"

namespace hvd::driver {

class FrameWriter {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;
  // Runs a coroutine and keeps this object alive until its end.
  using Spawn = std::function<void(boost::asio::awaitable<void> work)>;

  // `link` outlives this.
  FrameWriter(Socket& link, Spawn spawn);
  FrameWriter(const FrameWriter&) = delete;
  FrameWriter& operator=(const FrameWriter&) = delete;

  // As AgentSession's functions of these names. After an error of the link they do nothing; the
  // reading half reports the reason.
  void send(SharedBytes frame);
  void send(OutgoingFrames::Make make);
  void send_program(const SharedBytes& program);
  void send_world(std::uint64_t generation, bool effective, SharedBytes frame, SharedBytes keys);

  // Whether a heartbeat can be sent: the link is open and the last one was written.
  bool takes_heartbeat() const { return writable_ && !unsent_.urgent_waits(); }
  void send_heartbeat(SharedBytes frame);

  // A write has been in progress for longer than `pace`.
  bool is_writing_for(Duration pace, TimePoint now) const {
    return writing_ && now - write_began_ > pace;
  }
  // Nothing more is written.
  void close() { writable_ = false; }

 private:
  void begin_to_write();
  boost::asio::awaitable<void> write();

  Socket& link_;
  const Spawn spawn_;
  OutgoingFrames unsent_;
  std::uint64_t newest_effective_ = 0;  // generation of the newest effective world that was sent
  bool program_sent_ = false;
  bool writing_ = false;
  TimePoint write_began_{};
  bool writable_ = true;
};

}  // namespace hvd::driver
