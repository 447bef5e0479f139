// Requests to the rendezvous service and its answers: heads, targets, signatures, the bodies of
// bulk requests. The first byte says which.
#include "rendezvous/auth.h"
#include "rendezvous/http_head.h"
#include "rendezvous/limits.h"
#include "rendezvous/requests.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using namespace hvd::rendezvous;
using fuzz::must;
using fuzz::must_explain;

constexpr std::int64_t kNow = 1'700'000'000'000;

void read_target(std::string_view text) {
  Target target;
  const Status status = parse_target(text, target);
  if (!status.ok()) return must_explain(status);
  std::string written = "/" + percent_encode(target.scope);
  if (!target.key.empty()) written += "/" + percent_encode(target.key);
  Target again;
  must(parse_target(written, again).ok(), "a target that is written anew is one");
  must(again.scope == target.scope && again.key == target.key, "it has the same names");
}

void refuse(std::string_view method, std::string_view target, std::string_view authorization) {
  static const Token token = Token::random();
  // Of the first workers, every second one has ended.
  Verifier verifier(token, kNow - 1000, [](Incarnation worker) {
    return worker < 100 ? std::optional(KnownWorker{"a#0", worker % 2 == 1}) : std::nullopt;
  });
  const auto verdict = verifier.verify(method, target, authorization, kNow);
  must(verdict.outcome == Verifier::Outcome::stranger, "nobody without the token is heard");
  must(verifier.client_count() == 0, "a stranger is not remembered");
}

void read_request(std::string_view bytes) {
  RequestHead head;
  RequestParser parser(head, ServerLimits().max_header);
  std::size_t used = 0;
  std::string reason;
  const auto progress = parser.feed(bytes, used, reason);
  must(used <= bytes.size(), "no more is used than has come");
  if (progress != RequestParser::Progress::done) return;
  must(head.target.size() <= ServerLimits().max_header, "a head has its limit");
  read_target(head.target);
  refuse(head.method, head.target, head.authorization);
}

void read_answer(std::string_view bytes) {
  static const Token token = Token::random();
  ResponseHead head;
  ResponseParser parser(head, ServerLimits().max_header);
  std::size_t used = 0;
  std::string reason;
  if (parser.feed(bytes, used, reason) != ResponseParser::Progress::done) return;
  const Signer signer(token, 7);
  must(!signer.verify({7, 1}, {.status = head.status, .version = head.version, .time = head.time},
                      head.proof),
       "an answer of somebody without the token is not believed");
}

void read_bulk_write(std::string_view body) {
  const auto values = decode_bulk_write(body);
  if (!values.ok()) return must_explain(values.status());
  std::map<std::string, std::string> sorted;
  for (const auto& [key, value] : *values) sorted.emplace(key, value->bytes);
  const auto again = decode_bulk_write(encode_bulk_write(sorted));
  must(again.ok() && again->size() == sorted.size(), "values that are written are read again");
}

void read_bulk_keys(std::string_view body) {
  const auto keys = decode_bulk_keys(body);
  if (!keys.ok()) return must_explain(keys.status());
  const auto again = decode_bulk_keys(encode_bulk_keys(*keys));
  must(again.ok() && *again == *keys, "keys that are written are read again");
}

void read_bulk_values(std::string_view body) {
  const auto values = decode_bulk_values(body);
  if (!values.ok()) return must_explain(values.status());
  must(values->size() <= body.size(), "a value takes some bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 7) {
    case 0:
      read_request(input.rest());
      break;
    case 1:
      read_target(input.rest());
      break;
    case 2:
      refuse("PUT", "/scope/key", input.rest());
      break;
    case 3:
      read_answer(input.rest());
      break;
    case 4:
      read_bulk_write(input.rest());
      break;
    case 5:
      read_bulk_keys(input.rest());
      break;
    default:
      read_bulk_values(input.rest());
      break;
  }
  return 0;
}
