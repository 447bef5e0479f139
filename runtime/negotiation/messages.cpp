#include "runtime/negotiation/messages.h"

#include <algorithm>
#include <limits>

#include "base/frame.h"
#include "base/wire.h"

namespace hvd::runtime {
namespace {

constexpr IntervalSet::Value kNoLimit = std::numeric_limits<IntervalSet::Value>::max();

std::string frame_of(Message kind, const WireWriter& fields) {
  return encode_frame(static_cast<std::uint16_t>(kind), fields.bytes());
}

void write_status(WireWriter& out, const Status& status) {
  out.u8(static_cast<std::uint8_t>(status.code())).str(status.message());
}

Status read_status(WireReader& in) {
  const auto code = in.u8();
  auto message = in.str();
  if (code > static_cast<std::uint8_t>(Code::internal)) return {Code::internal, message};
  return code == 0 ? Status() : Status(static_cast<Code>(code), std::move(message));
}

std::uint32_t u32_of(std::chrono::microseconds time) {
  constexpr std::chrono::microseconds::rep kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(
      std::clamp<std::chrono::microseconds::rep>(time.count(), 0, kMost));
}

void write_link_speed(WireWriter& out, const LinkSpeed& speed) {
  out.u32(u32_of(speed.round_trip)).u32(speed.megabytes_per_second);
}

LinkSpeed read_link_speed(WireReader& in) {
  const std::chrono::microseconds round_trip(in.u32());
  return {round_trip, in.u32()};
}

void write_extents(WireWriter& out, const std::vector<std::int64_t>& extents) {
  out.u32(static_cast<std::uint32_t>(extents.size()));
  for (const auto extent : extents) out.i64(extent);
}

std::vector<std::int64_t> read_extents(WireReader& in) {
  std::vector<std::int64_t> extents;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) extents.push_back(in.i64());
  return extents;
}

void write_ranks(WireWriter& out, const std::vector<int>& ranks) {
  out.u32(static_cast<std::uint32_t>(ranks.size()));
  for (const int rank : ranks) out.i32(rank);
}

std::vector<int> read_ranks(WireReader& in) {
  std::vector<int> ranks;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) ranks.push_back(in.i32());
  return ranks;
}

void write_request(WireWriter& out, const Request& request) {
  out.str(request.name)
      .u8(static_cast<std::uint8_t>(request.kind))
      .u8(static_cast<std::uint8_t>(request.type))
      .u8(static_cast<std::uint8_t>(request.op))
      .u8(static_cast<std::uint8_t>(request.compression))
      .boolean(request.on_host)
      .i32(request.root)
      .f64(request.prescale)
      .f64(request.postscale)
      .i32(request.process_set)
      .boolean(request.by_members)
      .str(request.group)
      .i32(request.group_size)
      .u64(request.tree);
  write_extents(out, request.shape);
  write_ranks(out, request.ranks);
}

Request read_request(WireReader& in) {
  Request request;
  request.name = in.str();
  request.kind = static_cast<Kind>(in.u8());
  request.type = static_cast<DataType>(in.u8());
  request.op = static_cast<ReduceOp>(in.u8());
  request.compression = static_cast<Compression>(in.u8());
  request.on_host = in.boolean();
  request.root = in.i32();
  request.prescale = in.f64();
  request.postscale = in.f64();
  request.process_set = in.i32();
  request.by_members = in.boolean();
  request.group = in.str();
  request.group_size = in.i32();
  request.tree = in.u64();
  request.shape = read_extents(in);
  request.ranks = read_ranks(in);
  return request;
}

