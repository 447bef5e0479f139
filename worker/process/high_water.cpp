#include "worker/process/high_water.h"

#include "base/text.h"

namespace hvd::worker {

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

Result<CommitId> RendezvousHighWater::read() {
  auto found = client_->get(kCommitScope, kHighWaterKey);
  if (found.status().code() == Code::not_found) {
    version_ = 0;
    return CommitId{};
  }
  HVD_RETURN_IF_ERROR(found.status().with_context("read the newest commit"));
  version_ = found->version;
  return commit_id_from_text(found->value);
}

Status RendezvousHighWater::write(const CommitId& id) {
  const auto text = to_text(id);
  MarkWriter mark(id, version_);

  for (;;) {
    if (mark.next() == MarkWriter::Next::read) {
      auto found = read();
      HVD_RETURN_IF_ERROR(found.status());
      mark.found(*found, *version_);
    } else if (mark.next() == MarkWriter::Next::write) {
      // The client asks again until it has an answer; one that was lost shows as a refusal.
      auto written = client_->compare_and_set(kCommitScope, kHighWaterKey, text, mark.version());
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
