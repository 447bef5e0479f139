#include "rendezvous/access.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/secret_memory.h"
#include "base/security/trusted_file.h"
#include "base/security/written_file.h"
#include "base/text.h"

namespace hvd::rendezvous {
namespace {

// For a writer at the other end of a pipe.
constexpr std::chrono::seconds kTokenLimit{30};
constexpr std::size_t kMaxTokenFile = 2'048;  // bytes; a sealed token is longer than its digits

}  // namespace

Result<SocketAddress> parse_bind_address(std::string_view text) {
  const Status wrong(Code::invalid_argument,
                     cat("\"", text,
                         "\" is not ADDRESS:PORT (such as 10.0.0.1:4000 or [::1]:4000; "
                         "the address is an IP address, port 0 lets the system choose)"));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  std::string host(text.substr(0, colon));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  in6_addr raw{};
  if (!port || ::inet_pton(bracketed ? AF_INET6 : AF_INET, host.c_str(), &raw) != 1) return wrong;
  return SocketAddress{std::move(host), *port};
}

bool is_inherited(std::string_view path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

Result<std::string> read_token_file(const std::string& path) {
  const FileKind kind = is_inherited(path) ? FileKind::any : FileKind::regular;
  const auto fd = open_trusted_file(path, "token file", FileTrust::secret, kind);
  HVD_RETURN_IF_ERROR(fd.status());
  const std::string what = cat("read token file ", path);
  const TimePoint deadline = Clock::now() + kTokenLimit;
  std::string text;
  std::array<char, kMaxTokenFile> buffer{};
  while (text.size() < buffer.size()) {
    HVD_RETURN_IF_ERROR(wait_for(fd->get(), POLLIN, deadline).with_context(what));
    const ssize_t got = ::read(fd->get(), buffer.data(), buffer.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return Status::from_errno(what, errno);
    if (got == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    wipe(buffer.data(), buffer.size());
  }
  return std::string(trim(text));
}

Result<Token> load_token(const std::string& path) {
  const auto text = read_token_file(path);
  if (!text.ok()) return text.status();
  auto token = Token::from_hex(*text);
  if (!token.ok()) return token.status().with_context(cat("token file ", path));
  return token;
}

Result<Token> load_or_create_token(const std::string& path) {
  auto there = load_token(path);
  if (there.ok() || there.status().code() != Code::not_found) return there;
  // Whole from the first moment that it has its name: others may be waiting for it to appear.
  const Token token = Token::random();
  const Status written = write_whole_file(path, to_hex(token.bytes()) + "\n", WhenThere::keep,
                                          {.what = "token file", .is_synced = true});
  if (written.code() == Code::already_exists) return load_token(path);  // somebody was quicker
  HVD_RETURN_IF_ERROR(written);
  return token;
}

}  // namespace hvd::rendezvous
