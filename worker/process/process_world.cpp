#include "worker/process/process_world.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>

#include <hvd/error.h>

#include "base/log.h"
#include "base/machine/proc.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "runtime/core/threads.h"
#include "worker/process/dump_signal.h"
#include "worker/process/other_launcher.h"
#include "worker/process/rendezvous_exchange.h"
#include "worker/process/settings.h"

namespace hvd::worker {
namespace {

// From the end of a process to the stop that hvdrun orders because of it, usually milliseconds.
constexpr std::chrono::milliseconds kPatienceWithHvdrun{500};
// With those who have not called init(): hvdrun knows what they do, and says it better.
constexpr std::chrono::seconds kPatienceBeyondHvdruns{5};
// Until the others are told who does not come to a new world.
constexpr std::chrono::seconds kFirstReport{10};

class NoExchange final : public runtime::Exchange {
 public:
  Result<std::vector<std::string>> exchange(std::string_view /*blob*/,
                                            TimePoint /*deadline*/) override {
    return Status(Code::internal, "a world of one has nobody to exchange addresses with");
  }
};

// A callback that starts work while another thread leaves the world may be the last to hold it.
// There, on a thread of the world, nobody can wait for its threads.
void forget_world(runtime::World* world) {
  if (runtime::is_runtime_thread) {
    std::thread([world] { delete world; }).detach();
  } else {
    delete world;
  }
}

// A job that goes on without somebody does not overwrite how it came to that: "t.json", then
// "t.generation-2.json".
std::string timeline_of_generation(const std::string& path, std::uint64_t generation) {
  if (path.empty() || generation <= 1) return path;
  const std::filesystem::path whole(path);
  auto name = whole.stem();
  name += cat(".generation-", generation);
  name += whole.extension();
  return (whole.parent_path() / name).string();
}

bool is_homogeneous(const WorldDocument& document) {
  std::set<int> sizes;
  for (const auto& member : document.members) sizes.insert(member.local_size);
  return sizes.size() <= 1;
}

}  // namespace

ProcessWorld& ProcessWorld::instance() {
  static auto& only = *new ProcessWorld();
  return only;
}

std::shared_ptr<runtime::World> ProcessWorld::world() const {
  const std::lock_guard lock(mutex_);
  return owner_ == ::getpid() ? world_ : nullptr;
}

std::shared_ptr<runtime::World> ProcessWorld::world_for(std::string_view call) {
  if (auto found = world()) return found;
  std::unique_lock lock(mutex_);
  if (joining_ && owner_ == ::getpid()) {
    lock.unlock();
    if (const Status entered = enter_first(); !entered.ok()) {
      throw InitError(cat("hvd::", call, "(): ", entered.message()));
    }
    if (auto found = world()) return found;
    lock.lock();
  }
  if (!between_.ok()) {
    const auto failure = between_;
    lock.unlock();
    std::rethrow_exception(exception_of(failure, runtime::Kind::allreduce));
  }
  throw NotInitializedError(cat("hvd::", call, "() needs hvd::init() before it",
                                last_failure_.empty() ? "" : "; the world before was left because ",
                                last_failure_));
}

Place ProcessWorld::place_for(std::string_view call) {
  {
    const std::lock_guard lock(mutex_);
    if (world_ || !between_.ok()) return place_;
  }
  world_for(call);
  const std::lock_guard lock(mutex_);
  return place_;
}

bool ProcessWorld::is_initialized() const {
  const std::lock_guard lock(mutex_);
  return owner_ == ::getpid() && (world_ != nullptr || joining_ || !between_.ok());
}

void ProcessWorld::restart_names() {
  const std::lock_guard lock(mutex_);
  unnamed_.clear();
}

bool ProcessWorld::has_dynamic_sets() const {
  const std::lock_guard lock(mutex_);
  return dynamic_sets_;
}

std::string ProcessWorld::next_name(std::string_view call) {
  const std::lock_guard lock(mutex_);
  auto counter = unnamed_.find(call);
  if (counter == unnamed_.end()) counter = unnamed_.emplace(call, 0).first;
  return cat(call, ".noname.", counter->second++);
}

Status ProcessWorld::init(const InitOptions& options) {
  const std::lock_guard lock(lifecycle_mutex_);
  if (is_initialized()) {
    if (options == options_ || options == InitOptions()) return {};
    throw InvalidArgumentError(
        "hvd::init(): the world was made with other options; hvd::shutdown() comes before a new "
        "one");
  }
  if (followed() != nullptr) {
    return {Code::failed_precondition,
            "hvd_follow() was called: this process has collectives of its own"};
  }
  if (!at_exit_registered_) {
    // For programs that return from main() without shutdown(). Not run by _exit() and abort(). The
    // cryptography registers its own end when it is first used: after us it must be taken down, so
    // before us it must come up.
    const Mac up(Token::random());
    ::on_exit([](int exit_code, void*) { ProcessWorld::instance().end_of_program(exit_code); },
              nullptr);
    at_exit_registered_ = true;
  }
  {
    const std::lock_guard inner(mutex_);
    leaving_ = false;
    if (membership_ != nullptr) membership_->resume();
  }
  const auto descriptor = process_environment()(worker_link::kDescriptorVariable);
  options_ = options;
  return agent_ != nullptr || descriptor ? init_as_worker(descriptor.value_or("")) : init_alone();
}

Status ProcessWorld::init_alone() {
  HVD_RETURN_IF_ERROR(check_that_it_may_be_alone(
      process_environment(), split(read_proc_file("/proc/self/cmdline"), '\0')));
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), "rank 0"));
  auto settings = settings_from_environment(process_environment());
  HVD_RETURN_IF_ERROR(settings.status());
  runtime::WorldSpec spec(0, {{"localhost#0", "localhost", "127.0.0.1"}}, 0, Token::random());
  auto core = core_from_environment(process_environment(), 0, 1);
  HVD_RETURN_IF_ERROR(core.status());
  settings->config.core = *core;
  settings->config.dump_requests = listen_for_dump_signal();
  {
    const std::lock_guard lock(mutex_);
    place_ = {};
    high_water_ = std::make_shared<OwnHighWater>();
    ++formed_;
  }
  spec.process_sets = options_.process_sets;
  NoExchange exchange;
  return join(std::move(spec), std::move(*settings), exchange);
}

