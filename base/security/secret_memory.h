// Memory for keys. It lies on pages of its own that no core dump contains, of this process or of
// one that it forks, and that the system does not write to swap where it lets this user lock memory
// (RLIMIT_MEMLOCK). The memory of a secret is overwritten when it goes. A child of fork() has the
// keys of its parent: with zeros in their place it would trust strangers who try those.
//
// OpenSSL has such a memory, too. It is not used: a process has only one, of a fixed size, and
// OpenSSL's own keys, those of the user's program among them, fail once it is full.
#pragma once

#include <array>
#include <cstddef>

#include "base/text.h"

namespace hvd {

// 32 bytes, zero at first. A copy has memory of its own. Throws std::bad_alloc where the system has
// no page left. Any thread may make, copy and destroy them; each is for one thread at a time.
class SecretBytes {
 public:
  static constexpr std::size_t kSize = 32;

  SecretBytes();
  SecretBytes(const SecretBytes& other);
  SecretBytes& operator=(const SecretBytes& other);
  ~SecretBytes();

  // Takes kSize bytes from there.
  void assign(const void* bytes);

  unsigned char* data() { return bytes_; }
  const unsigned char* data() const { return bytes_; }

 private:
  unsigned char* bytes_;
};

// Overwrites a secret that was elsewhere on its way.
inline void wipe(std::array<unsigned char, SecretBytes::kSize>& secret) {
  wipe(secret.data(), secret.size());
}

}  // namespace hvd
