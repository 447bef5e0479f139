#include "runtime/messages.h"

#include "base/frame.h"
#include "base/wire.h"

namespace hvd::runtime {
namespace {

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

}  // namespace

std::string encode_requests(const std::vector<Request>& requests) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(requests.size()));
  for (const auto& request : requests) write_request(out, request);
  return frame_of(Message::requests, out);
}

Result<std::vector<Request>> decode_requests(std::string_view payload) {
  WireReader in(payload);
  std::vector<Request> requests;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    requests.push_back(read_request(in));
  }
  HVD_RETURN_IF_ERROR(in.finish("requests"));
  return requests;
}

std::string encode_responses(const std::vector<Response>& responses) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(responses.size()));
  for (const auto& response : responses) {
    out.u8(static_cast<std::uint8_t>(response.kind)).i32(response.process_set);
    out.u32(static_cast<std::uint32_t>(response.tensors.size()));
    for (const auto& tensor : response.tensors) {
      write_request(out, tensor.request);
      write_extents(out, tensor.first_extents);
    }
    write_ranks(out, response.joined);
    out.i32(response.last_joined).i32(response.new_set);
    write_status(out, response.error);
  }
  return frame_of(Message::responses, out);
}

Result<std::vector<Response>> decode_responses(std::string_view payload) {
  WireReader in(payload);
  std::vector<Response> responses;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    Response response;
    response.kind = static_cast<Kind>(in.u8());
    response.process_set = in.i32();
    for (std::uint32_t tensors = in.u32(); tensors > 0 && !in.failed(); --tensors) {
      Request request = read_request(in);
      response.tensors.push_back({std::move(request), read_extents(in)});
    }
    response.joined = read_ranks(in);
    response.last_joined = in.i32();
    response.new_set = in.i32();
    response.error = read_status(in);
    if (response.tensors.empty() || response.kind > Kind::remove_process_set) {
      return Status(Code::data_loss, "responses: not something that can be run");
    }
    responses.push_back(std::move(response));
  }
  HVD_RETURN_IF_ERROR(in.finish("responses"));
  return responses;
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

std::string encode_empty(Message kind) {
  return encode_frame(static_cast<std::uint16_t>(kind), {});
}

}  // namespace hvd::runtime