// Writes the tensors in their order: runs of consecutive ids, and between them the tensors that are
// not cached.
void write_tensors(WireWriter& out, const std::vector<WireResponse::Tensor>& tensors) {
  struct IdRun {
    CacheId first = 0;
    std::uint32_t count = 0;
    const ResponseTensor* whole = nullptr;
  };

  std::vector<IdRun> runs;
  for (const auto& tensor : tensors) {
    if (!tensor.id) {
      runs.push_back({0, 0, tensor.whole.get()});
    } else if (!runs.empty() && runs.back().whole == nullptr &&
               runs.back().first + runs.back().count == *tensor.id) {
      ++runs.back().count;
    } else {
      runs.push_back({*tensor.id, 1, nullptr});
    }
  }

  out.u32(static_cast<std::uint32_t>(runs.size()));
  for (const auto& run : runs) {
    out.u32(run.count);
    if (run.whole == nullptr) {
      out.u64(run.first);
    } else {
      write_request(out, run.whole->request);
      write_extents(out, run.whole->first_extents);
    }
  }
}

// Tensors that are not cached take bytes of their own; `most_cached` bounds the memory that a false
// run of ids can claim.
bool read_tensors(WireReader& in, std::size_t most_cached,
                  std::vector<WireResponse::Tensor>& tensors) {
  std::size_t cached = 0;
  for (std::uint32_t runs = in.u32(); runs > 0 && !in.failed(); --runs) {
    const std::uint32_t count = in.u32();
    if (count == 0) {
      ResponseTensor tensor;
      tensor.request = read_request(in);
      tensor.first_extents = read_extents(in);
      if (in.failed()) return false;
      tensors.push_back({std::nullopt, std::make_shared<const ResponseTensor>(std::move(tensor))});
      continue;
    }
    const CacheId first = in.u64();
    if (in.failed() || count > most_cached - cached) return false;
    cached += count;
    for (std::uint32_t i = 0; i < count; ++i) tensors.push_back({first + i, nullptr});
  }
  return !tensors.empty() && !in.failed();
}

void write_wire_response(WireWriter& out, const WireResponse& wire) {
  out.u8(static_cast<std::uint8_t>(wire.kind)).i32(wire.process_set);
  write_tensors(out, wire.tensors);
  IntervalSet::of_ranks(wire.joined).encode(out);
  out.i32(wire.last_joined).i32(wire.new_set);
  write_status(out, wire.error);
  wire.settled.encode(out);
  out.boolean(wire.hierarchical);
  write_link_speed(out, wire.link_speed);
  out.boolean(wire.caching);
  out.boolean(wire.lanes);
}

std::optional<WireResponse> read_wire_response(WireReader& in, int world_size,
                                               std::size_t most_cached) {
  WireResponse wire;
  wire.kind = static_cast<Kind>(in.u8());
  wire.process_set = in.i32();
  if (wire.kind > Kind::send_recv || !read_tensors(in, most_cached, wire.tensors)) {
    return std::nullopt;
  }

  const auto joined = IntervalSet::decode(in, static_cast<IntervalSet::Value>(world_size));
  if (!joined) return std::nullopt;
  wire.joined = joined->ranks();
  wire.last_joined = in.i32();
  wire.new_set = in.i32();
  wire.error = read_status(in);

  auto settled = IntervalSet::decode(in, kNoLimit);
  if (!settled) return std::nullopt;
  wire.settled = std::move(*settled);
  wire.hierarchical = in.boolean();
  wire.link_speed = read_link_speed(in);
  wire.caching = in.boolean();
  wire.lanes = in.boolean();
  return wire;
}

}  // namespace

std::string encode_formed(std::chrono::microseconds round_trip) {
  WireWriter out;
  out.u32(u32_of(round_trip));
  return frame_of(Message::formed, out);
}

std::string encode_shm_notification() {
  return encode_frame(static_cast<std::uint16_t>(Message::shm_notification), {});
}

std::string encode_alive() { return encode_frame(static_cast<std::uint16_t>(Message::alive), {}); }

