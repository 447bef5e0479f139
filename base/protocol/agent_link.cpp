#include "base/protocol/agent_link.h"

#include <set>

#include "base/machine/capacity.h"
#include "base/text.h"
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
  return frame_of<Hello>(WireWriter()
                             .u32(protocol)
                             .str(build_id)
                             .str(job_id)
                             .u32(lease_ms)
                             .u32(orphan_timeout_ms)
                             .u64(open_files)
                             .boolean(elastic)
                             .u32(worker_silence_ms)
                             .boolean(local));
}
Result<Hello> Hello::decode(std::string_view payload) {
  WireReader r(payload);
  Hello m;
  m.protocol = r.u32();
  m.build_id = r.str();
  m.job_id = r.str();
  m.lease_ms = r.u32();
  m.orphan_timeout_ms = r.u32();
  m.open_files = r.u64();
  m.elastic = r.boolean();
  m.worker_silence_ms = r.u32();
  m.local = r.boolean();
  return checked(std::move(m), r, "hello");
}

std::string Program::encode() const {
  return frame_of<Program>(WireWriter()
                               .strings(command)
                               .strings(environment)
                               .str(working_directory)
                               .strings(host_variables));
}
Result<Program> Program::decode(std::string_view payload) {
  WireReader r(payload);
  Program m;
  m.command = r.strings();
  m.environment = r.strings();
  m.working_directory = r.str();
  m.host_variables = r.strings();
  return checked(std::move(m), r, "program");
}

Launch complete(const Program& program, Launch launch) {
  if (launch.command.empty()) launch.command = program.command;
  if (launch.working_directory.empty()) launch.working_directory = program.working_directory;

  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string_view> set_by_launch;
  for (const auto& entry : launch.environment) set_by_launch.insert(name_of(entry));
  std::vector<std::string> environment;
  environment.reserve(program.environment.size() + launch.environment.size());
  for (const auto& entry : program.environment) {
    if (set_by_launch.count(name_of(entry)) == 0) environment.push_back(entry);
  }
  for (auto& entry : launch.environment) environment.push_back(std::move(entry));
  launch.environment = std::move(environment);

  launch.host_variables.insert(launch.host_variables.end(), program.host_variables.begin(),
                               program.host_variables.end());
  return launch;
}

std::string Launch::encode() const {
  return frame_of<Launch>(WireWriter()
                              .u64(incarnation)
                              .str(worker)
                              .strings(command)
                              .strings(environment)
                              .str(working_directory)
                              .str(welcome)
                              .strings(host_variables));
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
  m.host_variables = r.strings();
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
  return frame_of<World>(WireWriter().u64(generation).boolean(effective).str(document));
}
Result<World> World::decode(std::string_view payload) {
  WireReader r(payload);
  World m;
  m.generation = r.u64();
  m.effective = r.boolean();
  m.document = r.str();
  return checked(std::move(m), r, "world");
}

std::string Heartbeat::encode() const {
  return frame_of<Heartbeat>(WireWriter().u64(sequence).u64(acknowledged));
}
Result<Heartbeat> Heartbeat::decode(std::string_view payload) {
  WireReader r(payload);
  Heartbeat m;
  m.sequence = r.u64();
  m.acknowledged = r.u64();
  return checked(m, r, "heartbeat");
}

std::string Pause::encode() const { return frame_of<Pause>(WireWriter().boolean(on)); }
Result<Pause> Pause::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Pause{r.boolean()}, r, "pause");
}

std::string AskActivity::encode() const {
  return frame_of<AskActivity>(WireWriter().u32(id).u32(patience_ms));
}
Result<AskActivity> AskActivity::decode(std::string_view payload) {
  WireReader r(payload);
  AskActivity m;
  m.id = r.u32();
  m.patience_ms = r.u32();
  return checked(m, r, "ask activity");
}

std::string Shutdown::encode() const { return frame_of<Shutdown>(WireWriter()); }
Result<Shutdown> Shutdown::decode(std::string_view payload) {
  return checked(Shutdown{}, WireReader(payload), "shutdown");
}