Result<WorldDocument> ProcessWorld::read_document(rendezvous::Client& client, TimePoint deadline) {
  std::string text = agent_->world();
  if (text.empty()) text = agent_->first_world();
  if (text.empty()) {
    auto found = client.wait(kWorldScope, kCurrentWorldKey, deadline);
    HVD_RETURN_IF_ERROR(found.status().with_context("wait for the world to be published"));
    text = std::move(found->value);
  }
  auto document = WorldDocument::from_json(text);
  HVD_RETURN_IF_ERROR(document.status().with_context("read the world"));
  return document;
}

Status ProcessWorld::open_agent(const std::string& descriptor) {
  if (agent_ == nullptr) {
    auto channel = AgentChannel::open(descriptor);
    HVD_RETURN_IF_ERROR(channel.status());
    const std::lock_guard lock(mutex_);
    agent_ = *channel;
    agents_worker_ = ::getpid();
    agent_->answer_by([this] { return activity(); });
  }
  if (agents_worker_ != ::getpid()) {
    return {Code::failed_precondition,
            "this process was forked from the worker after its hvd::init(); of the processes that "
            "one slot of hvdrun starts, only one can be the worker"};
  }
  return agent_->send_initialised();
}

AgentChannel::Activity ProcessWorld::activity() const {
  if (const auto current = world()) {
    auto doing = current->activity();
    if (!current->config().flight_recorder.empty()) current->dump("asked for by SIGUSR1");
    return {std::move(doing.in_flight), std::move(doing.last)};
  }
  const std::lock_guard lock(mutex_);
  if (joining_) return {"waits for a world that it can join", "nothing"};
  if (!between_.ok()) return {"waits for the next world", between_.status.message()};
  return {"is in no world: hvd::init() has not returned, or shutdown() was called", "nothing"};
}

Status ProcessWorld::init_as_worker(const std::string& descriptor) {
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), "hvd"));
  auto settings = settings_from_environment(process_environment());
  HVD_RETURN_IF_ERROR(settings.status());
  settings_ = std::move(*settings);
  HVD_RETURN_IF_ERROR(open_agent(descriptor));
  const auto& welcome = agent_->welcome();
  if (welcome.elastic) return init_elastic();
  rendezvous::ClientOptions client_options;
  client_options.host = welcome.rendezvous_host;
  client_options.port = welcome.rendezvous_port;
  auto client = std::make_shared<rendezvous::Client>(client_options, welcome.token);
  auto document = read_document(*client, Clock::now() + settings_.config.connect_timeout);
  HVD_RETURN_IF_ERROR(document.status());
  if (document->generation != generation_) round_ = 0;
  generation_ = document->generation;
  ++round_;
  {
    const std::lock_guard lock(mutex_);
    high_water_ = std::make_shared<RendezvousHighWater>(client);
    client_ = client;
    formed_ = generation_;
  }
  return form(*document, *client, round_, nullptr);
}

