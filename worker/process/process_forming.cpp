// The part of ProcessWorld that forms a world: alone, or from a document of the rendezvous.
#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/machine/machine.h"
#include "base/other_launcher.h"
#include "base/protocol/credentials.h"
#include "base/text.h"
#include "base/versions.h"
#include "worker/launch/launched_world.h"
#include "worker/launch/launcher_store.h"
#include "worker/launch/rendezvous_exchange.h"
#include "worker/process/attempt_watch.h"
#include "worker/process/dump_signal.h"
#include "worker/process/errors.h"
#include "worker/process/lost_launch.h"
#include "worker/process/process_world.h"

namespace hvd::worker {
namespace {

// How much longer than hvdrun a rank waits for ranks that have not called init(): hvdrun knows what
// they do instead, and its message says it.
constexpr std::chrono::seconds kRendezvousMargin{5};
// Until the other ranks are told which ones have not come to a new world. In the first generation
// hvdrun reports it, and what they do instead.
constexpr std::chrono::seconds kFirstReport{10};
constexpr std::chrono::seconds kNoReport{0};

class NoExchange final : public runtime::Exchange {
 public:
  Result<std::vector<std::string>> exchange(std::string_view /*blob*/,
                                            TimePoint /*deadline*/) override {
    return Status(Code::internal, "a world of one process has no other to exchange addresses with");
  }
};

// A job that goes on after the loss of a worker keeps the timeline of what led to it: "t.json",
// then "t.generation-2.json".
std::string timeline_of_generation(const std::string& path, std::uint64_t generation) {
  if (path.empty() || generation <= 1) return path;
  const std::filesystem::path whole(path);
  auto name = whole.stem();
  name += cat(".generation-", generation);
  name += whole.extension();
  return (whole.parent_path() / name).string();
}

bool is_homogeneous(const std::vector<WorldMember>& all) {
  std::set<int> sizes;
  for (const auto& member : all) sizes.insert(member.local_size);
  return sizes.size() <= 1;
}

std::vector<runtime::Member> runtime_members(const std::vector<WorldMember>& all) {
  std::vector<runtime::Member> members;
  members.reserve(all.size());
  for (const auto& member : all) {
    members.push_back({member.worker(), member.host, member.address});
  }
  return members;
}

std::vector<std::string> ranked_names(const std::vector<WorldMember>& members) {
  std::vector<std::string> names;
  names.reserve(members.size());
  for (const auto& member : members) names.push_back(member.ranked());
  return names;
}

WorkReading reading_of(runtime::WorkMeter& meter, EntryTimer& entry_timer,
                       const SaveMeter& save_meter) {
  const auto now = runtime::trace::nanoseconds_now();
  const auto counted = meter.read(now);

  WorkReading reading;
  reading.time_ns = static_cast<std::uint64_t>(now);
  reading.steps = counted.steps;
  reading.waited_ns = static_cast<std::uint64_t>(counted.waited);
  for (std::size_t kind = 0; kind < counted.works.size(); ++kind) {
    const auto& work = counted.works[kind];
    if (work.operations == 0) continue;
    reading.collectives.push_back({static_cast<Collective>(kind), work.operations, work.bytes});
  }
  if (counted.first_step != 0) {
    entry_timer.step_ended(TimePoint(std::chrono::nanoseconds(counted.first_step)));
  }
  reading.entry = entry_timer.read();
  reading.saving = save_meter.read();
  return reading;
}

// A library of MPI is a client of PMI, as this process is without PMIx. The launcher of MPICH
// answers both, one after the other; Slurm answers the first one only, and the second would wait
// for ever.
Status check_pmi_for_mpi(const EnvironmentLookup& environment) {
  const auto settings = settings_from_environment(environment);
  HVD_RETURN_IF_ERROR(settings.status());
  const bool is_slurms = environment("SLURM_STEP_ID") && !environment("MPI_LOCALNRANKS");
  if (!is_slurms || settings->config.cpu_operations != runtime::CpuOperations::mpi) return {};
  return {
      Code::failed_precondition,
      "HVD_CPU_OPERATIONS=mpi: through PMI a process can connect to Slurm once, so that hvd and "
      "MPI cannot both. Start the program by srun --mpi=pmix and use Open MPI, or by MPICH's "
      "mpiexec"};
}

}  // namespace

void FormedGeneration::begin(std::uint64_t generation,
                             std::shared_ptr<rendezvous::Client> of_generation,
                             MarkKeeper* keeper) {
  number = generation;
  client = std::move(of_generation);
  if (client) {
    high_water = std::make_shared<RendezvousHighWater>(client, *keeper);
  } else {
    high_water = std::make_shared<OwnHighWater>();
  }
}

Status ProcessWorld::init_without_hvdrun() {
  const auto environment = process_environment();
  const auto launch = find_other_launch(environment);
  HVD_RETURN_IF_ERROR(launch.status());
  if (!*launch) {
    HVD_RETURN_IF_ERROR(check_environment_was_kept(environment));
    return init_alone();
  }

  const auto command = own_command_line();
  if (has_rendezvous(environment)) {
    auto store = open_rendezvous_store(environment, **launch);
    if (!store.ok()) return refusal(**launch, command, store.status().message());
    return init_with_others(**store);
  }
  if (!(*launch)->speaks_pmi) return refusal(**launch, command, "");
  const bool by_pmix = has_pmix(environment);
  if (!by_pmix && !has_pmi(environment)) return refusal(**launch, command, "");

  if (!by_pmix) HVD_RETURN_IF_ERROR(check_pmi_for_mpi(environment));
  if (launcher_ == nullptr) {
    auto store = by_pmix ? open_pmix_store(environment) : open_pmi_store(environment);
    const bool may_be_alone = !(*launch)->size && (*launch)->rank == 0;
    if (!store.ok() && may_be_alone) return init_alone();
    if (!store.ok()) return refusal(**launch, command, store.status().message());
    launcher_ = std::move(*store);
  }
  return launcher_->size() == 1 ? init_alone() : init_with_others(*launcher_);
}

// Another launcher says nothing while the world lasts: it ends all processes when one of
// them has failed.
Status ProcessWorld::init_with_others(LauncherStore& store) {
  const auto environment = process_environment();
  HVD_RETURN_IF_ERROR(apply_log_settings(environment, cat("rank ", store.rank())));
  auto settings = settings_from_environment(environment);
  HVD_RETURN_IF_ERROR(settings.status());

  const auto wanted = environment("HVD_NETWORK_INTERFACE").value_or("");
  const Introduction own{std::string(build_id()), machine_name(),
                         reachable_interfaces(machine_interfaces(), wanted), wanted,
                         to_hex(random_bytes(Token::kSize))};
  const TimePoint deadline = settings->config.rendezvous_timeout.count() == 0
                                 ? kNever
                                 : Clock::now() + settings->config.rendezvous_timeout;
  auto met = meet(store, own, deadline);
  HVD_RETURN_IF_ERROR(met.status());
  const auto& self = met->members[static_cast<std::size_t>(store.rank())];

  auto core = core_from_environment(environment, self.local_rank, self.local_size);
  HVD_RETURN_IF_ERROR(core.status());
  settings->config.core = *core;
  settings->config.dump_requests = listen_for_dump_signal();

  {
    const std::lock_guard lock(mutex_);
    generation_.begin(generation_.number + 1);
    current_.set_place({self.rank, store.size(), self.local_rank, self.local_size, self.cross_rank,
                        self.cross_size, is_homogeneous(met->members)});
  }
  runtime::WorldSpec spec(store.rank(), runtime_members(met->members), generation_.number,
                          met->token);
  spec.process_sets = options_.process_sets;
  LauncherExchange exchange(store);
  return join(std::move(spec), std::move(*settings), exchange);
}

Status ProcessWorld::init_alone() {
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
    current_.set_place({});
    generation_.begin(generation_.number + 1);
  }
  spec.process_sets = options_.process_sets;
  NoExchange exchange;
  return join(std::move(spec), std::move(*settings), exchange);
}

