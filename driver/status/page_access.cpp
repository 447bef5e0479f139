#include "driver/status/page_access.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/status/page_files.h"

namespace hvd::driver {
namespace {

constexpr std::string_view kKeyTarget = "/?key=";
constexpr std::uint16_t kHttpPort = 80;

// Compares with every secret, so that the time tells nothing about any of them.
template <typename Secrets, typename SecretOf>
auto find_secret(Secrets& secrets, std::string_view digits, SecretOf secret_of) {
  const auto shown = Token::from_hex(digits);
  auto found = secrets.end();
  if (!shown.ok()) return found;
  for (auto one = secrets.begin(); one != secrets.end(); ++one) {
    if (equal_in_constant_time(secret_of(*one).bytes(), shown->bytes())) found = one;
  }
  return found;
}

PageAccess::Verdict refusal(unsigned status, std::string_view why) {
  return {status, cat(why, "\n"), {}};
}

}  // namespace

PageAccess::PageAccess(std::string job_id, SocketAddress bound)
    : job_id_(std::move(job_id)), bound_(std::move(bound)) {}

std::string PageAccess::make_key(TimePoint now) {
  keys_.push_back({Token::random(), now + kKeyTime});
  if (keys_.size() > kMaxKeys) keys_.pop_front();
  return to_hex(keys_.back().secret.bytes());
}

// "127.0.0.1:4000", "[::1]:4000": a stranger's server can have any name, but no address of ours.
// `localhost` is refused, too, since every job and every user of the machine shares that site.
bool PageAccess::is_named_by(std::string_view host) const {
  std::string_view name = host;
  std::uint16_t port = kHttpPort;
  const auto colon = host.rfind(':');
  const auto bracket = host.rfind(']');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    name = host.substr(0, colon);
    port = parse_number<std::uint16_t>(host.substr(colon + 1)).value_or(0);
  }
  if (port != bound_.port) return false;

  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  if (bracketed) name = name.substr(1, name.size() - 2);
  const bool is_ipv6 = name.find(':') != std::string_view::npos;
  return is_ipv6 == bracketed && is_ip_address(std::string(name));
}

bool PageAccess::use_up(std::string_view key, TimePoint now) {
  std::erase_if(keys_, [now](const Key& one) { return one.until <= now; });
  const auto found =
      find_secret(keys_, key, [](const Key& one) -> const Token& { return one.secret; });
  if (found == keys_.end()) return false;
  keys_.erase(found);
  return true;
}

bool PageAccess::shows_token(const HttpRequest& request) const {
  const auto found = find_secret(browsers_, bearer_token(request),
                                 [](const Token& one) -> const Token& { return one; });
  return found != browsers_.end();
}

PageAccess::Verdict PageAccess::judge(const HttpRequest& request, TimePoint now) {
  if (!is_named_by(request.host)) {
    return refusal(403, cat("This page is only shown under an address, not a name, and with port ",
                            bound_.port, ". Through ssh -L, give both ends this port."));
  }
  const bool from_here = request.fetch_site.empty() || request.fetch_site == "same-origin" ||
                         request.fetch_site == "none";
  const bool own_origin = request.origin.empty() || request.origin == cat("http://", request.host);
  if (!from_here || !own_origin) {
    return refusal(403, "Another page has led here. Paste the link into the address bar instead.");
  }

  const std::string_view target = request.target;
  if (request.method == "GET" && target.starts_with(kKeyTarget)) {
    if (!use_up(target.substr(kKeyTarget.size()), now)) {
      return refusal(401,
                     cat("This link has been used or is too old: each one opens the page once, "
                         "within an hour. `hvdrun page ",
                         job_id_, "` on the machine of hvdrun prints a new one."));
    }
    const Token browser = Token::random();
    browsers_.push_back(browser);
    if (browsers_.size() > kMaxBrowsers) browsers_.pop_front();
    return {303, {}, to_hex(browser.bytes())};
  }
  const bool is_secret = find_page_file(target.substr(0, target.find('?'))) == nullptr;
  if (is_secret && !shows_token(request)) {
    return refusal(401, cat("This browser has not opened the page by its link yet. `hvdrun page ",
                            job_id_, "` on the machine of hvdrun prints a link."));
  }
  if (request.method != "GET") return refusal(405, "This page only answers GET.");
  return {};
}

}  // namespace hvd::driver
