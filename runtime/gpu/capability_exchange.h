// The capabilities that members exchange before their GPUs form a communicator, over the
// connections that they have anyway: whether each can, with which library, and on which device. All
// members see all of them, so that all come to the same verdict, which names the rank that stands
// in the way. Pure; all are of one length, so that it need not be exchanged.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

struct Capabilities {
  Status ready;  // why this rank cannot; ok: it can
  Identity identity;
  int lanes = 1;
  std::string id;  // of those that others meet at: Gpu::new_id()
  // Whether this rank wants allreduces to go by hosts, and where those of its host meet, and those
  // of its place on all hosts, if it is the first of them.
  bool by_hosts = false;
  std::string id_inside;
  std::string id_across;

  static constexpr std::size_t kBytes = 1536;
  std::string encode() const;  // kBytes long; what of a message does not fit is cut off
  static Result<Capabilities> decode(std::string_view bytes);
};

// `names[i]` is the member that sent all[i]: "rank 3 (h1#0)". Ok, or why these cannot form a
// communicator.
Status check_capabilities(std::span<const Capabilities> all, std::span<const std::string> names);
// Whether two of them, which may, are on one device.
bool share_device(std::span<const Capabilities> all);
// Whether all of them want to go by hosts.
bool all_go_by_hosts(std::span<const Capabilities> all);
// Whether all of them add float8 as it is.
bool all_add_float8(std::span<const Capabilities> all);
// Whether the library does on a device of this compute capability: `major` is 9 of an H100.
bool adds_float8(int built_with, int library_version, int major);
std::string version_text(int library_version);  // 22809: "2.28.9"

}  // namespace hvd::runtime::gpu
