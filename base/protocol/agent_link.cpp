#include "base/protocol/agent_link.h"

#include "base/wire.h"

namespace hvd::agent_link {
namespace {

template <typename Message>
std::string frame_of(const WireWriter& fields) {
  return encode_frame(static_cast<std::uint16_t>(Message::kKind), fields.bytes());
}

template <typename Message>
Result<Message> checked(Message message, const WireReader& reader, std::string_view what) {
  HVD_RETURN_IF_ERROR(reader.finish(what));
  return message;
}

Result<Stream> stream_of(std::uint8_t number) {
  if (number != 1 && number != 2) return Status(Code::data_loss, "no such output stream");
  return static_cast<Stream>(number);
}

}  // namespace

std::string Hello::encode() const {
  return frame_of<Hello>(WireWriter().u32(protocol).str(build_id).str(job_id));
}
Result<Hello> Hello::decode(std::string_view payload) {
  WireReader r(payload);
  Hello m;
  m.protocol = r.u32();
  m.build_id = r.str();
  m.job_id = r.str();
  return checked(std::move(m), r, "hello");
}

std::string Launch::encode() const {
  return frame_of<Launch>(WireWriter()
                              .u64(incarnation)
                              .str(worker)
                              .strings(command)
                              .strings(environment)
                              .str(working_directory)
                              .str(welcome));
}
Result<Launch> Launch::decode(std::string_view payload) {
  WireReader r(payload);
  Launch m;
  m.incarnation = r.u64();
  m.worker = r.str();
  m.command = r.strings();
  m.environment = r.strings();
  m.working_directory = r.str();
  m.welcome = r.str();
  return checked(std::move(m), r, "launch");
}

std::string Signal::encode() const {
  return frame_of<Signal>(WireWriter().u64(incarnation).i32(signal_number));
}
Result<Signal> Signal::decode(std::string_view payload) {
  WireReader r(payload);
  Signal m;
  m.incarnation = r.u64();
  m.signal_number = r.i32();
  return checked(m, r, "signal");
}

std::string Stop::encode() const {
  return frame_of<Stop>(WireWriter().u64(incarnation).u32(grace_ms).str(reason));
}
Result<Stop> Stop::decode(std::string_view payload) {
  WireReader r(payload);
  Stop m;
  m.incarnation = r.u64();
  m.grace_ms = r.u32();
  m.reason = r.str();
  return checked(std::move(m), r, "stop");
}

std::string Kill::encode() const { return frame_of<Kill>(WireWriter().u64(incarnation)); }
Result<Kill> Kill::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Kill{r.u64()}, r, "kill");
}

std::string Credit::encode() const {
  return frame_of<Credit>(
      WireWriter().u64(incarnation).u8(static_cast<std::uint8_t>(stream)).u64(bytes));
}
Result<Credit> Credit::decode(std::string_view payload) {
  WireReader r(payload);
  Credit m;
  m.incarnation = r.u64();
  const auto stream = stream_of(r.u8());
  m.bytes = r.u64();
  HVD_RETURN_IF_ERROR(r.finish("credit"));
  HVD_RETURN_IF_ERROR(stream.status());
  m.stream = *stream;
  return m;
}

std::string World::encode() const {
  return frame_of<World>(WireWriter().u64(generation).str(document));
}
Result<World> World::decode(std::string_view payload) {
  WireReader r(payload);
  World m;
  m.generation = r.u64();
  m.document = r.str();
  return checked(std::move(m), r, "world");
}

std::string Heartbeat::encode() const { return frame_of<Heartbeat>(WireWriter().u64(sequence)); }
Result<Heartbeat> Heartbeat::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Heartbeat{r.u64()}, r, "heartbeat");
}

std::string Shutdown::encode() const { return frame_of<Shutdown>(WireWriter()); }
Result<Shutdown> Shutdown::decode(std::string_view payload) {
  return checked(Shutdown{}, WireReader(payload), "shutdown");
}

