// Random bytes from the kernel. Safe from any thread.
#pragma once

#include <cstddef>

namespace hvd {

// Where getrandom() is missing or forbidden, /dev/urandom is read. Without either there are no keys
// and no nonces: the process says so and aborts.
void fill_random(void* data, std::size_t size);

}  // namespace hvd
