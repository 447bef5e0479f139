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
      .str(request.group)
      .i32(request.group_size);
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
  request.group = in.str();
  request.group_size = in.i32();
  request.shape = read_extents(in);
  request.ranks = read_ranks(in);
  return request;
}

// Ids in their order, as stretches of neighbours; what is not cached lies between them.
void write_tensors(WireWriter& out, const std::vector<Decision::Tensor>& tensors) {
  struct Stretch {
    CacheId first = 0;
    std::uint32_t count = 0;
    const ResponseTensor* whole = nullptr;
  };
  std::vector<Stretch> stretches;
  for (const auto& tensor : tensors) {
    if (!tensor.id) {
      stretches.push_back({0, 0, tensor.whole.get()});
    } else if (!stretches.empty() && stretches.back().whole == nullptr &&
               stretches.back().first + stretches.back().count == *tensor.id) {
      ++stretches.back().count;
    } else {
      stretches.push_back({*tensor.id, 1, nullptr});
    }
  }
  out.u32(static_cast<std::uint32_t>(stretches.size()));
  for (const auto& stretch : stretches) {
    out.u32(stretch.count);
    if (stretch.whole == nullptr) {
      out.u64(stretch.first);
    } else {
      write_request(out, stretch.whole->request);
      write_extents(out, stretch.whole->first_extents);
    }
  }
}

// What is not cached takes bytes of its own; `most_cached` bounds what a lie about a stretch of ids
// may cost.
bool read_tensors(WireReader& in, std::size_t most_cached, std::vector<Decision::Tensor>& tensors) {
  std::size_t cached = 0;
  for (std::uint32_t stretches = in.u32(); stretches > 0 && !in.failed(); --stretches) {
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

void write_decision(WireWriter& out, const Decision& decision) {
  out.u8(static_cast<std::uint8_t>(decision.kind)).i32(decision.process_set);
  write_tensors(out, decision.tensors);
  IntervalSet::of_ranks(decision.joined).encode(out);
  out.i32(decision.last_joined).i32(decision.new_set);
  write_status(out, decision.error);
  decision.settled.encode(out);
  out.boolean(decision.hierarchical).boolean(decision.caching);
}

std::optional<Decision> read_decision(WireReader& in, int world_size, std::size_t most_cached) {
  Decision decision;
  decision.kind = static_cast<Kind>(in.u8());
  decision.process_set = in.i32();
  if (decision.kind > Kind::remove_process_set ||
      !read_tensors(in, most_cached, decision.tensors)) {
    return std::nullopt;
  }
  const auto joined = IntervalSet::decode(in, static_cast<IntervalSet::Value>(world_size));
  if (!joined) return std::nullopt;
  decision.joined = joined->ranks();
  decision.last_joined = in.i32();
  decision.new_set = in.i32();
  decision.error = read_status(in);
  auto settled = IntervalSet::decode(in, kNoLimit);
  if (!settled) return std::nullopt;
  decision.settled = std::move(*settled);
  decision.hierarchical = in.boolean();
  decision.caching = in.boolean();
  return decision;
}

}  // namespace

std::string encode_formed() {
  return encode_frame(static_cast<std::uint16_t>(Message::formed), {});
}

std::string encode_letters() {
  return encode_frame(static_cast<std::uint16_t>(Message::letters), {});
}

std::string encode_upward(const Upward& message) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(message.known.size()));
  for (const auto& known : message.known) {
    known.ranks.encode(out);
    known.ids.encode(out);
  }
  out.u32(static_cast<std::uint32_t>(message.asked.size()));
  for (const auto& asked : message.asked) {
    asked.ranks.encode(out);
    write_request(out, asked.request);
    write_extents(out, asked.first_extents);
  }
  message.joined.encode(out);
  message.left.encode(out);
  out.u32(static_cast<std::uint32_t>(message.last_words.size()));
  for (const auto& word : message.last_words) {
    out.i32(word.rank).str(word.tensor).i64(word.ago.count());
  }
  return frame_of(Message::upward, out);
}

Result<Upward> decode_upward(std::string_view payload, int world_size) {
  const Status broken(Code::data_loss, "upward: not what a subtree can say");
  WireReader in(payload);
  Upward message;
  const auto ranks = [&] {
    return IntervalSet::decode(in, static_cast<IntervalSet::Value>(world_size));
  };
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto whose = ranks();
    auto ids = whose ? IntervalSet::decode(in, kNoLimit) : std::nullopt;
    if (!ids) return broken;
    message.known.push_back({std::move(*whose), std::move(*ids)});
  }
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto whose = ranks();
    if (!whose) return broken;
    Request request = read_request(in);
    message.asked.push_back({std::move(*whose), std::move(request), read_extents(in)});
  }
  auto joined = ranks();
  auto left_ranks = joined ? ranks() : std::nullopt;
  if (!left_ranks) return broken;
  message.joined = std::move(*joined);
  message.left = std::move(*left_ranks);
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    LastWord word{in.i32(), in.str(), std::chrono::milliseconds(in.i64())};
    if (word.rank < 0 || word.rank >= world_size || word.ago.count() < 0 ||
        word.ago > std::chrono::hours(1'000'000)) {
      return broken;
    }
    message.last_words.push_back(std::move(word));
  }
  HVD_RETURN_IF_ERROR(in.finish("upward"));
  return message;
}

std::string encode_downward(const Downward& message) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(message.decisions.size()));
  for (const auto& decision : message.decisions) write_decision(out, decision);
  out.boolean(message.pass_at_once).boolean(message.goodbye);
  return frame_of(Message::downward, out);
}

Result<Downward> decode_downward(std::string_view payload, int world_size,
                                 std::size_t most_cached) {
  WireReader in(payload);
  Downward message;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    auto decision = read_decision(in, world_size, most_cached);
    if (!decision) {
      return Status(Code::data_loss, "downward: not something that can be run");
    }
    // What stands there in full may get an id by it, which the next decision may use.
    for (const auto& tensor : decision->tensors) most_cached += tensor.id ? 0 : 1;
    message.decisions.push_back(std::move(*decision));
  }
  message.pass_at_once = in.boolean();
  message.goodbye = in.boolean();
  HVD_RETURN_IF_ERROR(in.finish("downward"));
  return message;
}

std::string encode_failure(Message kind, const Failure& failure) {
  WireWriter out;
  write_status(out, failure.status);
  out.i32(failure.rank).str(failure.host);
  return frame_of(kind, out);
}

Result<Failure> decode_failure(std::string_view payload) {
  WireReader in(payload);
  Failure failure;
  failure.status = read_status(in);
  failure.rank = in.i32();
  failure.host = in.str();
  HVD_RETURN_IF_ERROR(in.finish("failure"));
  if (failure.ok()) return Status(Code::data_loss, "failure: it names no error");
  return failure;
}

}  // namespace hvd::runtime
