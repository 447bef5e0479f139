#include "driver/status/metrics_server.h"

#include <string_view>
#include <utility>

#include "base/text.h"

namespace hvd::driver {

MetricsServer::MetricsServer(boost::asio::io_context& io, const Token& token,
                             std::function<HttpReply()> metrics, HttpLimits limits)
    : token_(token),
      metrics_(std::move(metrics)),
      listener_(
          io,
          [this](const HttpRequest& request, const HttpListener::Answer& answer_to) {
            answer_to(answer(request));
          },
          limits) {}

bool MetricsServer::shows_token(const HttpRequest& request) const {
  const auto token = Token::from_hex(bearer_token(request));
  return token.ok() && equal_in_constant_time(token->bytes(), token_.bytes());
}

HttpReply MetricsServer::answer(const HttpRequest& request) const {
  if (!shows_token(request)) {
    return {401, "a bearer token is needed\n", {}, true};
  }
  const std::string_view target = request.target;
  if (target.substr(0, target.find('?')) != "/metrics") return {404, "GET /metrics\n"};
  if (request.method == "GET" || request.method == "HEAD") return metrics_();
  HttpReply refusal{405, "GET /metrics\n"};
  refusal.fields = {{"Allow", "GET, HEAD"}};
  return refusal;
}

}  // namespace hvd::driver