Status ProcessWorld::form(const WorldDocument& document, rendezvous::Client& client,
                          std::uint64_t round, std::shared_ptr<runtime::Interrupt> interrupt) {
  const auto& welcome = agent_->welcome();
  const WorldMember* self = nullptr;
  std::vector<runtime::Member> members;
  for (const auto& member : document.members) {
    if (member.incarnation == welcome.incarnation) self = &member;
    members.push_back({member.worker(), member.host, member.address});
  }
  if (self == nullptr) {
    return {Code::failed_precondition,
            cat("this worker, ", welcome.worker, " of incarnation ", welcome.incarnation,
                ", is no member of generation ", document.generation)};
  }
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), cat("rank ", self->rank)));
  runtime::WorldSpec spec(self->rank, std::move(members), document.generation, welcome.token);
  spec.interrupt = std::move(interrupt);
  if (welcome.elastic) {
    spec.on_own_stall = [worker = welcome.worker](const std::string& why) {
      AgentChannel::end_process(cat(worker, " ", why, ", and is to be replaced"));
    };
  }
  spec.on_dump_signal = [agent = agent_] { (void)agent->send_activity_wanted(); };
  auto settings = settings_;
  auto core = core_from_environment(process_environment(), self->local_rank, self->local_size);
  HVD_RETURN_IF_ERROR(core.status());
  settings.config.core = *core;
  settings.config.dump_requests = listen_for_dump_signal();
  settings.config.timeline = timeline_of_generation(settings.config.timeline, document.generation);
  {
    const std::lock_guard lock(mutex_);
    place_ = {self->rank,       spec.size(),      self->local_rank,        self->local_size,
              self->cross_rank, self->cross_size, is_homogeneous(document)};
  }
  // hvdrun watches who has not come yet, and replaces those that do not come, or ends the job. In a
  // static job this rank says it itself if hvdrun has not by then.
  if (membership_ != nullptr) {
    settings.config.rendezvous_timeout = {};
  } else {
    settings.config.rendezvous_timeout += kPatienceBeyondHvdruns;
  }
  const auto scope = cat("world.", document.generation, ".", round);
  spec.process_sets = options_.process_sets;
  if (membership_ != nullptr) {
    HVD_RETURN_IF_ERROR(restore_sets(document, client, scope, spec));
  }
  std::vector<std::string> names;
  for (const auto& member : document.members) {
    names.push_back(cat("rank ", member.rank, " (", member.worker(), ")"));
  }
  // Of the first generation hvdrun says who has not come, and what they are doing instead.
  const auto first_report =
      document.generation == kFirstGeneration ? std::chrono::seconds(0) : kFirstReport;
  RendezvousExchange exchange(client, scope, spec.rank, std::move(names), first_report);
  Status joined = join(std::move(spec), std::move(settings), exchange);
  if (membership_ != nullptr && exchange.announced()) membership_->announced();
  return joined;
}

Status ProcessWorld::join(runtime::WorldSpec spec, Settings settings, runtime::Exchange& exchange) {
  spec.config = std::move(settings.config);
  spec.dynamic_process_sets = options_.dynamic_process_sets || settings.dynamic_process_sets;
  for (auto& ranks : spec.process_sets) std::sort(ranks.begin(), ranks.end());
  {
    const std::lock_guard lock(mutex_);
    patience_until_ = kNever;
  }
  auto world = runtime::World::create(spec, exchange);
  if (!world.ok()) {
    before_failure_is_thrown();
    return world.status();
  }
  const std::lock_guard lock(mutex_);
  world_ = {world->release(), &forget_world};
  shutdown_timeout_ = spec.config.shutdown_timeout;
  owner_ = ::getpid();
  dynamic_sets_ = spec.dynamic_process_sets;
  last_failure_.clear();
  between_ = {};
  joining_ = false;
  finished_ = false;
  deserted_ = nullptr;
  unnamed_.clear();
  return {};
}