Status ProcessWorld::open_agent(const std::string& descriptor) {
  if (agent_ == nullptr) {
    const auto life_lock = process_environment()(worker_link::kLifeLockVariable);
    auto channel = AgentChannel::open(descriptor, life_lock.value_or(""));
    HVD_RETURN_IF_ERROR(channel.status());
    const auto memory = process_environment()(worker_link::kStateMemoryVariable);
    const auto memory_number = parse_number<int>(memory.value_or(""));
    const std::lock_guard lock(mutex_);
    agent_ = *channel;
    // Programs that this one starts do not get it.
    if (memory_number && ::fcntl(*memory_number, F_SETFD, FD_CLOEXEC) == 0) {
      state_memory_ = UniqueFd(*memory_number);
    }
    agent_->answer_by([this](bool wants_dump) { return activity(wants_dump); });
    agent_->report_work_by([this] { return reading_of(*meter_, entry_timer_, save_meter_); });
  }
  if (!agent_->is_of_this_process()) {
    return {Code::failed_precondition,
            "this process was forked from the worker after its hvd::init(); of the processes that "
            "one slot of hvdrun starts, only one can be the worker"};
  }
  return agent_->send_initialised();
}

Status ProcessWorld::init_as_worker(const std::string& descriptor) {
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), "hvd"));
  auto settings = settings_from_environment(process_environment());
  HVD_RETURN_IF_ERROR(settings.status());
  if (settings->config.cpu_operations == runtime::CpuOperations::mpi) {
    return {Code::failed_precondition, cat("HVD_CPU_OPERATIONS=mpi: ", kNoMpiUnderHvdrun)};
  }
  settings_ = std::move(*settings);
  HVD_RETURN_IF_ERROR(open_agent(descriptor));
  const auto& welcome = agent_->welcome();
  if (welcome.elastic) {
    if (settings_.config.cpu_operations == runtime::CpuOperations::ccl) {
      return {Code::failed_precondition, cat("HVD_CPU_OPERATIONS=ccl: ", kNoCclInElasticJobs)};
    }
    return init_elastic();
  }

  auto client =
      std::make_shared<rendezvous::Client>(agent_->rendezvous_options(), welcome.credential);
  const auto& document = agent_->first_world();
  if (!document) return {Code::data_loss, "the agent's welcome came without the world"};

  const auto round = rounds_.next(document->generation);
  {
    const std::lock_guard lock(mutex_);
    generation_.begin(document->generation, client, agent_);
  }
  return form(*document, agent_->first_key(), *client, round, nullptr);
}

