#include <hvd/hvd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/ops/ccl.h"
#include "runtime/ops/mpi_library.h"
#include "worker/process/errors.h"
#include "worker/process/process_world.h"

namespace hvd {
namespace {

using worker::status_of;

worker::Place place_for(const char* call) {
  return worker::ProcessWorld::instance().place_for(call);
}

std::shared_ptr<runtime::World> world_for(const char* call) {
  return worker::ProcessWorld::instance().world_for(call);
}

// Longer than the ranks wait for what they run when the end is called.
constexpr std::chrono::seconds kReportTimeout{15};

// Rank 0 alone knows whether a timeline is being recorded. The other ranks would go on without it
// if it raised an error.
void warn_of_no_effect(const Status& status) {
  HVD_LOG(warning, status.message() << "; the call has no effect");
}

}  // namespace

const char* version() noexcept { return HVD_VERSION_STRING; }

void init(const InitOptions& options) {
  const Status status =
      status_of([&options] { return worker::ProcessWorld::instance().init(options); });
  if (!status.ok()) throw InitError(cat("hvd::init(): ", status.message()));
}

void shutdown() { worker::ProcessWorld::instance().shutdown(); }
bool is_initialized() { return worker::ProcessWorld::instance().is_initialized(); }
int rank() { return place_for("rank").rank; }
int size() { return place_for("size").size; }
int local_rank() { return worker::ProcessWorld::instance().local_rank(); }
int local_size() { return place_for("local_size").local_size; }
int cross_rank() { return place_for("cross_rank").cross_rank; }
int cross_size() { return place_for("cross_size").cross_size; }
void start_timeline(const std::string& path, bool mark_cycles) {
  const auto world = world_for("start_timeline");
  if (world->rank() != 0) return;
  const Status started = status_of([&] { return world->start_timeline(path, mark_cycles); });
  if (started.ok()) return;
  if (started.code() == Code::failed_precondition) return warn_of_no_effect(started);
  throw InvalidArgumentError(cat("hvd::start_timeline(): ", started.message()));
}

void stop_timeline() {
  const auto world = world_for("stop_timeline");
  if (world->rank() != 0) return;
  const Status stopped = world->stop_timeline(Clock::now() + kReportTimeout);
  if (stopped.code() == Code::failed_precondition) return warn_of_no_effect(stopped);
  // A failure to write the file was reported when it happened.
  if (stopped.code() == Code::deadline_exceeded) HVD_LOG(warning, stopped.message());
}

bool is_homogeneous() { return place_for("is_homogeneous").homogeneous; }

bool ccl_built() { return runtime::ccl::is_built(); }
bool mpi_built() { return runtime::mpi::is_built(); }

bool mpi_enabled() {
  const auto world = worker::ProcessWorld::instance().world();
  return world && world->config().cpu_operations == runtime::CpuOperations::mpi;
}

bool mpi_threads_supported() {
  place_for("mpi_threads_supported");
  return mpi_enabled() && runtime::mpi_has_threads();
}

}  // namespace hvd
