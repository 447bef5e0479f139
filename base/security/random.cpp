#include "base/security/random.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/descriptors.h"

namespace hvd {

void fill_random(void* data, std::size_t size) {
  auto* at = static_cast<unsigned char*>(data);
  UniqueFd device;
  int error = 0;
  while (size > 0) {
    const ssize_t got = device ? ::read(device.get(), at, size) : ::getrandom(at, size, 0);
    if (got > 0) {
      at += got;
      size -= static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const bool was_device = static_cast<bool>(device);
    if (!was_device) {
      error = errno;
      device.reset(::open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    }
    if (was_device || !device) {
      std::fprintf(stderr,
                   "hvd: no random bytes: getrandom() fails (%s) and /dev/urandom cannot be read; "
                   "without them no connection can be secured\n",
                   std::strerror(error));  // NOLINT(concurrency-mt-unsafe): the process ends
      std::abort();
    }
  }
}

}  // namespace hvd
