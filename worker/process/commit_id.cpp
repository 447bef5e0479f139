#include "worker/process/commit_id.h"

#include "base/text.h"

namespace hvd::worker {

std::string to_text(const CommitId& id) { return cat(id.generation, ".", id.sequence); }

Result<CommitId> commit_id_from_text(std::string_view text) {
  const auto dot = text.find('.');
  if (dot != std::string_view::npos) {
    const auto generation = parse_number<std::uint64_t>(text.substr(0, dot));
    const auto sequence = parse_number<std::uint64_t>(text.substr(dot + 1));
    if (generation && sequence) return CommitId{*generation, *sequence};
  }
  return Status(Code::data_loss,
                cat("\"", text, "\" is not a commit: it has the form GENERATION.SEQUENCE"));
}

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
