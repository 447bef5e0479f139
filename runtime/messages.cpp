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

}  // namespace

std::string encode_requests(const std::vector<Request>& requests) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(requests.size()));
  for (const auto& request : requests) {
    out.str(request.name)
        .u8(static_cast<std::uint8_t>(request.kind))
        .u8(static_cast<std::uint8_t>(request.type))
        .u8(static_cast<std::uint8_t>(request.op))
        .i32(request.root)
        .f64(request.prescale)
        .f64(request.postscale)
        .u32(static_cast<std::uint32_t>(request.shape.size()));
    for (const auto extent : request.shape) out.i64(extent);
  }
  return frame_of(Message::requests, out);
}

Result<std::vector<Request>> decode_requests(std::string_view payload) {
  WireReader in(payload);
  std::vector<Request> requests;
  for (std::uint32_t left = in.u32(); left > 0 && !in.failed(); --left) {
    Request request;
    request.name = in.str();
    request.kind = static_cast<Kind>(in.u8());
    request.type = static_cast<DataType>(in.u8());
    request.op = static_cast<ReduceOp>(in.u8());
    request.root = in.i32();
    request.prescale = in.f64();
    request.postscale = in.f64();
    for (std::uint32_t dimensions = in.u32(); dimensions > 0 && !in.failed(); --dimensions) {
      request.shape.push_back(in.i64());
    }
    requests.push_back(std::move(request));
  }
  HVD_RETURN_IF_ERROR(in.finish("requests"));
  return requests;
}

std::string encode_responses(const std::vector<Response>& responses) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(responses.size()));
  for (const auto& response : responses) {
    out.u8(static_cast<std::uint8_t>(response.kind)).strings(response.names);
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
    response.names = in.strings();
    response.error = read_status(in);
    if (response.names.empty() || response.kind > Kind::barrier) {
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
