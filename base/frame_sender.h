// Sends frames where nothing else is sent, and goes on after a deadline. A frame of which a part
// was written before it is finished before the next one, or the other side would take the beginning
// of that for its end. One of which nothing was written is dropped.
//
// For one thread at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace hvd {

// As send_all() (base/socket.h), but takes off `bytes` what was sent, also after an error.
Status send_off(int fd, std::string_view& bytes, TimePoint deadline);

class FrameSender {
 public:
  // On a socket as send_all() takes it.
  Status send(int fd, std::string_view frame, TimePoint deadline);

 private:
  std::string begun_;  // what is left of the frame
};

}  // namespace hvd
