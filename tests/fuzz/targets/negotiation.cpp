// The messages of the control tree: what ranks ask for and what they are answered, the timeline and
// the clock. The first byte is the kind, as in runtime/negotiation/messages.h; the rest the
// payload.
#include "runtime/negotiation/messages.h"
#include "runtime/trace/batch.h"
#include "runtime/trace/frames.h"
#include "tests/fuzz/frames.h"

namespace {

using namespace hvd;
using namespace hvd::runtime;
using fuzz::must;
using fuzz::must_explain;
using fuzz::payload_of;

constexpr int kRanks = 8;
constexpr std::size_t kCached = 64;

void read_requests(std::string_view payload) {
  const auto list = decode_request_list(payload, kRanks);
  if (!list.ok()) return must_explain(list.status());
  const auto written = encode_request_list(*list);
  const auto again = decode_request_list(payload_of(written), kRanks);
  must(again.ok() && encode_request_list(*again) == written, "requests are read as written");
}

void read_responses(std::string_view payload) {
  const auto list = decode_response_list(payload, kRanks, kCached);
  if (!list.ok()) return must_explain(list.status());
  std::size_t tensors = 0;
  for (const auto& response : list->responses) tensors += response.tensors.size();
  must(tensors <= (kCached + payload.size()) * list->responses.size(), "memory is bounded");
  const auto written = encode_response_list(*list);
  const auto again = decode_response_list(payload_of(written), kRanks, kCached);
  must(again.ok() && encode_response_list(*again) == written, "responses are read as written");
}

void read_events(std::string_view payload) {
  const auto events = trace::decode_events(payload, kRanks);
  if (!events.ok()) return must_explain(events.status());
  const auto written = trace::encode_events(*events);
  const auto again = trace::decode_events(payload_of(written), kRanks);
  must(again.ok() && trace::encode_events(*again) == written, "events are read as written");
  trace::BatchReader batches(events->batches);
  std::size_t tensors = 0;
  while (const auto batch = batches.next()) tensors += batch->tensors.size();
  must(tensors <= events->batches.size(), "a tensor of a batch takes some bytes");
}

void read_failure(Message kind, std::string_view payload) {
  const auto failure = decode_failure(payload);
  if (!failure.ok()) return must_explain(failure.status());
  const auto written = encode_failure(kind, *failure);
  const auto again = decode_failure(payload_of(written));
  must(again.ok() && encode_failure(kind, *again) == written, "a failure is read as written");
}

// Fixed fields: nothing but that they are read.
template <typename Read>
void read_plain(Read read, std::string_view payload) {
  const auto value = read(payload);
  if (!value.ok()) must_explain(value.status());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto kind = static_cast<Message>(input.byte());
  switch (kind) {
    case Message::formed:
      read_plain(decode_formed, input.rest());
      break;
    case Message::request_list:
      read_requests(input.rest());
      break;
    case Message::response_list:
      read_responses(input.rest());
      break;
    case Message::suspicion:
    case Message::abort:
      read_failure(kind, input.rest());
      break;
    case Message::trace_start:
    case Message::trace_stop:
      read_plain(trace::decode_mark, input.rest());
      break;
    case Message::trace_dump:
      read_plain(trace::decode_dump, input.rest());
      break;
    case Message::trace_events:
      read_events(input.rest());
      break;
    case Message::clock_ask:
      read_plain(trace::decode_clock_ask, input.rest());
      break;
    case Message::clock_answer:
      read_plain(trace::decode_clock_answer, input.rest());
      break;
    default:
      break;
  }
  return 0;
}
