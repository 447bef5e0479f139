// Writing down what crosses the bridge. A frame of a type of its own marks the points in
// time: when it is in the file, then so is everything before.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/security/crypto.h"
#include "base/text.h"
#include "tests/testbed/network.h"
#include "tests/testbed/system.h"

namespace hvd::test::bed {
namespace {

constexpr int kLimitMs = 30000;

void send_frame(const std::string& payload) {
  constexpr std::uint16_t kForExperiments = 0x88b5;  // an EtherType that nothing else uses
  const UniqueFd socket(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) throw_errno("open a packet socket");
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(kForExperiments);
  to.sll_ifindex = static_cast<int>(::if_nametoindex(kBridge));
  to.sll_halen = ETH_ALEN;
  to.sll_addr[0] = 2;  // to nobody
  if (::sendto(socket.get(), payload.data(), payload.size(), 0,
               reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0) {  // NOLINT
    throw_errno("send a marker onto the bridge");
  }
}

// Near its end: a mark that is looked for was sent just now.
bool file_holds(const std::string& file, const std::string& text) {
  constexpr std::streamoff kNear = 4 << 20;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kNear));
  const std::string content{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return content.find(text) != std::string::npos;
}

}  // namespace

void Network::await_marker() {
  const std::string mark = "hvd-capture-mark-" + to_hex(random_bytes(16));
  for (int waited = 0; waited < kLimitMs; ++waited) {
    // Again and again at the beginning, when tcpdump may not listen yet.
    if (waited % 20 == 0) send_frame(mark);
    if (file_holds(capture_file_, mark)) return;
    if (::waitpid(tcpdump_, nullptr, WNOHANG) == tcpdump_) {
      tcpdump_ = -1;
      std::ifstream log(plan_.directory / "tcpdump.log");
      const std::string said{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
      throw std::runtime_error(cat("tcpdump ended; it says: ", trim(said)));
    }
    ::usleep(1000);
  }
  throw std::runtime_error(cat("tcpdump does not write to ", capture_file_));
}

void Network::capture(const std::string& file) {
  if (tcpdump_ > 0) throw std::runtime_error("the bed is captured already");
  const std::string log = plan_.directory / "tcpdump.log";
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    reset_signals();
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ::dup2(out, 1);
    ::dup2(out, 2);
    // Every packet whole and at once, as the user that we are.
    ::execlp("tcpdump", "tcpdump", "-i", kBridge, "-n", "-U", "--immediate-mode", "-B", "65536",
             "-s", "0", "-Z", "root", "-w", file.c_str(), nullptr);
    ::_exit(127);
  }
  tcpdump_ = pid;
  capture_file_ = file;
  await_marker();
}

void Network::end_capture() {
  if (tcpdump_ <= 0) return;
  // If the file was removed, the capture is not needed any more.
  if (::access(capture_file_.c_str(), F_OK) == 0) await_marker();
  ::kill(tcpdump_, SIGTERM);
  ::waitpid(tcpdump_, nullptr, 0);
  tcpdump_ = -1;
}

}  // namespace hvd::test::bed
