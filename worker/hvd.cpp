#include <hvd/hvd.h>

#include "base/text.h"
#include "worker/process_world.h"

namespace hvd {
namespace {

worker::Place place_for(const char* call) {
  auto place = worker::ProcessWorld::instance().place();
  if (!place.ok()) {
    throw NotInitializedError(cat("hvd::", call, "() needs hvd::init() before it"));
  }
  return *place;
}

}  // namespace

void init(const InitOptions& options) {
  if (const Status status = worker::ProcessWorld::instance().init(options); !status.ok()) {
    throw InitError(cat("hvd::init(): ", status.message()));
  }
}

void shutdown() { worker::ProcessWorld::instance().shutdown(); }
bool is_initialized() { return worker::ProcessWorld::instance().world() != nullptr; }
int rank() { return place_for("rank").rank; }
int size() { return place_for("size").size; }
int local_rank() { return place_for("local_rank").local_rank; }
int local_size() { return place_for("local_size").local_size; }
int cross_rank() { return place_for("cross_rank").cross_rank; }
int cross_size() { return place_for("cross_size").cross_size; }
bool is_homogeneous() { return place_for("is_homogeneous").homogeneous; }

}  // namespace hvd