void ProcessWorld::before_failure_is_thrown() {
  if (membership() != nullptr) {
    const auto failed = world();
    if (failed && !runtime::is_runtime_thread)
      failed->wait_idle(Clock::now() + kPatienceWithMemory);
    return;
  }
  AgentChannel* agent = nullptr;
  TimePoint until = kNever;
  {
    const std::lock_guard lock(mutex_);
    if (agent_ == nullptr || agents_worker_ != ::getpid()) return;
    // Once a world, however many calls fail with it.
    if (patience_until_ == kNever) patience_until_ = Clock::now() + kPatienceWithHvdrun;
    agent = agent_;
    until = patience_until_;
  }
  if (!agent->wait_for_stop(until)) return;
  // SIGTERM comes next. A program with no handler for it shall end by the signal, not by the
  // exception that we throw.
  std::this_thread::sleep_until(std::min(until, Clock::now() + kPatienceWithTheSignal));
}

// A program that ends with an error leaves as if it had crashed: were it to call shutdown(), the
// others would hear that it is done, fail, and perhaps end before it.
void ProcessWorld::end_of_program(int exit_code) {
  // A callback has ended the program: its thread cannot wait for the world.
  if (runtime::is_runtime_thread) return;
  program_ends_ = true;
  if (exit_code == 0) {
    shutdown();
  } else if (world()) {
    std::shared_ptr<runtime::World> leaving;  // its end tells the others
    {
      const std::lock_guard lock(mutex_);
      leaving.swap(world_);
    }
    if (leaving) leaving->abandon();
  }
  // A thread that waits for a world holds this lock, and nothing of ours is being taken down.
  const std::unique_lock lock(lifecycle_mutex_, std::try_to_lock);
  if (lock && undertaker_.joinable()) undertaker_.join();
}

void ProcessWorld::shutdown() {
  // A forked child that ends must not wait for threads that it does not have, nor for the lock.
  if (!is_initialized()) return;
  if (runtime::is_runtime_thread) {
    throw InvalidArgumentError(
        "hvd::shutdown(): it waits for the threads of hvd, and this is one: a callback cannot call "
        "it");
  }
  begin_to_leave();
  const std::lock_guard lock(lifecycle_mutex_);
  auto leaving = world();
  runtime::Failure outcome;
  if (leaving) outcome = leave(*leaving);
  tell_of_the_end(leaving.get(), outcome);
  const std::lock_guard inner(mutex_);
  last_failure_ = leaving ? leaving->failure().status.message() : between_.status.message();
  world_.reset();
  between_ = {};
  joining_ = false;
  if (outcome.status.code() == Code::deadline_exceeded) {
    // What is in flight, behind an event that never comes say, holds the threads of the world: they
    // are waited for elsewhere.
    std::thread([left = std::move(leaving)] {}).detach();
  }
}

// Another thread may wait for the next world, which this process will not be in.
void ProcessWorld::begin_to_leave() {
  const std::lock_guard lock(mutex_);
  leaving_ = true;
  if (membership_ != nullptr && !world_) membership_->abandon();
}

bool ProcessWorld::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return leaving_;
}

// The others may have much to do before they come to shutdown(), too; if they die, the world fails.
runtime::Failure ProcessWorld::leave(runtime::World& world) {
  const TimePoint begun = Clock::now();
  const TimePoint limit = begun + std::max(settings_.config.rendezvous_timeout, shutdown_timeout_);
  TimePoint until = begun + shutdown_timeout_;
  for (;;) {
    auto outcome = world.shutdown(until);
    // Of a world that has failed the program has heard already.
    if (outcome.ok() || outcome.world_failed) return outcome;
    const auto now = Clock::now();
    const bool in_flight = !world.wait_idle(now);
    const bool is_late = outcome.status.code() == Code::deadline_exceeded;
    HVD_LOG(warning, "shutdown: " << outcome.status.message());
    if (!is_late || in_flight || now >= limit) return outcome;
    until = std::min(limit, now + (now - begun));
  }
}

// What the end of this process means to the job: the work is done if all ranks have agreed about
// that, by returning from elastic::run or by calling shutdown(). Else, in an elastic job, it is
// only this worker that leaves.
void ProcessWorld::tell_of_the_end(const runtime::World* left, const runtime::Failure& outcome) {
  if (agent_ == nullptr) return;
  const bool stood = left != nullptr && left->failure().ok();
  const bool is_elastic = membership_ != nullptr;
  Status told;
  if (finished_ || (stood && (outcome.ok() || !is_elastic))) {
    told = agent_->send_done();
  } else if (is_elastic && !membership_->is_out()) {
    told = agent_->send_left("");
  }
  if (!told.ok()) HVD_LOG(warning, told.to_string());
}

}  // namespace hvd::worker
