#include "worker/process/high_water.h"

#include "base/text.h"

namespace hvd::worker {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};  // whether a wait for hvdrun was cancelled

}  // namespace

void MarkWriter::found(CommitId mark, std::uint64_t version) {
  version_ = version;
  if (mark == id_) {
    next_ = Next::written;  // by the write that was in doubt
  } else {
    const bool is_newer_world = mark.generation > id_.generation;
    next_ = mark < id_ && !is_newer_world ? Next::write : Next::superseded;
  }
}

void MarkWriter::wrote(std::uint64_t version) {
  version_ = version;
  next_ = Next::written;
}

rendezvous::Client::GivesUp RendezvousHighWater::when_driver_goes() {
  return [this] {
    driver_went_ = driver_went_ || keeper_.driver_is_gone();
    return driver_went_;
  };
}

Result<CommitId> RendezvousHighWater::read() {
  for (;;) {
    while (!keeper_.wait_for_driver(Clock::now() + kLookEvery)) {
      if (client_->is_cancelled())
        return Status(Code::aborted, "read the newest commit: cancelled");
    }
    driver_went_ = false;
    auto mark = read_from_driver();
    if (driver_went_ && mark.status().code() == Code::unavailable) continue;
    if (mark.ok()) HVD_RETURN_IF_ERROR(keeper_.keep_mark(*mark));
    return mark;
  }
}

Result<CommitId> RendezvousHighWater::read_from_driver() {
  auto found = client_->get(kCommitScope, kHighWaterKey, when_driver_goes());
  if (found.status().code() == Code::not_found) {
    version_ = 0;
    return CommitId{};
  }
  HVD_RETURN_IF_ERROR(found.status().with_context("read the newest commit"));
  version_ = found->version;
  return commit_id_from_text(found->value);
}

Status RendezvousHighWater::write(const CommitId& id) {
  for (;;) {
    driver_went_ = keeper_.driver_is_gone();
    if (!driver_went_) {
      Status written = write_to_driver(id);
      // The mark of an hvdrun that goes now is gone with it, unless the agent has it.
      if (written.ok()) return keeper_.keep_mark(id);
      if (!driver_went_ || written.code() != Code::unavailable) return written;
    }

    version_.reset();  // a successor's store counts from anew
    HVD_RETURN_IF_ERROR(keeper_.keep_mark(id));
    // A successor that has come meanwhile may have missed it.
    if (keeper_.driver_is_gone()) return {};
  }
}

Status RendezvousHighWater::write_to_driver(const CommitId& id) {
  const auto text = to_text(id);
  MarkWriter mark(id, version_);

  for (;;) {
    if (mark.next() == MarkWriter::Next::read) {
      auto found = read_from_driver();
      HVD_RETURN_IF_ERROR(found.status());
      mark.found(*found, *version_);
    } else if (mark.next() == MarkWriter::Next::write) {
      // The client asks again until it has an answer; one that was lost shows as a refusal.
      auto written = client_->compare_and_set(kCommitScope, kHighWaterKey, text, mark.version(),
                                              when_driver_goes());
      if (written.ok()) {
        mark.wrote(*written);
      } else if (written.status().code() == Code::already_exists) {
        mark.refused();
      } else if (written.status().code() == Code::failed_precondition) {
        // The server knows of a newer world.
        return {Code::aborted,
                cat("commit ", text, " does not count: ", written.status().message())};
      } else {
        return written.status().with_context(cat("write down commit ", text));
      }
    } else {
      break;
    }
  }

  version_ = mark.version();
  if (mark.next() == MarkWriter::Next::written) return {};
  return {Code::aborted,
          cat("commit ", text, " does not count: a newer world has committed already")};
}

}  // namespace hvd::worker
