#include "runtime/control/world.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "runtime/control/control_loop.h"
#include "runtime/control/introduction.h"
#include "runtime/control/library_choice.h"
#include "runtime/core/affinity.h"
#include "runtime/core/threads.h"
#include "runtime/gpu/gpu_ops.h"
#include "runtime/gpu/module.h"
#include "runtime/ops/gloo_mesh.h"
#include "runtime/ops/gloo_ops.h"
#include "runtime/ops/library_ops.h"
#include "runtime/ops/local_ops.h"
#include "runtime/ops/shm_ops.h"
#include "runtime/shm/local_ranks.h"
#include "runtime/trace/flight_recorder.h"
#include "runtime/transport/tcp_mesh.h"

namespace hvd::runtime {
namespace {

// A group is enqueued as a whole: only then is it safe to wait for all of its tensors.
Status check_groups(std::span<const Entry> entries) {
  std::map<std::pair<int, std::string>, std::vector<const Request*>> groups;
  for (const auto& entry : entries) {
    const Request& request = entry.request;
    if (!request.group.empty()) groups[{request.process_set, request.group}].push_back(&request);
  }

  for (const auto& [key, requests] : groups) {
    for (const auto* request : requests) {
      if (request->group_size == static_cast<int>(requests.size())) continue;
      return {Code::invalid_argument,
              cat(kind_name(request->kind), " \"", request->name, "\": group \"", key.second,
                  "\" of ", request->group_size, " tensors must be enqueued at once, not ",
                  requests.size(), " of it")};
    }
  }
  return {};
}

// For each rank the number of its host.
std::vector<int> hosts_of(const WorldSpec& spec) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  hosts.reserve(spec.members.size());
  for (const auto& member : spec.members) {
    hosts.push_back(numbers.emplace(member.host, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

// How many hosts hosts_of() has numbered.
int count_of(const std::vector<int>& hosts) {
  return *std::max_element(hosts.begin(), hosts.end()) + 1;
}

// Chooses between hierarchical and flat operations where the configuration leaves it open, and
// begins to measure the links.
WorldSpec chosen(WorldSpec spec) {
  Config& config = spec.config;
  config.gpu_by_hosts = config.hierarchical_allreduce.value_or(false);
  const bool by_hosts = config.shared_memory && spec.has_multi_rank_hosts();
  config.hierarchical_allreduce = config.hierarchical_allreduce.value_or(by_hosts);
  config.hierarchical_allgather = config.hierarchical_allgather.value_or(by_hosts);
  if (!spec.links) spec.links = std::make_shared<LinkMeter>(config.link_speed);
  return spec;
}

}  // namespace

class World::Impl {
 public:
  explicit Impl(const WorldSpec& spec)
      : spec_(chosen(spec)),
        requested_sets_(
            spec.next_process_set == 0
                ? ProcessSets::of(spec.process_sets, spec.size())
                : ProcessSets::restored(spec.restored_sets, spec.next_process_set, spec.size())),
        queue_(spec.rank, initial_sets(), *spec_.meter),
        recorder_([this](const auto& visitor) { queue_.visit(visitor); },
                  [this] { control_.wake(); }),
        host_(spec_),
        executor_(queue_, verdict_,
                  {[this](const Status& why) { operation_broke(why); },
                   [this] { control_.batch_ended(); }, [this] { control_.notify_caller(); },
                   &recorder_, spec_.on_set_changed,
                   [this](const Status& why) { note_refused(why); }, [this] { control_.wake(); }}),
        tracing_(spec_, recorder_, [this] { control_.wake(); }),
        control_(spec_, initial_sets(), queue_, verdict_, executor_, recorder_, tracing_,
                 host_.own_cores(), [this] { return abort_operations(); }) {}

  ~Impl() {
    control_.stop();  // sets a verdict unless all ranks have left
    // The loop closes the queue when the world fails; in a world that has been left it did not.
    const Failure over(Status(Code::failed_precondition, "this world has been left"));
    const auto stranded = queue_.close(over);
    recorder_.fail(stranded, over.status);
    for (const auto& entry : stranded) entry.done(over);
    executor_.stop();
    if (gpu_) gpu_->close();
    tracing_.close();
  }

  Status form(Exchange& exchange);

  Failure enqueue(std::span<Entry> entries) {
    for (auto& entry : entries) {
      if (entry.request.kind == Kind::join) entry.request.name = kJoinName;
      if (const Status checked = check_request(entry.request, spec_.size()); !checked.ok()) {
        return checked;
      }
    }
    if (const Status checked = check_groups(entries); !checked.ok()) return checked;
    if (const Status checked = check_device(entries); !checked.ok()) return checked;
    bool first = false;
    Failure refused = queue_.push(entries, first);
    if (first) control_.gather();
    // A program that leaves a failed world is told why the world failed, not that it was left.
    return !refused.ok() && verdict_.known() ? verdict_.get() : refused;
  }

  void progress_until(const std::function<bool()>& done, TimePoint deadline) {
    // Stock Gloo runs its operations in a thread of their own, as its other users do, so that
    // comparisons are fair.
    if (spec_.config.transport != Transport::gloo_tcp) control_.progress_until(done, deadline);
  }
  void notify_caller() { control_.notify_caller(); }
  void post(std::function<void()> task) { executor_.post(std::move(task)); }
  void abandon() {
    control_.stop_caller_progress();
    control_.stop();
  }
  void abort(const Failure& why) { control_.fail(why); }
  trace::Tracing& tracing() { return tracing_; }
  Status start_timeline(const std::string& path, bool mark_cycles) {
    HVD_RETURN_IF_ERROR(tracing_.start_timeline(path, mark_cycles, spec_.under_way));
    // The calls that follow are in it.
    queue_.allow_lanes(false);
    control_.wake();
    return {};
  }
  Activity activity() {
    auto words = trace::flight_digest(recorder_.operations(), trace::nanoseconds_now());
    return {spec_.generation, std::move(words.in_flight), std::move(words.last),
            control_.unasked_text()};
  }
  Activity last_activity() {
    auto kept = control_.last_activity();
    return kept ? *std::move(kept) : activity();
  }
  Failure failure() const { return verdict_.get(); }

  Failure shutdown(TimePoint deadline) {
    if (left_) return {};
    in_shutdown_ = true;
    control_.stop_caller_progress();
    queue_.refuse(
        Status(Code::failed_precondition, "this rank has called shutdown(): nothing can be added"));
    queue_.leave_lanes();
    if (queue_.size() > 0) control_.close();
    const bool none_in_flight = queue_.wait_empty(deadline);
    tell_of_refused();
    if (!none_in_flight) {
      return Status(Code::deadline_exceeded,
                    cat("calls of this rank have not ended: ", activity().in_flight));
    }

    if (verdict_.known()) return verdict_.get();
    Failure outcome = control_.leave(deadline);
    left_ = outcome.ok();

    const CacheStats stats = cache_stats();
    HVD_LOG(debug, "response cache: " << stats.hits << " hits, " << stats.misses << " misses");
    tracing_.close();
    return outcome;
  }

  const WorldSpec& spec() const { return spec_; }
  bool overlaps_computation() const { return !host_.share_all_cores(); }
  bool may_pack() const { return queue_.has_lanes() && !recorder_.recording(); }
  const TensorQueue& queue() const { return queue_; }
  bool wait_idle(TimePoint deadline) const { return queue_.wait_empty(deadline); }
  CacheStats cache_stats() const {
    CacheStats stats = control_.cache_stats();
    stats.in_lanes = queue_.lane_uses();
    stats.hits += stats.in_lanes;
    return stats;
  }

 private:
  Result<std::unique_ptr<Mesh>> make_mesh() const;
  bool may_use_lanes() const;
  Status connect(Exchange& exchange);
  std::string description() const;
  // Invalid sets are reported when the world forms; until then there are none.
  ProcessSets initial_sets() const {
    return requested_sets_.ok() ? *requested_sets_ : ProcessSets(spec_.size());
  }
  // All tensors of a rank must be on one GPU, that of the first tensor.
  Status check_device(std::span<const Entry> entries) {
    for (const auto& entry : entries) {
      if (entry.request.on_host) continue;
      int device = Device::kHost;
      if (gpu_device_.compare_exchange_strong(device, entry.device.cuda) ||
          device == entry.device.cuda) {
        continue;
      }
      return {Code::invalid_argument, cat(kind_name(entry.request.kind), " \"", entry.request.name,
                                          "\": it is on CUDA device ", entry.device.cuda,
                                          ", but the first tensor of a GPU that this "
                                          "rank had was on device ",
                                          device, ": a rank works on one GPU")};
    }
    return {};
  }
  std::shared_ptr<gpu::GpuWorld> make_gpu_world();
  Status open_library();
  // A rank that lacks memory is itself the cause of what breaks. Any other error here may be the
  // consequence of an error that another rank knows better.
  void operation_broke(const Status& why) {
    const auto& self = spec_.members[static_cast<std::size_t>(spec_.rank)];
    const std::string own_name = cat("rank ", spec_.rank, " on ", self.worker);
    if (why.code() == Code::resource_exhausted) {
      control_.fail({why.with_context(own_name), spec_.rank, self.host});
    } else if (why.code() == Code::data_loss) {
      // It knows what was wrong; the others see only that its connections end.
      control_.fail(why.with_context(cat("the data connections of ", own_name)));
    } else {
      control_.suspect(why);
    }
  }
  // Perhaps the program does not wait for what is in flight in shutdown().
  void note_refused(const Status& why) {
    if (!in_shutdown_) return;
    const std::lock_guard lock(mutex_);
    refused_.push_back(why.message());
  }
  void tell_of_refused() {
    std::vector<std::string> calls;
    {
      const std::lock_guard lock(mutex_);
      calls.swap(refused_);
    }
    if (calls.empty()) return;
    constexpr std::size_t kMostNamed = 6;
    const std::size_t named = std::min(calls.size(), kMostNamed);
    const std::string more =
        named == calls.size() ? "" : cat("\n  and ", calls.size() - named, " calls more");
    calls.resize(named);
    HVD_LOG(warning, "shutdown: " << join(calls, "\n  ") << more);
  }
  // Returns the ranks whose data they waited for.
  std::vector<int> abort_operations() {
    const std::lock_guard lock(mutex_);
    if (mesh_) mesh_->abort(verdict_.get().status);
    host_.abort();
    if (gpu_) gpu_->abort();
    if (library_) library_->abort(verdict_.get().status);
    return mesh_ ? mesh_->missed() : std::vector<int>();
  }

  WorldSpec spec_;
  Result<ProcessSets> requested_sets_;
  TensorQueue queue_;
  trace::Recorder recorder_;
  Verdict verdict_;
  std::mutex mutex_;
  std::shared_ptr<Mesh> mesh_;  // set once, under mutex_
  LocalRanks host_;
  std::shared_ptr<gpu::GpuWorld> gpu_;     // set once, under mutex_
  std::shared_ptr<LibraryWorld> library_;  // set once, under mutex_; null: none was chosen
  std::atomic<int> gpu_device_ = Device::kHost;
  bool left_ = false;
  std::atomic<bool> in_shutdown_ = false;
  std::vector<std::string> refused_;  // in shutdown(), and not told; under mutex_
  Executor executor_;
  trace::Tracing tracing_;
  ControlLoop control_;
};

Status World::Impl::form(Exchange& exchange) {
  HVD_RETURN_IF_ERROR(tracing_.open());
  PinnedThread pinned;  // all threads of the world are started within its lifetime
  const int core = host_.core().value_or(spec_.config.core);
  if (core >= 0) HVD_RETURN_IF_ERROR(pinned.pin(core));
  HVD_RETURN_IF_ERROR(control_.open());

  std::vector<std::unique_ptr<Operation>> operations;
  if (spec_.size() == 1) {
    HVD_RETURN_IF_ERROR(requested_sets_.status());
    HVD_RETURN_IF_ERROR(control_.start({}, Clock::now() + spec_.config.connect_timeout));
    operations.push_back(std::make_unique<LocalOperation>());
  } else {
    HVD_RETURN_IF_ERROR(connect(exchange));
    HVD_RETURN_IF_ERROR(open_library());
    const auto add = [&operations](std::vector<std::unique_ptr<Operation>> more) {
      std::move(more.begin(), more.end(), std::back_inserter(operations));
    };
    if (library_) add(make_library_operations(library_));
    if (host_.shared()) add(make_shm_operations(host_.shared(), {}));
    GlooOperationOptions options{spec_.config.collective_timeout};
    options.hosts = hosts_of(spec_);
    options.host = host_.shared();
    if (spec_.rank == 0) options.links = spec_.links;
    add(make_gloo_operations(mesh_, options));
  }

  for (auto& operation : make_gpu_operations(make_gpu_world(), {})) {
    operations.push_back(std::move(operation));
  }

  if (const Failure formed = control_.wait_formed(); !formed.ok()) return formed.status;
  executor_.start(std::move(operations), *requested_sets_, spec_.rank);
  HVD_LOG(info, description());
  return {};
}

// All members are there: a library begins when all of them come to this.
Status World::Impl::open_library() {
  if (spec_.config.cpu_operations == CpuOperations::gloo) return {};
  auto library = chosen_library(spec_, mesh_);
  HVD_RETURN_IF_ERROR(library.status());
  {
    const std::lock_guard lock(mutex_);
    library_ = std::make_shared<LibraryWorld>(std::move(*library));
  }
  return library_->open();
}

// "generation 2: rank 1 of 8 at 10.0.0.2; 4 ranks share the memory of this host, 2 hosts are
// connected over TCP (integrity); a batch has at most 134217728 bytes"
std::string World::Impl::description() const {
  const auto hosts = hosts_of(spec_);
  const int count = count_of(hosts);
  const auto& self = spec_.members[static_cast<std::size_t>(spec_.rank)];
  std::string text = cat("generation ", spec_.generation, ": rank ", spec_.rank, " of ",
                         spec_.size(), " at ", self.address);
  if (host_.shared()) {
    const int own = hosts[static_cast<std::size_t>(spec_.rank)];
    text += cat("; ", std::count(hosts.begin(), hosts.end(), own),
                " ranks share the memory of this host");
  } else if (spec_.size() > count) {
    text += "; the ranks of a host are connected over TCP";
  }
  if (count > 1) {
    const bool ours = spec_.config.transport == Transport::hvd;
    text += cat("; ", count, " hosts are connected over TCP (",
                ours ? name_of(spec_.config.data_security) : "gloo-tcp", ")");
  }
  if (library_) {
    text += cat("; ", library_->library().title(), " reduces tensors of the host, unprotected");
  }
  return cat(text, "; a batch has at most ", spec_.config.fusion_threshold, " bytes");
}

// The GPU itself is opened with the first tensor on one.
std::shared_ptr<gpu::GpuWorld> World::Impl::make_gpu_world() {
  gpu::GpuWorldOptions options;
  options.lanes = spec_.config.gpu_lanes;
  options.connect_timeout = spec_.config.connect_timeout;
  for (int rank = 0; rank < spec_.size(); ++rank) {
    options.names.push_back(
        cat("rank ", rank, " on ", spec_.members[static_cast<std::size_t>(rank)].worker));
  }
  options.hosts = hosts_of(spec_);
  options.by_hosts = spec_.config.gpu_by_hosts;
  options.open = spec_.config.open_gpu;
  if (!options.open) {
    options.open = [](int device, int lanes) -> Result<std::unique_ptr<gpu::Gpu>> {
      auto module = gpu::module();
      HVD_RETURN_IF_ERROR(module.status());
      return (*module)->open(device, lanes);
    };
  }
  if (count_of(options.hosts) > 1 && spec_.rank == 0 &&
      spec_.config.data_security == Protection::encrypted) {
    options.open = [open = std::move(options.open)](int device, int lanes) {
      HVD_LOG(warning, "HVD_DATA_SECURITY=encrypted does not reach what NCCL sends between hosts");
      return open(device, lanes);
    };
  }

  options.tell = [mesh = mesh_, timeout = spec_.config.collective_timeout](
                     const Group& group, const Active& active, std::string own) {
    return tell_over(*mesh, timeout, group, active, std::move(own));
  };
  options.adasum = adasum_over(mesh_, spec_.config.collective_timeout);
  options.on_broken = [this](const Status& why) { operation_broke(why); };

  auto world = std::make_shared<gpu::GpuWorld>(std::move(options));
  const std::lock_guard lock(mutex_);
  gpu_ = world;
  return world;
}

Result<std::unique_ptr<Mesh>> World::Impl::make_mesh() const {
  const auto& address = spec_.members[static_cast<std::size_t>(spec_.rank)].address;
  const Config& config = spec_.config;

  if (config.transport == Transport::gloo_tcp) {
    const SignalShield shield;  // Gloo's thread inherits it
    auto mesh = GlooMesh::create({spec_.rank, spec_.size(), address, config.connect_timeout});
    HVD_RETURN_IF_ERROR(mesh.status());
    return std::unique_ptr<Mesh>(std::move(*mesh));
  }

  MeshConnector::Options connector(spec_.rank, spec_.size(), address, spec_.generation,
                                   spec_.token);
  connector.ports = config.ports;
  connector.connect_timeout = config.connect_timeout;
  connector.handshake_timeout = config.handshake_timeout;
  Messenger::Options messages{.sockets = config.sockets_per_pair};
  messages.protection = config.data_security;
  messages.on_moved = [this](std::size_t received, std::size_t sent) {
    spec_.meter->add_received(received);
    if (host_.shared()) host_.shared()->note_moved(received + sent);
  };
  auto mesh =
      TcpMesh::create({std::move(connector), config.collective_timeout, std::move(messages)});
  HVD_RETURN_IF_ERROR(mesh.status());
  return std::unique_ptr<Mesh>(std::move(*mesh));
}

// The same on all ranks. In lanes there is neither a library, nor somebody else's transport.
bool World::Impl::may_use_lanes() const {
  return host_.memory() && count_of(hosts_of(spec_)) == 1 &&
         spec_.size() <= ShmLayout::kMostLaneRanks && spec_.config.transport == Transport::hvd &&
         spec_.config.cpu_operations == CpuOperations::gloo;
}

Status World::Impl::connect(Exchange& exchange) {
  auto mesh = make_mesh();
  HVD_RETURN_IF_ERROR(mesh.status());
  const WriteSignalShield shield(SIGPIPE);
  {
    const std::lock_guard lock(mutex_);
    mesh_ = std::move(*mesh);
  }

  const auto rendezvous_timeout = spec_.config.rendezvous_timeout;
  auto blobs = exchange.exchange(
      Introduction{.control = control_.address(),
                   .data = mesh_->address(),
                   .sets = sets_text(spec_, requested_sets_.status()),
                   .host = host_.open(),
                   .cpu_operations = spec_.config.cpu_operations}
          .encode(),
      rendezvous_timeout.count() == 0 ? kNever : Clock::now() + rendezvous_timeout);
  HVD_RETURN_IF_ERROR(blobs.status());

  // All members are there: from now on only the connections take time.
  const auto deadline = Clock::now() + spec_.config.connect_timeout;
  auto introductions = read_introductions(spec_, *blobs);
  HVD_RETURN_IF_ERROR(introductions.status());
  std::vector<std::string> controls;
  std::vector<std::string> addresses;
  std::vector<std::string> rendezvous_names;
  for (auto& introduction : *introductions) {
    controls.push_back(std::move(introduction.control));
    addresses.push_back(std::move(introduction.data));
    rendezvous_names.push_back(std::move(introduction.host));
  }

  HVD_RETURN_IF_ERROR(requested_sets_.status());
  // Both planes connect at the same time: the control plane in its thread, the data plane here.
  HVD_RETURN_IF_ERROR(control_.start(std::move(controls), deadline));
  Status connected = mesh_->connect(addresses);
  if (connected.ok()) connected = host_.form(rendezvous_names, deadline);
  if (connected.ok()) {
    if (may_use_lanes()) queue_.use_lanes(*host_.memory());
    if (host_.mailbox()) control_.share(host_.mailbox());
    return {};
  }

  // The control plane can name the rank that is missing.
  control_.suspect(connected);
  return verdict_.wait().status;
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;

Result<std::unique_ptr<World>> World::create(const WorldSpec& spec, Exchange& exchange) {
  if (spec.rank < 0 || spec.rank >= spec.size()) {
    return Status(Code::invalid_argument,
                  cat("rank ", spec.rank, " in a world of ", spec.size(), " members"));
  }
  auto impl = std::make_unique<Impl>(spec);
  HVD_RETURN_IF_ERROR(impl->form(exchange).with_context(cat(
      "rank ", spec.rank, " joins generation ", spec.generation, " of ", spec.size(), " members")));
  return std::unique_ptr<World>(new World(std::move(impl)));
}

Status World::start_timeline(const std::string& path, bool mark_cycles) {
  return impl_->start_timeline(path, mark_cycles);
}
Status World::stop_timeline(TimePoint deadline) { return impl_->tracing().stop_timeline(deadline); }
const Config& World::config() const { return impl_->spec().config; }
World::Activity World::activity() { return impl_->activity(); }
World::Activity World::last_activity() { return impl_->last_activity(); }
void World::dump(std::string reason) { impl_->tracing().request_dump(std::move(reason)); }
int World::rank() const { return impl_->spec().rank; }
int World::size() const { return impl_->spec().size(); }
bool World::overlaps_computation() const { return impl_->overlaps_computation(); }
bool World::may_pack() const { return impl_->may_pack(); }
Failure World::enqueue(Entry entry) { return impl_->enqueue({&entry, 1}); }
Failure World::enqueue(std::vector<Entry> entries) { return impl_->enqueue(entries); }
void World::progress_until(const std::function<bool()>& done, TimePoint deadline) {
  impl_->progress_until(done, deadline);
}
void World::notify_caller() { impl_->notify_caller(); }
void World::post(std::function<void()> task) { impl_->post(std::move(task)); }
void World::abandon() { impl_->abandon(); }
void World::abort(const Failure& why) { impl_->abort(why); }
CacheStats World::cache_stats() const { return impl_->cache_stats(); }
Failure World::failure() const { return impl_->failure(); }
bool World::wait_idle(TimePoint deadline) const { return impl_->wait_idle(deadline); }
Result<RankSet> World::process_set(int id) const { return impl_->queue().members(id); }
bool World::is_by_members(int id) const { return impl_->queue().is_by_members(id); }
std::vector<int> World::process_sets() const { return impl_->queue().process_sets(); }
Failure World::shutdown(TimePoint deadline) { return impl_->shutdown(deadline); }

}  // namespace hvd::runtime
