// TCP tells nobody of a peer whose host, or the way to it, has gone without a word: for as long as
// nothing is sent never, and else after a quarter of an hour. Any thread.
#pragma once

#include <chrono>

namespace hvd::runtime {

// From now on this connection breaks, with ETIMEDOUT, when the other side's kernel has not answered
// for so long, whether something is sent or not. A process that stands still is not silent, unless
// it takes nothing while something is sent to it for that long. A connection within this machine is
// left as it is: its ends cannot go without a word, and a job that was stopped as a whole goes on.
void watch_for_silence(int fd, std::chrono::milliseconds timeout);

}  // namespace hvd::runtime
