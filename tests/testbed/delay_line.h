// A delay line for packets: this stands in for the kernel's netem, which many kernels lack.
#pragma once

#include <chrono>

namespace hvd::test::bed {

inline constexpr int kDelayQueue = 7;  // the NFQUEUE that iptables sends the packets to

// Runs in a child that has entered the network of a host. Every packet that arrives in the queue
// goes on `delay` later, in order; the packets themselves stay in the kernel. Writes one byte to
// `control` when it is ready; lets all go and ends when `control` is closed. Throws
// std::runtime_error.
void be_delay_line(std::chrono::nanoseconds delay, int control);

}  // namespace hvd::test::bed