std::string encode_request_list(const RequestList& message) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(message.cached.size()));
  for (const auto& known : message.cached) {
    known.ranks.encode(out);
    known.ids.encode(out);
  }

  out.u32(static_cast<std::uint32_t>(message.full.size()));
  for (const auto& asked : message.full) {
    asked.ranks.encode(out);
    write_request(out, asked.request);
    write_extents(out, asked.first_extents);
  }

  message.joined.encode(out);
  out.boolean(message.joins_soon).boolean(message.in_shutdown);
  message.closing.encode(out);
  message.left.encode(out);
  out.u32(static_cast<std::uint32_t>(message.last_requests.size()));
  for (const auto& word : message.last_requests) {
    out.i32(word.rank).str(word.tensor).i64(word.ago.count());
  }

  return frame_of(Message::request_list, out);
}

Result<RequestList> decode_request_list(std::string_view payload, int world_size) {
  const Status broken(Code::data_loss, "request list: malformed");
  WireReader in(payload);
  RequestList message;
  const auto ranks = [&] {
    return IntervalSet::decode(in, static_cast<IntervalSet::Value>(world_size));
  };

  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto whose = ranks();
    auto ids = whose ? IntervalSet::decode(in, kNoLimit) : std::nullopt;
    if (!ids) return broken;
    message.cached.push_back({std::move(*whose), std::move(*ids)});
  }

  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto whose = ranks();
    if (!whose) return broken;
    Request request = read_request(in);
    message.full.push_back({std::move(*whose), std::move(request), read_extents(in)});
  }

  auto joined = ranks();
  message.joins_soon = in.boolean();
  message.in_shutdown = in.boolean();
  auto closing = joined ? ranks() : std::nullopt;
  auto left_ranks = closing ? ranks() : std::nullopt;
  if (!left_ranks) return broken;
  message.joined = std::move(*joined);
  message.closing = std::move(*closing);
  message.left = std::move(*left_ranks);

  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    LastRequest word{in.i32(), in.str(), std::chrono::milliseconds(in.i64())};
    if (word.rank < 0 || word.rank >= world_size || word.ago.count() < 0 ||
        word.ago > std::chrono::hours(1'000'000)) {
      return broken;
    }
    message.last_requests.push_back(std::move(word));
  }

  HVD_RETURN_IF_ERROR(in.finish("request list"));
  return message;
}

std::string encode_response_list(const ResponseList& message) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(message.responses.size()));
  for (const auto& wire : message.responses) write_wire_response(out, wire);
  out.boolean(message.keeps_ids).boolean(message.forward_immediately).boolean(message.goodbye);
  return frame_of(Message::response_list, out);
}

Result<ResponseList> decode_response_list(std::string_view payload, int world_size,
                                          std::size_t most_cached) {
  WireReader in(payload);
  ResponseList message;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto wire = read_wire_response(in, world_size, most_cached);
    if (!wire) {
      return Status(Code::data_loss, "response list: malformed");
    }
    // A tensor sent in full may get an id by this response, which the next response may use.
    for (const auto& tensor : wire->tensors) most_cached += tensor.id ? 0 : 1;
    message.responses.push_back(std::move(*wire));
  }
  message.keeps_ids = in.boolean();
  message.forward_immediately = in.boolean();
  message.goodbye = in.boolean();
  HVD_RETURN_IF_ERROR(in.finish("response list"));
  return message;
}

std::string encode_failure(Message kind, const Failure& failure) {
  WireWriter out;
  write_status(out, failure.status);
  out.i32(failure.rank).str(failure.host);
  return frame_of(kind, out);
}

Result<std::chrono::microseconds> decode_formed(std::string_view payload) {
  WireReader in(payload);
  const std::chrono::microseconds round_trip(in.u32());
  HVD_RETURN_IF_ERROR(in.finish("formed"));
  return round_trip;
}

Result<Failure> decode_failure(std::string_view payload) {
  WireReader in(payload);
  Failure failure;
  failure.status = read_status(in);
  failure.rank = in.i32();
  failure.host = in.str();
  HVD_RETURN_IF_ERROR(in.finish("failure"));
  if (failure.ok()) return Status(Code::data_loss, "failure: no error code");
  return failure;
}

}  // namespace hvd::runtime
