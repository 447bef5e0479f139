// Texts of Slurm: lists of nodes and numbers, the record of a job, states of nodes. The first byte
// says which.
#include "discovery/slurm.h"

#include "tests/fuzz/input.h"

namespace {

using namespace hvd;

void read_job(std::string_view record, std::string_view states) {
  const auto job = discovery::parse_slurm_job(record, "7");
  if (!job.ok()) return fuzz::must_explain(job.status());
  const auto variables = [&](std::string_view name) {
    return name == "SLURM_JOB_NODELIST" ? std::optional(job->nodes) : std::nullopt;
  };
  const auto allocation = discovery::slurm_allocation(variables, *job);
  if (!allocation.ok()) return fuzz::must_explain(allocation.status());
  const auto nodes = discovery::slurm_nodes(*allocation, states, 2);
  if (!nodes.ok()) return fuzz::must_explain(nodes.status());
  fuzz::must(nodes->size() <= allocation->nodes.size(), "only nodes of the job may work");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int which = input.byte() % 3;
  if (which == 0) {
    const auto nodes = discovery::expand_hostlist(input.rest());
    if (!nodes.ok()) fuzz::must_explain(nodes.status());
    fuzz::must(!nodes.ok() || nodes->size() <= discovery::kMaxDiscoveredHosts, "few nodes");
  } else if (which == 1) {
    const auto counts = discovery::expand_counts(input.rest());
    if (!counts.ok()) fuzz::must_explain(counts.status());
    fuzz::must(!counts.ok() || counts->size() <= discovery::kMaxDiscoveredHosts, "few counts");
  } else {
    const auto text = input.rest();
    const auto end = std::min(text.find("\n\n"), text.size());
    read_job(text.substr(0, end), text.substr(end));
  }
  return 0;
}
