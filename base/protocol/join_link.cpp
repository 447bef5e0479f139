#include "base/protocol/join_link.h"

#include "base/wire.h"

namespace hvd::join_link {
namespace {

template <typename Message>
std::string frame_of(const WireWriter& fields) {
  return encode_frame(static_cast<std::uint16_t>(Message::kKind), fields.bytes());
}

}  // namespace

std::string Join::encode() const {
  return frame_of<Join>(WireWriter().str(build_id).str(host).i32(slots));
}
Result<Join> Join::decode(std::string_view payload) {
  WireReader r(payload);
  Join m;
  m.build_id = r.str();
  m.host = r.str();
  m.slots = r.i32();
  HVD_RETURN_IF_ERROR(r.finish("join"));
  return m;
}

std::string Accepted::encode() const { return frame_of<Accepted>(WireWriter()); }
Result<Accepted> Accepted::decode(std::string_view payload) {
  HVD_RETURN_IF_ERROR(WireReader(payload).finish("accepted"));
  return Accepted{};
}

std::string Refused::encode() const {
  return frame_of<Refused>(WireWriter().str(reason).boolean(final));
}
Result<Refused> Refused::decode(std::string_view payload) {
  WireReader r(payload);
  Refused m;
  m.reason = r.str();
  m.final = r.boolean();
  HVD_RETURN_IF_ERROR(r.finish("refused"));
  return m;
}

}  // namespace hvd::join_link
