#include "worker/elastic/device_transfer.h"

#include <algorithm>
#include <array>
#include <optional>

namespace hvd::worker {

using runtime::Failure;
using runtime::gpu::Copier;
using runtime::gpu::KeptIn;

namespace {

enum class Role { sends, receives, watches };

// Two chunks of the device's memory that take turns, for as long as this lives.
class Stage {
 public:
  explicit Stage(Copier& copier) : copier_(copier) {}
  ~Stage() {
    for (void* const half : halves_) {
      if (half != nullptr) copier_.release(KeptIn::device, half);
    }
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Status make(std::size_t bytes) {
    for (auto& half : halves_) {
      auto memory = copier_.allocate(KeptIn::device, bytes);
      HVD_RETURN_IF_ERROR(memory.status().with_context("memory for a chunk of the state"));
      half = *memory;
    }
    return copier_.wait();
  }
  std::byte* half(std::uint64_t chunk) const {
    return static_cast<std::byte*>(halves_[chunk % halves_.size()]);
  }

 private:
  Copier& copier_;
  std::array<void*, 2> halves_{};
};

class DeviceChunks {
 public:
  DeviceChunks(StateChannel& channel, DeviceParts& parts, const DeviceParts::Kept& kept, Role role,
               int root, std::uint64_t chunk)
      : channel_(channel),
        parts_(parts),
        kept_(kept),
        role_(role),
        root_(root),
        chunk_(chunk),
        straight_(role != Role::watches && kept.where == KeptIn::device),
        stage_(parts.copier()) {}

  Failure move_all() {
    if (Status ready = prepare(); !ready.ok()) return ready;
    const std::uint64_t chunks = (parts_.bytes() + chunk_ - 1) / chunk_;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      Status copied;
      const auto meanwhile = [&] {
        if (role_ == Role::sends && i + 1 < chunks) copied = stage(i + 1);
        if (role_ == Role::receives && i > 0) copied = stage(i - 1);
      };
      std::byte* const at = straight_ ? kept_.memory + begin(i) : stage_.half(i);
      auto moved = channel_.broadcast_on(parts_.device(), "tensors", root_, {at, size(i)},
                                         straight_ ? std::function<void()>() : meanwhile);
      if (!moved.ok()) return moved;
      if (!copied.ok()) return copied;
    }
    return role_ == Role::receives && !straight_ && chunks > 0 ? stage(chunks - 1) : Status();
  }

 private:
  std::uint64_t begin(std::uint64_t chunk) const { return chunk * chunk_; }
  std::size_t size(std::uint64_t chunk) const {
    return std::min(chunk_, parts_.bytes() - begin(chunk));
  }

  Status prepare() {
    HVD_RETURN_IF_ERROR(parts_.copier().wait());
    if (straight_ || parts_.bytes() == 0) return {};
    HVD_RETURN_IF_ERROR(stage_.make(std::min(chunk_, parts_.bytes())));
    return role_ == Role::sends ? stage(0) : Status();
  }
  // From pinned memory to the device, or back; waits, since NCCL does not know of this stream.
  Status stage(std::uint64_t chunk) {
    std::byte* const pinned = kept_.memory + begin(chunk);
    std::byte* const staged = stage_.half(chunk);
    const bool sends = role_ == Role::sends;
    HVD_RETURN_IF_ERROR(
        parts_.copier().copy(sends ? staged : pinned, sends ? pinned : staged, size(chunk)));
    return parts_.copier().wait();
  }

  StateChannel& channel_;
  DeviceParts& parts_;
  const DeviceParts::Kept& kept_;
  Role role_;
  int root_;
  std::uint64_t chunk_;
  bool straight_;  // between the copies, without a stage
  Stage stage_;
};

}  // namespace

Failure transfer_device_parts(StateChannel& channel, DeviceParts& parts, std::size_t copy,
                              const Resume& resume, std::uint64_t chunk) {
  if (Status opened = parts.open(); !opened.ok()) return opened;
  const int root = resume.holders.front();
  const bool holds = std::find(resume.holders.begin(), resume.holders.end(), channel.rank()) !=
                     resume.holders.end();
  Role role = Role::receives;
  if (holds) role = channel.rank() == root ? Role::sends : Role::watches;
  if (role == Role::receives) {
    if (Status room = parts.make_room(copy); !room.ok()) return room;
  }
  return DeviceChunks(channel, parts, parts.kept(copy), role, root, chunk).move_all();
}

}  // namespace hvd::worker
