#include "base/protocol/commit_id.h"

#include "base/text.h"

namespace hvd {

std::string to_text(const CommitId& id) {
  return cat(id.generation, ".", id.sequence, id.run == 0 ? "" : cat(".", id.run));
}

Result<CommitId> commit_id_from_text(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() == 2 || parts.size() == 3) {
    const auto generation = parse_number<std::uint64_t>(parts[0]);
    const auto sequence = parse_number<std::uint64_t>(parts[1]);
    const auto run = parse_number<std::uint64_t>(parts.size() == 3 ? parts[2] : "0");
    if (generation && sequence && run) return CommitId{*generation, *sequence, *run};
  }
  return Status(Code::data_loss,
                cat("\"", text, "\" is not a commit: it has the form GENERATION.SEQUENCE[.RUN]"));
}

}  // namespace hvd
