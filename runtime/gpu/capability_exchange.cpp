#include "runtime/gpu/capability_exchange.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::runtime::gpu {
namespace {

constexpr std::size_t kMessageBytes = 512;
constexpr std::size_t kNameBytes = 96;
constexpr std::size_t kIdBytes = 160;

}  // namespace

std::string Capabilities::encode() const {
  std::string bytes = WireWriter()
                          .u8(static_cast<std::uint8_t>(ready.code()))
                          .str(std::string_view(ready.message()).substr(0, kMessageBytes))
                          .str(std::string_view(identity.uuid).substr(0, kNameBytes))
                          .str(std::string_view(identity.name).substr(0, kNameBytes))
                          .str(std::string_view(identity.bus_id).substr(0, 32))
                          .i32(identity.library_version)
                          .boolean(identity.may_share_device)
                          .boolean(identity.adds_float8)
                          .i32(lanes)
                          .str(std::string_view(id).substr(0, kIdBytes))
                          .boolean(by_hosts)
                          .str(std::string_view(id_inside).substr(0, kIdBytes))
                          .str(std::string_view(id_across).substr(0, kIdBytes))
                          .take();
  bytes.resize(kBytes, '\0');
  return bytes;
}

Result<Capabilities> Capabilities::decode(std::string_view bytes) {
  WireReader in(bytes);
  Capabilities one;
  const auto code = in.u8();
  one.ready = {static_cast<Code>(code), in.str()};
  one.identity.uuid = in.str();
  one.identity.name = in.str();
  one.identity.bus_id = in.str();
  one.identity.library_version = in.i32();
  one.identity.may_share_device = in.boolean();
  one.identity.adds_float8 = in.boolean();
  one.lanes = in.i32();
  one.id = in.str();
  one.by_hosts = in.boolean();
  one.id_inside = in.str();
  one.id_across = in.str();
  if (in.failed() || bytes.size() != kBytes || code > static_cast<std::uint8_t>(Code::internal)) {
    return Status(Code::data_loss, "what a member says of its GPU cannot be read");
  }
  if (one.ready.ok()) one.ready = {};
  return one;
}

Status check_capabilities(std::span<const Capabilities> all, std::span<const std::string> names) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].ready.ok()) return all[i].ready.with_context(names[i]);
  }
  for (std::size_t i = 1; i < all.size(); ++i) {
    const int first = all.front().identity.library_version;
    const int other = all[i].identity.library_version;
    if (other != first) {
      return {Code::failed_precondition,
              cat(names.front(), " has NCCL ", version_text(first), ", but ", names[i],
                  " has NCCL ", version_text(other), ": all workers need the same version")};
    }
    if (all[i].lanes != all.front().lanes) {
      return {Code::failed_precondition,
              cat(names.front(), " has ", all.front().lanes, " streams for NCCL, but ", names[i],
                  " has ", all[i].lanes, ": HVD_NUM_NCCL_STREAMS must be the same for all")};
    }
  }
  std::map<std::string_view, std::size_t> owners;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& identity = all[i].identity;
    const auto [owner, is_first] = owners.emplace(identity.uuid, i);
    if (is_first || (identity.may_share_device && all[owner->second].identity.may_share_device)) {
      continue;
    }
    return {Code::invalid_argument,
            cat(names[owner->second], " and ", names[i], " are on the same GPU, ", identity.name,
                " ", identity.uuid, " at ", identity.bus_id,
                ". NCCL wants one for each worker: start no more workers on a host than it has "
                "GPUs, and let each use its own, that of hvd::cuda::device() say. (NCCL 2.30 and "
                "newer can share one, experimentally, with NCCL_MULTI_RANK_GPU_ENABLE=1; here is "
                "NCCL ",
                version_text(identity.library_version), ".)")};
  }
  return {};
}

bool share_device(std::span<const Capabilities> all) {
  std::map<std::string_view, int> owners;
  for (const auto& one : all) {
    if (++owners[one.identity.uuid] > 1) return true;
  }
  return false;
}

bool all_go_by_hosts(std::span<const Capabilities> all) {
  return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.by_hosts; });
}

bool all_add_float8(std::span<const Capabilities> all) {
  return std::all_of(all.begin(), all.end(),
                     [](const auto& one) { return one.identity.adds_float8; });
}

bool adds_float8(int built_with, int library_version, int major) {
  constexpr int kFloat8Version = 22400;
  constexpr int kHopper = 9;
  return std::min(built_with, library_version) >= kFloat8Version && major >= kHopper;
}

std::string version_text(int version) {
  // Until 2.8 a version had two digits for minor and patch together.
  const int unit = version < 10'000 ? 1'000 : 10'000;
  return cat(version / unit, ".", version % unit / 100, ".", version % 100);
}

}  // namespace hvd::runtime::gpu
