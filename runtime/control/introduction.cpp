#include "runtime/control/introduction.h"

#include <utility>

#include "base/printable.h"
#include "base/text.h"
#include "base/wire.h"
#include "runtime/negotiation/process_sets.h"

namespace hvd::runtime {
namespace {

const Member& member(const WorldSpec& spec, int rank) {
  return spec.members[static_cast<std::size_t>(rank)];
}

std::string hvd_of(const Member& member, int rank, std::uint32_t version, std::string_view build) {
  return cat("rank ", rank, " on ", member.worker, " has hvd of build ",
             build.empty() ? "unknown" : printable(build), " (version ", version,
             " of the protocol between workers)");
}

// `rank` cannot work with this one. The version of rank 0 counts: a rank of another one can never
// take part (permission_denied), and the others wait until it is gone (failed_precondition).
Status other_version(const WorldSpec& spec, std::uint32_t first, int rank,
                     const Introduction& other) {
  const std::uint32_t own = wire_versions().members;
  return {first == own ? Code::failed_precondition : Code::permission_denied,
          cat(hvd_of(member(spec, spec.rank), spec.rank, own, build_id()), ", and ",
              hvd_of(member(spec, rank), rank, other.version, other.build),
              ": start programs that use the same hvd in all slots")};
}

}  // namespace

std::string Introduction::encode() const {
  return WireWriter()
      .u32(version)
      .str(build)
      .str(control)
      .str(data)
      .str(sets)
      .str(host)
      .u8(static_cast<std::uint8_t>(cpu_operations))
      .take();
}

Result<Introduction> Introduction::decode(std::string_view bytes, int rank) {
  WireReader in(bytes);
  Introduction introduction;
  introduction.version = in.u32();
  introduction.build = in.str();
  if (introduction.version != wire_versions().members) return introduction;

  introduction.control = in.str();
  introduction.data = in.str();
  introduction.sets = in.str();
  introduction.host = in.str();
  introduction.cpu_operations = static_cast<CpuOperations>(in.u8());
  HVD_RETURN_IF_ERROR(in.finish(cat("the introduction of rank ", rank)));
  return introduction;
}

std::string sets_text(const WorldSpec& spec, const Status& possible) {
  if (!possible.ok()) return cat("invalid process sets (", possible.message(), ")");
  std::vector<std::string> sets;
  sets.reserve(spec.process_sets.size());
  for (const auto& ranks : spec.process_sets) {
    sets.push_back(cat("[", ranks_text(RankSet::of_ranks(ranks)), "]"));
  }
  for (const auto& [id, set] : spec.restored_sets) {
    sets.push_back(cat(id, " [", ranks_text(RankSet::of_ranks(set.ranks)), "]"));
  }
  return cat(sets.empty() ? "no process sets" : "the process sets " + join(sets, ", "),
             spec.dynamic_process_sets ? ", and dynamic ones" : ", and no dynamic ones");
}

Result<std::vector<Introduction>> read_introductions(const WorldSpec& spec,
                                                     const std::vector<std::string>& blobs) {
  if (blobs.size() != spec.members.size()) {
    return Status(Code::internal, cat("the exchange gave ", blobs.size(), " introductions for ",
                                      spec.size(), " members"));
  }

  std::vector<Introduction> all;
  all.reserve(blobs.size());
  for (int rank = 0; rank < spec.size(); ++rank) {
    auto introduction = Introduction::decode(blobs[static_cast<std::size_t>(rank)], rank);
    HVD_RETURN_IF_ERROR(introduction.status());
    all.push_back(std::move(*introduction));

    const Introduction& first = all.front();
    const Introduction& last = all.back();
    if (last.version != wire_versions().members) {
      return other_version(spec, first.version, rank, last);
    }
    if (last.sets != first.sets) {
      return Status(
          Code::invalid_argument,
          cat("Mismatched process sets: rank 0 (", member(spec, 0).worker, ") wants ", first.sets,
              ", but rank ", rank, " (", member(spec, rank).worker, ") wants ", last.sets));
    }
    if (last.cpu_operations != first.cpu_operations) {
      const auto chosen = [&](int of, const Introduction& its) {
        return cat("rank ", of, " on ", member(spec, of).worker,
                   " has HVD_CPU_OPERATIONS=", name_of(its.cpu_operations));
      };
      return Status(Code::invalid_argument, cat(chosen(0, first), ", and ", chosen(rank, last),
                                                ": it must be the same for all of them"));
    }
  }
  return all;
}

}  // namespace hvd::runtime
