#include "tests/testbed/delay_line.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/testbed/system.h"

namespace hvd::test::bed {
namespace {

using Clock = std::chrono::steady_clock;

struct Waiting {
  std::uint32_t id;
  Clock::time_point due;
};

// One message to nfnetlink_queue: a header and attributes.
class Message {
 public:
  Message(std::uint16_t type, std::uint16_t flags) {
    nlmsghdr header{};
    header.nlmsg_type = static_cast<std::uint16_t>((NFNL_SUBSYS_QUEUE << 8) | type);
    header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    append(&header, sizeof header);
    nfgenmsg about{};
    about.version = NFNETLINK_V0;
    about.res_id = htons(kDelayQueue);
    append(&about, sizeof about);
  }

  template <typename T>
  Message& attribute(std::uint16_t type, const T& value) {
    nlattr header{};
    header.nla_type = type;
    header.nla_len = static_cast<std::uint16_t>(sizeof header + sizeof value);
    append(&header, sizeof header);
    append(&value, sizeof value);
    return *this;
  }

  void send(int socket) {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    if (::send(socket, bytes_.data(), bytes_.size(), 0) < 0) throw_errno("send to nfnetlink");
  }

 private:
  void append(const void* data, std::size_t size) {
    const auto* begin = static_cast<const char*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }

  std::vector<char> bytes_;
};

using Buffer = std::array<char, 1 << 16>;

// Reads the kernel's answer to a setting.
void expect_done(int socket, Buffer& buffer, const std::string& what) {
  const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
  nlmsghdr header{};
  nlmsgerr answer{};
  if (got < static_cast<ssize_t>(sizeof header + sizeof answer)) throw_errno(what);
  std::memcpy(&header, buffer.data(), sizeof header);
  std::memcpy(&answer, buffer.data() + sizeof header, sizeof answer);
  if (header.nlmsg_type != NLMSG_ERROR || answer.error != 0) {
    errno = -answer.error;
    throw_errno(what);
  }
}

UniqueFd open_queue(Buffer& buffer) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!socket) throw_errno("open a netfilter socket");
  const int room = 16 << 20;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_NETLINK, NETLINK_NO_ENOBUFS, &on, sizeof on);

  nfqnl_msg_config_cmd bind{};
  bind.command = NFQNL_CFG_CMD_BIND;
  Message(NFQNL_MSG_CONFIG, NLM_F_ACK).attribute(NFQA_CFG_CMD, bind).send(socket.get());
  expect_done(socket.get(), buffer, "bind the packet queue (does the kernel have NFQUEUE?)");

  nfqnl_msg_config_params params{};
  params.copy_mode = NFQNL_COPY_META;
  // Packets that the network card would cut up later stay whole; what does not fit goes on at once.
  const std::uint32_t flags = htonl(NFQA_CFG_F_GSO | NFQA_CFG_F_FAIL_OPEN);
  Message(NFQNL_MSG_CONFIG, NLM_F_ACK)
      .attribute(NFQA_CFG_PARAMS, params)
      .attribute(NFQA_CFG_QUEUE_MAXLEN, htonl(100000))
      .attribute(NFQA_CFG_MASK, flags)
      .attribute(NFQA_CFG_FLAGS, flags)
      .send(socket.get());
  expect_done(socket.get(), buffer, "set up the packet queue");
  return socket;
}

std::optional<std::uint32_t> packet_id(const char* message, std::size_t size) {
  std::size_t at = NLMSG_ALIGN(sizeof(nlmsghdr)) + NLMSG_ALIGN(sizeof(nfgenmsg));
  while (at + sizeof(nlattr) <= size) {
    nlattr header{};
    std::memcpy(&header, message + at, sizeof header);
    if (header.nla_len < sizeof header || at + header.nla_len > size) break;
    if ((header.nla_type & NLA_TYPE_MASK) == NFQA_PACKET_HDR) {
      nfqnl_msg_packet_hdr packet{};
      std::memcpy(&packet, message + at + sizeof header, sizeof packet);
      return ntohl(packet.packet_id);
    }
    at += NLMSG_ALIGN(header.nla_len);
  }
  return std::nullopt;
}

void take_in(int socket, Buffer& buffer, std::deque<Waiting>& waiting, Clock::duration delay) {
  ssize_t got = 0;
  while ((got = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
    const auto now = Clock::now();
    std::size_t at = 0;
    const auto size = static_cast<std::size_t>(got);
    while (at + sizeof(nlmsghdr) <= size) {
      nlmsghdr header{};
      std::memcpy(&header, buffer.data() + at, sizeof header);
      if (header.nlmsg_len < sizeof header || at + header.nlmsg_len > size) break;
      const auto id = packet_id(buffer.data() + at, header.nlmsg_len);
      if (id) waiting.push_back({*id, now + delay});
      at += NLMSG_ALIGN(header.nlmsg_len);
    }
  }
}

// One verdict lets go everything up to a packet.
void let_go(int socket, std::deque<Waiting>& waiting, Clock::time_point until) {
  std::optional<std::uint32_t> last;
  while (!waiting.empty() && waiting.front().due <= until) {
    last = waiting.front().id;
    waiting.pop_front();
  }
  if (!last) return;
  nfqnl_msg_verdict_hdr verdict{};
  verdict.verdict = htonl(NF_ACCEPT);
  verdict.id = htonl(*last);
  Message(NFQNL_MSG_VERDICT_BATCH, 0).attribute(NFQA_VERDICT_HDR, verdict).send(socket);
}

}  // namespace

void be_delay_line(std::chrono::nanoseconds delay, int control) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  static Buffer buffer;
  const UniqueFd socket = open_queue(buffer);
  if (::write(control, "r", 1) != 1) throw_errno("say that the delay line is ready");
  std::deque<Waiting> waiting;
  for (;;) {
    let_go(socket.get(), waiting, Clock::now());
    timespec wait{};
    if (!waiting.empty()) {
      const auto left = std::max(waiting.front().due - Clock::now(), Clock::duration::zero());
      wait.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count();
      wait.tv_nsec = (left % std::chrono::seconds(1)).count();
    }
    std::array<pollfd, 2> polled{pollfd{socket.get(), POLLIN, 0}, pollfd{control, POLLIN, 0}};
    ::ppoll(polled.data(), polled.size(), waiting.empty() ? nullptr : &wait, nullptr);
    if (polled[1].revents != 0) break;
    if (polled[0].revents != 0) take_in(socket.get(), buffer, waiting, delay);
  }
  take_in(socket.get(), buffer, waiting, delay);
  let_go(socket.get(), waiting, Clock::time_point::max());
}

}  // namespace hvd::test::bed
