#include "base/protocol/worker_link.h"

#include "base/wire.h"

namespace hvd::worker_link {
namespace {

template <typename Message>
std::string frame_of(const WireWriter& fields) {
  return encode_frame(static_cast<std::uint16_t>(Message::kKind), fields.bytes());
}

}  // namespace

std::string World::encode() const {
  return frame_of<World>(WireWriter().u64(generation).boolean(effective).str(document));
}
Result<World> World::decode(std::string_view payload) {
  WireReader r(payload);
  World m;
  m.generation = r.u64();
  m.effective = r.boolean();
  m.document = r.str();
  HVD_RETURN_IF_ERROR(r.finish("world"));
  return m;
}

std::string Stop::encode() const { return frame_of<Stop>(WireWriter().str(reason)); }
Result<Stop> Stop::decode(std::string_view payload) {
  WireReader r(payload);
  Stop m{r.str()};
  HVD_RETURN_IF_ERROR(r.finish("stop"));
  return m;
}

std::string Ping::encode() const { return frame_of<Ping>(WireWriter()); }
Result<Ping> Ping::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("ping"));
  return Ping{};
}

std::string AskActivity::encode() const { return frame_of<AskActivity>(WireWriter().u32(id)); }
Result<AskActivity> AskActivity::decode(std::string_view payload) {
  WireReader r(payload);
  AskActivity m{r.u32()};
  HVD_RETURN_IF_ERROR(r.finish("ask activity"));
  return m;
}

std::string Activity::encode() const {
  return frame_of<Activity>(WireWriter().u32(id).str(in_flight).str(last));
}
Result<Activity> Activity::decode(std::string_view payload) {
  WireReader r(payload);
  Activity m;
  m.id = r.u32();
  m.in_flight = r.str();
  m.last = r.str();
  HVD_RETURN_IF_ERROR(r.finish("activity"));
  return m;
}

std::string ActivityWanted::encode() const { return frame_of<ActivityWanted>(WireWriter()); }
Result<ActivityWanted> ActivityWanted::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("activity wanted"));
  return ActivityWanted{};
}

std::string Left::encode() const {
  return frame_of<Left>(WireWriter().str(std::string_view(reason).substr(0, kMaxReason)));
}
Result<Left> Left::decode(std::string_view payload) {
  WireReader r(payload);
  Left m{r.str()};
  HVD_RETURN_IF_ERROR(r.finish("left"));
  return m;
}

std::string Alive::encode() const { return frame_of<Alive>(WireWriter()); }
Result<Alive> Alive::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("alive"));
  return Alive{};
}

std::string Initialised::encode() const { return frame_of<Initialised>(WireWriter().i32(pid)); }
Result<Initialised> Initialised::decode(std::string_view payload) {
  WireReader r(payload);
  Initialised m{r.i32()};
  HVD_RETURN_IF_ERROR(r.finish("initialised"));
  return m;
}

std::string Done::encode() const { return frame_of<Done>(WireWriter()); }
Result<Done> Done::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("done"));
  return Done{};
}

std::string Ready::encode() const { return frame_of<Ready>(WireWriter()); }
Result<Ready> Ready::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("ready"));
  return Ready{};
}

std::string Leave::encode() const { return frame_of<Leave>(WireWriter()); }
Result<Leave> Leave::decode(std::string_view payload) {
  WireReader r(payload);
  HVD_RETURN_IF_ERROR(r.finish("leave"));
  return Leave{};
}

std::string Committed::encode() const { return frame_of<Committed>(WireWriter().u64(generation)); }
Result<Committed> Committed::decode(std::string_view payload) {
  WireReader r(payload);
  Committed m{r.u64()};
  HVD_RETURN_IF_ERROR(r.finish("committed"));
  return m;
}

}  // namespace hvd::worker_link