std::string Check::encode() const {
  return frame_of<Check>(WireWriter().str(working_directory).str(program).str(search_path));
}
Result<Check> Check::decode(std::string_view payload) {
  WireReader r(payload);
  Check m;
  m.working_directory = r.str();
  m.program = r.str();
  m.search_path = r.str();
  return checked(std::move(m), r, "check");
}

std::string Probe::encode() const {
  WireWriter fields;
  fields.u32(id).u32(timeout_ms).u32(static_cast<std::uint32_t>(targets.size()));
  for (const auto& target : targets) {
    fields.str(target.address).u16(target.port).str(target.greeting);
  }
  return frame_of<Probe>(fields);
}
Result<Probe> Probe::decode(std::string_view payload) {
  WireReader r(payload);
  Probe m;
  m.id = r.u32();
  m.timeout_ms = r.u32();
  const std::uint32_t count = r.u32();
  for (std::uint32_t i = 0; i < count && !r.failed(); ++i) {
    ProbeTarget target;
    target.address = r.str();
    target.port = r.u16();
    target.greeting = r.str();
    m.targets.push_back(std::move(target));
  }
  return checked(std::move(m), r, "probe");
}

std::string Ready::encode() const {
  WireWriter fields;
  fields.u32(protocol).str(build_id).i32(pid).str(host_name);
  fields.u32(static_cast<std::uint32_t>(interfaces.size()));
  for (const auto& interface : interfaces) fields.str(interface.name).str(interface.address);
  fields.u16(probe_port).str(probe_greeting).u16(free_port);
  fields.i32(gpus).i32(visible_gpus).i32(cores);
  return frame_of<Ready>(fields);
}
Result<Ready> Ready::decode(std::string_view payload) {
  WireReader r(payload);
  Ready m;
  m.protocol = r.u32();
  m.build_id = r.str();
  m.pid = r.i32();
  m.host_name = r.str();
  const std::uint32_t count = r.u32();
  for (std::uint32_t i = 0; i < count && !r.failed(); ++i) {
    Interface interface;
    interface.name = r.str();
    interface.address = r.str();
    m.interfaces.push_back(std::move(interface));
  }
  m.probe_port = r.u16();
  m.probe_greeting = r.str();
  m.free_port = r.u16();
  m.gpus = r.i32();
  m.visible_gpus = r.i32();
  m.cores = r.i32();
  const bool possible = m.gpus >= 0 && m.gpus <= kMaxSlots && m.visible_gpus >= 0 &&
                        m.visible_gpus <= kMaxSlots && m.cores >= 1 && m.cores <= kMaxSlots;
  if (!r.failed() && !possible) {
    return Status(Code::data_loss, cat("it has ", m.gpus, " GPUs, of which it may use ",
                                       m.visible_gpus, ", and ", m.cores, " cores"));
  }
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
                              .boolean(core_dumped)
                              .boolean(out_of_memory)
                              .u64(memory_limit));
}
Result<Exited> Exited::decode(std::string_view payload) {
  WireReader r(payload);
  Exited m;
  m.incarnation = r.u64();
  m.pid = r.i32();
  m.exit_code = r.i32();
  m.signal_number = r.i32();
  m.core_dumped = r.boolean();
  m.out_of_memory = r.boolean();
  m.memory_limit = r.u64();
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

std::string WorkerReady::encode() const {
  return frame_of<WorkerReady>(WireWriter().u64(incarnation));
}
Result<WorkerReady> WorkerReady::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(WorkerReady{r.u64()}, r, "worker ready");
}

std::string WorkerLeaves::encode() const {
  return frame_of<WorkerLeaves>(WireWriter().u64(incarnation));
}
Result<WorkerLeaves> WorkerLeaves::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(WorkerLeaves{r.u64()}, r, "worker leaves");
}