Status ProcessWorld::form(const WorldDocument& document, const std::string& sealed_key,
                          rendezvous::Client& client, std::uint64_t round,
                          std::shared_ptr<runtime::Interrupt> interrupt) {
  const auto& welcome = agent_->welcome();
  const WorldMember* const self = document.find(welcome.incarnation);
  if (self == nullptr) {
    return {Code::failed_precondition,
            cat("this worker, ", welcome.worker, " of incarnation ", welcome.incarnation,
                ", is not a member of generation ", document.generation)};
  }
  HVD_RETURN_IF_ERROR(apply_log_settings(process_environment(), cat("rank ", self->rank)));
  entry_timer_.heard_of_world(Clock::now());

  auto settings = settings_for(*self, document.generation);
  HVD_RETURN_IF_ERROR(settings.status());
  const auto key = open_key(document.generation, *self, sealed_key, welcome.credential);
  HVD_RETURN_IF_ERROR(key.status());
  auto spec = spec_of(document, self->rank, *key);
  spec.interrupt = std::move(interrupt);
  {
    const std::lock_guard lock(mutex_);
    current_.set_place({self->rank, spec.size(), self->local_rank, self->local_size,
                        self->cross_rank, self->cross_size, is_homogeneous(document.members)});
  }

  const auto scope = scope_of_attempt(document.generation, round);
  if (membership_ != nullptr) {
    HVD_RETURN_IF_ERROR(restore_sets(document, client, scope, spec));
  }
  RendezvousExchange exchange(client, scope, spec.rank, ranked_names(document.members),
                              document.generation == kFirstGeneration ? kNoReport : kFirstReport);
  Status joined = membership_ == nullptr
                      ? join(std::move(spec), std::move(*settings), exchange)
                      : join_attempt(std::move(spec), std::move(*settings), exchange, scope);
  if (joined.ok()) {
    meter_->expect_first_step();
    entry_timer_.connected(document.generation, Clock::now());
  }

  // It is of another version than rank 0: no other process of this slot could take part either.
  if (joined.code() == Code::permission_denied) {
    if (const Status told = agent_->send_left(joined.message(), true); !told.ok()) {
      HVD_LOG(warning, told.to_string());
    }
  }
  return joined;
}

Result<Settings> ProcessWorld::settings_for(const WorldMember& self, std::uint64_t generation) {
  auto settings = settings_;
  auto& config = settings.config;
  auto core = core_from_environment(process_environment(), self.local_rank, self.local_size);
  HVD_RETURN_IF_ERROR(core.status());
  config.core = *core;
  config.bound = agent_->welcome().bound;
  config.dump_requests = listen_for_dump_signal();
  config.timeline = timeline_of_generation(config.timeline, generation);

  // hvdrun watches which ranks have not come yet, and replaces them or ends the job. In a static
  // job this rank reports it if hvdrun has not by then.
  if (membership_ != nullptr) {
    config.rendezvous_timeout = {};
    // In a static job a rank may be stopped for as long as one likes, in a debugger for example.
    config.control_timeout = config.collective_timeout;
  } else {
    config.rendezvous_timeout += kRendezvousMargin;
  }
  return settings;
}

