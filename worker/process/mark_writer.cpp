#include "worker/process/mark_writer.h"

namespace hvd::worker {

void MarkWriter::found(CommitId mark, std::uint64_t version) {
  version_ = version;
  if (mark == id_) {
    next_ = Next::written;  // by the write that was in doubt
  } else {
    next_ = mark < id_ ? Next::write : Next::superseded;
  }
}

void MarkWriter::wrote(std::uint64_t version) {
  version_ = version;
  next_ = Next::written;
}

}  // namespace hvd::worker