std::string WorkerLeft::encode() const {
  return frame_of<WorkerLeft>(WireWriter().u64(incarnation).str(reason));
}
Result<WorkerLeft> WorkerLeft::decode(std::string_view payload) {
  WireReader r(payload);
  WorkerLeft m;
  m.incarnation = r.u64();
  m.reason = r.str();
  return checked(std::move(m), r, "worker left");
}

std::string Describe::encode() const { return frame_of<Describe>(WireWriter().u64(incarnation)); }
Result<Describe> Describe::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Describe{r.u64()}, r, "describe");
}

std::string Described::encode() const {
  return frame_of<Described>(WireWriter().u64(incarnation).str(text));
}
Result<Described> Described::decode(std::string_view payload) {
  WireReader r(payload);
  Described m;
  m.incarnation = r.u64();
  m.text = r.str();
  return checked(std::move(m), r, "described");
}

std::string WorldCommitted::encode() const {
  return frame_of<WorldCommitted>(WireWriter().u64(incarnation).u64(generation));
}
Result<WorldCommitted> WorldCommitted::decode(std::string_view payload) {
  WireReader r(payload);
  WorldCommitted m;
  m.incarnation = r.u64();
  m.generation = r.u64();
  return checked(m, r, "world committed");
}

std::string HostLeaves::encode() const { return frame_of<HostLeaves>(WireWriter()); }
Result<HostLeaves> HostLeaves::decode(std::string_view payload) {
  return checked(HostLeaves{}, WireReader(payload), "host leaves");
}

std::string ActivityWanted::encode() const { return frame_of<ActivityWanted>(WireWriter()); }
Result<ActivityWanted> ActivityWanted::decode(std::string_view payload) {
  return checked(ActivityWanted{}, WireReader(payload), "activity wanted");
}

std::string WorkerActivity::encode() const {
  return frame_of<WorkerActivity>(WireWriter()
                                      .u32(id)
                                      .u64(incarnation)
                                      .u8(static_cast<std::uint8_t>(process_state))
                                      .boolean(initialised)
                                      .boolean(answered)
                                      .str(in_flight)
                                      .str(last));
}
Result<WorkerActivity> WorkerActivity::decode(std::string_view payload) {
  WireReader r(payload);
  WorkerActivity m;
  m.id = r.u32();
  m.incarnation = r.u64();
  m.process_state = static_cast<char>(r.u8());
  m.initialised = r.boolean();
  m.answered = r.boolean();
  m.in_flight = r.str();
  m.last = r.str();
  return checked(std::move(m), r, "worker activity");
}

std::string Paused::encode() const { return frame_of<Paused>(WireWriter().boolean(on)); }
Result<Paused> Paused::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(Paused{r.boolean()}, r, "paused");
}

std::string HeartbeatAck::encode() const {
  return frame_of<HeartbeatAck>(WireWriter().u64(sequence));
}
Result<HeartbeatAck> HeartbeatAck::decode(std::string_view payload) {
  WireReader r(payload);
  return checked(HeartbeatAck{r.u64()}, r, "heartbeat answer");
}

std::string Checked::encode() const {
  return frame_of<Checked>(
      WireWriter().u8(static_cast<std::uint8_t>(failed)).i32(error_number).str(message));
}
Result<Checked> Checked::decode(std::string_view payload) {
  WireReader r(payload);
  Checked m;
  const std::uint8_t step = r.u8();
  m.error_number = r.i32();
  m.message = r.str();
  HVD_RETURN_IF_ERROR(r.finish("checked"));
  if (step > static_cast<std::uint8_t>(Step::find_program)) {
    return Status(Code::data_loss, "no such step of a check");
  }
  m.failed = static_cast<Step>(step);
  return m;
}

std::string Probed::encode() const {
  return frame_of<Probed>(WireWriter().u32(id).strings(troubles));
}
Result<Probed> Probed::decode(std::string_view payload) {
  WireReader r(payload);
  Probed m;
  m.id = r.u32();
  m.troubles = r.strings();
  return checked(std::move(m), r, "probed");
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
