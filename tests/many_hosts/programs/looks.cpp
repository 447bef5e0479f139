// Writes the job's token, in hexadecimal, to a file, then becomes another program, which finds all
// as if nobody had looked. This one test program may, to know what must be found nowhere.
//
//     looks FILE COMMAND...
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/protocol/worker_link.h"
#include "base/security/crypto.h"
#include "base/text.h"

namespace {

// The first frame on the worker's socket, which stays there to be read.
std::string look(int socket) {
  static std::array<char, 1 << 20> bytes;
  for (;;) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_PEEK);
    if (got <= 0) return "";
    hvd::FrameDecoder decoder;
    decoder.feed({bytes.data(), static_cast<std::size_t>(got)});
    const auto frame = decoder.next();
    if (!frame.ok()) return "";
    if (frame->has_value()) return (*frame)->payload;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

int main(int, char** argv) {
  const char* const number = std::getenv(hvd::worker_link::kDescriptorVariable);
  if (number == nullptr) return 8;
  const auto welcome = hvd::worker_link::Welcome::decode(look(std::atoi(number)));
  if (!welcome.ok()) return 9;
  // Renamed into place, so that a waiting reader sees all of it.
  const std::string file = argv[1];
  std::ofstream(file + ".part") << hvd::to_hex(welcome->credential.bytes());
  std::filesystem::rename(file + ".part", file);
  ::execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 127;
}
