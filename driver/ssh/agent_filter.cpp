#include "driver/ssh/agent_filter.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "base/security/crypto.h"
#include "base/socket.h"

namespace hvd::driver::ssh {
namespace {

// Kinds of messages, and the longest one that OpenSSH's agent takes.
constexpr char kRequestIdentities = 11;
constexpr char kIdentitiesAnswer = 12;
constexpr std::size_t kLongest = std::size_t{256} << 10;

std::string number(std::size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// Takes a number, or a string with its length before it, from the beginning of `text`.
std::optional<std::size_t> take_number(std::string_view& text) {
  if (text.size() < 4) return std::nullopt;
  std::size_t value = 0;
  for (int i = 0; i < 4; ++i) value = (value << 8U) | static_cast<unsigned char>(text[i]);
  text.remove_prefix(4);
  return value;
}

std::optional<std::string> take_string(std::string_view& text) {
  const auto size = take_number(text);
  if (!size || *size > text.size()) return std::nullopt;
  std::string taken(text.substr(0, *size));
  text.remove_prefix(*size);
  return taken;
}

}  // namespace

std::vector<AgentKey> parse_identities(std::string_view message) {
  std::vector<AgentKey> keys;
  if (message.empty() || message.front() != kIdentitiesAnswer) return keys;
  message.remove_prefix(1);
  const auto count = take_number(message);
  while (count && keys.size() < *count) {
    auto blob = take_string(message);
    auto comment = take_string(message);
    if (!blob || !comment) break;
    std::string key = to_base64(*blob);
    keys.push_back(
        {.key = std::move(key), .blob = std::move(*blob), .comment = std::move(*comment)});
  }
  return keys;
}

std::string identities_message(const std::vector<AgentKey>& keys) {
  std::string message = kIdentitiesAnswer + number(keys.size());
  for (const AgentKey& key : keys) {
    message += number(key.blob.size()) + key.blob + number(key.comment.size()) + key.comment;
  }
  return message;
}

std::vector<AgentKey> choose_keys(std::vector<AgentKey> held, const AgentChoice& choice) {
  std::erase_if(held, [&](const AgentKey& key) { return choice.never.contains(key.key); });
  const auto place = [&](const AgentKey& key) {
    return std::find(choice.first.begin(), choice.first.end(), key.key) - choice.first.begin();
  };
  std::stable_sort(held.begin(), held.end(),
                   [&](const AgentKey& a, const AgentKey& b) { return place(a) < place(b); });
  if (choice.only_first) {
    std::erase_if(held, [&](const AgentKey& key) {
      return place(key) == static_cast<std::ptrdiff_t>(choice.first.size());
    });
  }
  return held;
}

Result<std::unique_ptr<AgentFilter>> AgentFilter::connect(const std::string& path,
                                                          const Deadline& deadline) {
  std::unique_ptr<AgentFilter> filter(new AgentFilter(deadline));
  HVD_RETURN_IF_ERROR(filter->connect_to(path));
  const auto answer = filter->ask(std::string(1, kRequestIdentities));
  if (!answer.ok()) return answer.status();
  filter->keys_ = parse_identities(*answer);
  return filter;
}

AgentFilter::~AgentFilter() {
  done_.set();
  thread_.join();
}

Status AgentFilter::connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return {Code::invalid_argument, "the path is too long for a socket"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());

  auto connected =
      connect_unix(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline_.ends());
  if (!connected.ok()) return connected.status();
  agent_ = std::move(*connected);
  return {};
}

Status AgentFilter::serve(ssh_session session, const std::vector<AgentKey>& keys) {
  auto pair = socket_pair();
  HVD_RETURN_IF_ERROR(pair.status());
  libssh_ = std::move(pair->first);
  HVD_RETURN_IF_ERROR(thread_.start([this, identities = identities_message(keys)] {
    pass_on(identities);
    ::shutdown(libssh_.get(), SHUT_RDWR);  // ends the call of libssh that is in progress
  }));
  if (ssh_set_agent_socket(session, pair->second.get()) != SSH_OK) {
    return {Code::internal, "libssh does not take the SSH agent's socket"};
  }
  (void)pair->second.release();  // the session closes it
  return {};
}

void AgentFilter::pass_on(const std::string& identities) const {
  while (true) {
    const auto request = receive(libssh_.get());
    if (!request.ok()) return;
    const auto answer =
        request->starts_with(kRequestIdentities) ? Result<std::string>(identities) : ask(*request);
    if (!answer.ok() || !send(libssh_.get(), *answer).ok()) return;
  }
}

Result<std::string> AgentFilter::ask(std::string_view request) const {
  HVD_RETURN_IF_ERROR(send(agent_.get(), request));
  return receive(agent_.get());
}

Status AgentFilter::send(int fd, std::string_view message) const {
  return send_all(fd, number(message.size()).append(message), deadline_.ends());
}

// A whole message, without its length.
Result<std::string> AgentFilter::receive(int fd) const {
  std::string bytes;
  std::size_t wanted = 4;
  while (bytes.size() < wanted) {
    std::array<pollfd, 2> fds{{{.fd = fd, .events = POLLIN, .revents = 0},
                               {.fd = done_.fd(), .events = POLLIN, .revents = 0}}};
    HVD_RETURN_IF_ERROR(deadline_.poll(fds));
    if (done_.is_set()) return Status(Code::aborted, "the authentication has ended");

    std::array<char, 4096> buffer{};
    const ssize_t count =
        ::recv(fd, buffer.data(), std::min(buffer.size(), wanted - bytes.size()), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) return Status::from_errno("read", errno);
    if (count == 0) return Status(Code::unavailable, "it closed the connection");
    bytes.append(buffer.data(), static_cast<std::size_t>(count));
    if (wanted == 4 && bytes.size() == wanted) {
      std::string_view length = bytes;
      wanted += take_number(length).value_or(0);
      if (wanted > kLongest) return Status(Code::data_loss, "its answer is too long");
    }
  }
  return bytes.substr(4);
}

}  // namespace hvd::driver::ssh