std::string Ready::encode() const {
  return frame_of<Ready>(WireWriter().u32(protocol).str(build_id).i32(pid).str(host_name));
}
Result<Ready> Ready::decode(std::string_view payload) {
  WireReader r(payload);
  Ready m;
  m.protocol = r.u32();
  m.build_id = r.str();
  m.pid = r.i32();
  m.host_name = r.str();
  return checked(std::move(m), r, "ready");
}

std::string Launched::encode() const {
  return frame_of<Launched>(WireWriter().u64(incarnation).i32(pid));
}
Result<Launched> Launched::decode(std::string_view payload) {
  WireReader r(payload);
  Launched m;
  m.incarnation = r.u64();
  m.pid = r.i32();
  return checked(m, r, "launched");
}

std::string LaunchFailed::encode() const {
  return frame_of<LaunchFailed>(WireWriter().u64(incarnation).i32(error_number).str(message));
}
Result<LaunchFailed> LaunchFailed::decode(std::string_view payload) {
  WireReader r(payload);
  LaunchFailed m;
  m.incarnation = r.u64();
  m.error_number = r.i32();
  m.message = r.str();
  return checked(std::move(m), r, "launch failed");
}

std::string Output::encode() const {
  return frame_of<Output>(
      WireWriter().u64(incarnation).u8(static_cast<std::uint8_t>(stream)).str(bytes));
}
Result<Output> Output::decode(std::string_view payload) {
  WireReader r(payload);
  Output m;
  m.incarnation = r.u64();
  const auto stream = stream_of(r.u8());
  m.bytes = r.str();
  HVD_RETURN_IF_ERROR(r.finish("output"));
  HVD_RETURN_IF_ERROR(stream.status());
  m.stream = *stream;
  return m;
}

std::string OutputClosed::encode() const {
  return frame_of<OutputClosed>(
      WireWriter().u64(incarnation).u8(static_cast<std::uint8_t>(stream)));
}
Result<OutputClosed> OutputClosed::decode(std::string_view payload) {
  WireReader r(payload);
  OutputClosed m;
  m.incarnation = r.u64();
  const auto stream = stream_of(r.u8());
  HVD_RETURN_IF_ERROR(r.finish("output closed"));
  HVD_RETURN_IF_ERROR(stream.status());
  m.stream = *stream;
  return m;
}

std::string Exited::encode() const {
  return frame_of<Exited>(WireWriter()
                              .u64(incarnation)
                              .i32(pid)
                              .i32(exit_code)
                              .i32(signal_number)
                              .boolean(core_dumped));
}
Result<Exited> Exited::decode(std::string_view payload) {
  WireReader r(payload);
  Exited m;
  m.incarnation = r.u64();
  m.pid = r.i32();
  m.exit_code = r.i32();
  m.signal_number = r.i32();
  m.core_dumped = r.boolean();
  return checked(m, r, "exited");
}

std::string WorkerInitialised::encode() const {
  return frame_of<WorkerInitialised>(WireWriter().u64(incarnation));
}
Result<WorkerInitialised> WorkerInitialised::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(WorkerInitialised{r.u64()}, r, "worker initialised");
}

std::string WorkerDone::encode() const {
  return frame_of<WorkerDone>(WireWriter().u64(incarnation));
}
Result<WorkerDone> WorkerDone::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(WorkerDone{r.u64()}, r, "worker done");
}

std::string HeartbeatAck::encode() const {
  return frame_of<HeartbeatAck>(WireWriter().u64(sequence));
}
Result<HeartbeatAck> HeartbeatAck::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(HeartbeatAck{r.u64()}, r, "heartbeat answer");
}

std::string Problem::encode() const { return frame_of<Problem>(WireWriter().str(message)); }
Result<Problem> Problem::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Problem{r.str()}, r, "problem");
}

std::string Bye::encode() const { return frame_of<Bye>(WireWriter()); }
Result<Bye> Bye::decode(std::string_view payload) {
  return checked(Bye{}, WireReader(payload), "bye");
}

}  // namespace hvd::agent_link