runtime::WorldSpec ProcessWorld::spec_of(const WorldDocument& document, int rank,
                                         const Token& key) {
  const auto& welcome = agent_->welcome();
  runtime::WorldSpec spec(rank, runtime_members(document.members), document.generation, key);
  spec.meter = meter_;
  spec.process_sets = options_.process_sets;
  spec.on_failure = [agent = agent_](const runtime::RankActivity& activity) {
    (void)agent->send_activity(activity);
  };
  spec.on_dump_signal = [agent = agent_] { (void)agent->send_activity_wanted(); };
  if (welcome.elastic) {
    spec.on_unreachable = [agent = agent_](const std::string& host) {
      (void)agent->send_unreachable(host);
    };
    spec.on_own_stall = [agent = agent_, worker = welcome.worker](const std::string& why) {
      // It may be what keeps this rank, and there is nobody who would replace it.
      if (agent->driver_is_gone()) return;
      AgentChannel::end_process(cat(worker, " ", why, ", and is to be replaced"));
    };
  }
  return spec;
}

Status ProcessWorld::join_attempt(runtime::WorldSpec spec, Settings settings,
                                  RendezvousExchange& exchange, const std::string& scope) {
  AttemptWatch watch(exchange, agent_->rendezvous_options(), agent_->welcome().credential, scope,
                     spec.interrupt, [this] { membership_->met(); });
  // An exception would hide that the attempt was announced.
  Status joined = status_of([&] { return join(std::move(spec), std::move(settings), watch); });
  if (exchange.announced()) membership_->announced();
  if (joined.ok()) membership_->met();  // a world of one exchanges nothing
  return joined;
}

// In the first world all ranks name their sets, and each of them gets an error if these differ.
// Workers that join later worlds do not know the sets, and survivors may have been interrupted
// while they added one: so the sets of rank 0 count.
Status ProcessWorld::restore_sets(const WorldDocument& document, rendezvous::Client& client,
                                  const std::string& scope, runtime::WorldSpec& spec) {
  SetTable sets;
  {
    const std::lock_guard lock(mutex_);
    sets = sets_;
  }

  if (sets.empty()) {
    // The ranks that the program has named are those of the world that it was started in.
    const auto& started = agent_->first_world();
    const bool is_member = started && started->find(agent_->welcome().incarnation) != nullptr;
    auto own = SetTable::of(options_.process_sets, options_.lost_member == LostMember::shrink,
                            is_member ? *started : document);
    // The sets of a rank that do not count may be invalid.
    if (!own.ok() && (spec.rank == 0 || document.generation == kFirstGeneration)) {
      return own.status();
    }
    if (own.ok()) sets = std::move(*own);
  }

  if (document.generation != kFirstGeneration) {
    if (spec.rank == 0) {
      HVD_RETURN_IF_ERROR(client.put(scope, kSetsKey, sets.encode()).status());
    } else {
      // Without a deadline: either the answer comes, or a newer world ends the wait.
      auto found = client.wait(scope, kSetsKey, kNever);
      HVD_RETURN_IF_ERROR(found.status().with_context("ask rank 0 which process sets there are"));
      auto read = SetTable::decode(found->value);
      HVD_RETURN_IF_ERROR(read.status());
      sets = std::move(*read);
    }
  }

  sets.enter(document);
  if (document.generation != kFirstGeneration) {
    spec.process_sets.clear();
    spec.restored_sets = sets.ranks();
    spec.next_process_set = sets.next();
  }
  const std::lock_guard lock(mutex_);
  sets_ = std::move(sets);
  return {};
}

Status ProcessWorld::join(runtime::WorldSpec spec, Settings settings, runtime::Exchange& exchange) {
  spec.config = std::move(settings.config);
  spec.dynamic_process_sets = options_.dynamic_process_sets || settings.dynamic_process_sets;
  for (auto& ranks : spec.process_sets) std::sort(ranks.begin(), ranks.end());
  {
    const std::lock_guard lock(mutex_);
    current_.reset_stop_deadline();
    spec.on_set_changed = [this, generation = generation_.number](
                              int id, const std::vector<int>* ranks, bool by_members) {
      note_set(generation, id, ranks, by_members);
    };
    // A worker of an elastic job that cannot enter its first world is replaced, which helps nobody.
    spec.under_way = had_world_ || membership_ != nullptr || spec.generation > kFirstGeneration;
  }

  auto world = runtime::World::create(spec, exchange);
  if (!world.ok()) {
    before_failure_is_thrown();
    return world.status();
  }

  const std::lock_guard lock(mutex_);
  current_.enter({{world->release(), [this](runtime::World* left) { teardown_.destroy(left); }},
                  spec.config.shutdown_timeout,
                  spec.dynamic_process_sets});
  departure_.finished = false;
  had_world_ = true;
  return {};
}

}  // namespace hvd::worker
