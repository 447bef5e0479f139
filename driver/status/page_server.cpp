#include "driver/status/page_server.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/security/random.h"
#include "base/text.h"
#include "driver/status/page_files.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kChunk = 65'536;  // of events, on their way to one reader
constexpr std::chrono::milliseconds kStatusHolds{200};
// A status of thousands of workers takes some time: at most one part in so many of the driver's.
constexpr int kShareOfDriver = 20;

// No script and no style but those of this server, and no other site may show the page in a frame.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::vector<HttpField> common_fields() {
  return {{"Content-Security-Policy", kPolicy},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-store"},
          {"X-Frame-Options", "DENY"}};
}

// The last event that a reader has, or 0. A browser names it when it comes back by itself, the page
// when it asks anew.
std::uint64_t last_event_of(const HttpRequest& request) {
  if (!request.last_event_id.empty()) {
    return parse_number<std::uint64_t>(request.last_event_id).value_or(0);
  }
  constexpr std::string_view kAfter = "/events?after=";
  const std::string_view target = request.target;
  if (!target.starts_with(kAfter)) return 0;
  return parse_number<std::uint64_t>(target.substr(kAfter.size())).value_or(0);
}

// 127.0.0.1 in place of an address that means all addresses.
SocketAddress reachable(SocketAddress address) {
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  return address;
}

// Neither the net's own address nor the one to all of it, and none that services use: these are in
// 127.0.0.0/16.
std::string random_loopback_address() {
  std::array<unsigned char, 3> random{};
  fill_random(random.data(), random.size());
  constexpr unsigned kChoices = 254;  // 1 to 254
  return cat("127.", 1 + random[0] % kChoices, ".", int{random[1]}, ".", 1 + random[2] % kChoices);
}

}  // namespace

Result<UniqueFd> listen_for_page(const SocketAddress& bind, const ListenPorts& ports) {
  if (!bind.host.empty()) return listen_tcp(bind, ports);

  auto own = listen_tcp({random_loopback_address(), bind.port}, ports);
  return own.ok() ? std::move(own) : listen_tcp({"127.0.0.1", bind.port}, ports);
}

// The answer to one reader.
class PageServer::Events : public HttpStream {
 public:
  Events(std::shared_ptr<EventBuffer> events, std::shared_ptr<std::string> last_words,
         std::uint64_t last)
      : events_(std::move(events)), last_words_(std::move(last_words)), last_(last) {}

  std::string next() override {
    std::string text = std::exchange(begun_, true) ? "" : "retry: 1000\n\n";
    const EventBuffer::Batch batch = events_->after(last_, kChunk);
    if (batch.missed > 0) text += cat("event: gap\ndata: ", batch.missed, "\n\n");
    text += batch.text;
    last_ = batch.last;
    const bool has_all = last_ == events_->newest();
    if (has_all && !last_words_->empty() && !std::exchange(ended_, true)) text += *last_words_;
    return text;
  }
  std::string idle() override { return ":\n\n"; }

 private:
  std::shared_ptr<EventBuffer> events_;
  std::shared_ptr<std::string> last_words_;
  std::uint64_t last_;
  bool begun_ = false;
  bool ended_ = false;
};

PageServer::PageServer(boost::asio::io_context& io, const std::string& job_id,
                       const SocketAddress& bound, std::function<std::string()> status,
                       HttpLimits limits)
    : job_id_(job_id),
      bound_(bound),
      make_status_(std::move(status)),
      access_(job_id, bound),
      listener_(
          io,
          [this](const HttpRequest& request, const HttpListener::Answer& answer_to) {
            answer(request, answer_to);
          },
          limits) {}

std::string PageServer::make_link() {
  return cat("http://", reachable(bound_).to_string(), "/?key=", access_.make_key(Clock::now()));
}

void PageServer::add_event(std::string line) {
  if (line.ends_with('\n')) line.pop_back();
  events_->add(std::move(line));
  listener_.wake_streams();
}

void PageServer::end(int exit_code, std::string_view reason) {
  const nlohmann::json words{{"exit_code", exit_code}, {"reason", reason}};
  *last_words_ = cat("event: end\ndata: ",
                     words.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n\n");
  listener_.end_streams();
}

const std::string& PageServer::status() {
  const TimePoint begin = Clock::now();
  if (begin < status_holds_until_) return status_;
  status_ = make_status_();
  const TimePoint end = Clock::now();
  status_holds_until_ = end + std::max<Duration>(kStatusHolds, kShareOfDriver * (end - begin));
  return status_;
}

void PageServer::answer(const HttpRequest& request, const HttpListener::Answer& answer) {
  const PageAccess::Verdict verdict = access_.judge(request, Clock::now());
  HttpReply reply;
  if (verdict.status == 200) {
    reply = reply_to(request);
  } else {
    reply = {verdict.status, verdict.text, "text/plain; charset=utf-8"};
  }
  for (auto& field : common_fields()) reply.fields.push_back(std::move(field));
  if (verdict.status == 405) reply.fields.emplace_back("Allow", "GET");
  if (verdict.status == 303) {
    // A browser keeps what stands behind # to itself; the page's script takes it from there.
    reply.fields.emplace_back("Location", cat("/#", verdict.token));
  }
  answer(std::move(reply));
}

HttpReply PageServer::reply_to(const HttpRequest& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  if (const PageFile* const file = find_page_file(path)) {
    return {200, std::string(file->content), std::string(file->content_type)};
  }
  opened_ = true;
  if (path == "/status") return {200, status(), "application/json"};
  if (path == "/events") {
    HttpReply reply{200, {}, "text/event-stream"};
    reply.stream = std::make_shared<Events>(events_, last_words_, last_event_of(request));
    return reply;
  }
  return {404, "The page is at /.\n", "text/plain; charset=utf-8"};
}

}  // namespace hvd::driver
