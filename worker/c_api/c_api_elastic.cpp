// Following the world of an elastic job, for frameworks with collectives of their own.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "worker/c_api/c_api.h"
#include "worker/process/membership.h"
#include "worker/process/process_world.h"

using hvd::c_api::guard;
using hvd::c_api::not_null;
using hvd::c_api::note;
using hvd::c_api::read_options;

namespace {

hvd::worker::Membership& membership(const char* call) {
  auto* const found = hvd::worker::ProcessWorld::instance().followed();
  if (found == nullptr) {
    throw hvd::NotInitializedError(hvd::cat(call, "() needs hvd_follow() before it"));
  }
  return *found;
}

void check(const hvd::Status& told) {
  if (!told.ok()) throw hvd::InternalError(told.message());
}

int code_of(const hvd::Status& status) {
  switch (status.code()) {
    case hvd::Code::deadline_exceeded:
      return HVD_ERROR_NOT_READY;
    case hvd::Code::failed_precondition:
      return HVD_ERROR_LEFT;
    case hvd::Code::aborted:
      return HVD_ERROR_COLLECTIVE;
    default:
      return HVD_ERROR_INTERNAL;
  }
}

}  // namespace

int hvd_follow(void) {
  return guard([] {
    const auto following = hvd::worker::ProcessWorld::instance().follow();
    if (!following.ok()) {
      throw hvd::InitError(hvd::cat("hvd_follow(): ", following.message()));
    }
    return HVD_OK;
  });
}

int hvd_follow_next(hvd_place* place, int64_t timeout_ms) {
  return guard([&] {
    auto& own = membership("hvd_follow_next");
    auto& into = not_null(place, "hvd_follow_next", "place");
    hvd_place found =
        read_options<hvd_place>(place, HVD_PLACE_INIT, sizeof(hvd_place), "hvd_follow_next");
    const auto deadline =
        timeout_ms < 0 ? hvd::kNever
                       : hvd::Clock::now() +
                             std::chrono::milliseconds(std::min(timeout_ms, std::int64_t{1} << 40));
    const auto entry = own.next(hvd::kNever, deadline);
    if (!entry.ok()) {
      return note(code_of(entry.status()),
                  hvd::cat("hvd_follow_next(): ", entry.status().message()));
    }
    const auto* const self = entry->document.find(own.agent().welcome().incarnation);
    found.generation = entry->document.generation;
    found.ranks = static_cast<std::int32_t>(entry->document.members.size());
    found.rank = self->rank;
    found.local_rank = self->local_rank;
    found.local_size = self->local_size;
    found.cross_rank = self->cross_rank;
    found.cross_size = self->cross_size;
    std::memcpy(&into, &found, std::min(into.size, sizeof(found)));
    return static_cast<int>(HVD_OK);
  });
}

int hvd_follow_ended(void) {
  return guard([] {
    const auto& own = membership("hvd_follow_ended");
    return own.has_next() || own.is_out() ? 1 : 0;
  });
}

int hvd_follow_proposed(uint64_t* generation) {
  return guard([&] {
    const auto& own = membership("hvd_follow_proposed");
    auto& into = not_null(generation, "hvd_follow_proposed", "generation");
    const auto proposed = own.proposed_generation();
    if (proposed) into = *proposed;
    return proposed ? 1 : 0;
  });
}

int hvd_follow_committed(uint64_t generation) {
  return guard([&] {
    check(membership("hvd_follow_committed").agent().send_committed(generation));
    return HVD_OK;
  });
}

int hvd_follow_leave(void) {
  return guard([] {
    check(membership("hvd_follow_leave").agent().send_leave());
    return HVD_OK;
  });
}

int hvd_follow_done(void) {
  return guard([] {
    check(membership("hvd_follow_done").agent().send_done());
    return HVD_OK;
  });
}
