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

// Two windows of the device's memory that take turns, for as long as this lives.
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
      HVD_RETURN_IF_ERROR(memory.status().with_context("room for a window of the state"));
      half = *memory;
    }
    return copier_.wait();
  }
  std::byte* half(std::uint64_t window) const {
    return static_cast<std::byte*>(halves_[window % halves_.size()]);
  }

 private:
  Copier& copier_;
  std::array<void*, 2> halves_{};
};

class DeviceWindows {
 public:
  DeviceWindows(StateChannel& channel, DeviceParts& parts, const DeviceParts::Kept& kept, Role role,
                int root, std::uint64_t window)
      : channel_(channel),
        parts_(parts),
        kept_(kept),
        role_(role),
        root_(root),
        window_(window),
        straight_(role != Role::watches && kept.where == KeptIn::device),
        stage_(parts.copier()) {}

  Failure move_all() {
    if (Status ready = prepare(); !ready.ok()) return ready;
    const std::uint64_t windows = (parts_.bytes() + window_ - 1) / window_;
    for (std::uint64_t i = 0; i < windows; ++i) {
      Status copied;
      const auto meanwhile = [&] {
        if (role_ == Role::sends && i + 1 < windows) copied = stage(i + 1);
        if (role_ == Role::receives && i > 0) copied = stage(i - 1);
      };
      std::byte* const at = straight_ ? kept_.memory + begin(i) : stage_.half(i);
      auto moved = channel_.broadcast_on(parts_.device(), "tensors", root_, {at, size(i)},
                                         straight_ ? std::function<void()>() : meanwhile);
      if (!moved.ok()) return moved;
      if (!copied.ok()) return copied;
    }
    return role_ == Role::receives && !straight_ && windows > 0 ? stage(windows - 1) : Status();
  }

 private:
  std::uint64_t begin(std::uint64_t window) const { return window * window_; }
  std::size_t size(std::uint64_t window) const {
    return std::min(window_, parts_.bytes() - begin(window));
  }

  Status prepare() {
    HVD_RETURN_IF_ERROR(parts_.copier().wait());
    if (straight_ || parts_.bytes() == 0) return {};
    HVD_RETURN_IF_ERROR(stage_.make(std::min(window_, parts_.bytes())));
    return role_ == Role::sends ? stage(0) : Status();
  }
  // From pinned memory to the device, or back; waits, since NCCL does not know of this stream.
  Status stage(std::uint64_t window) {
    std::byte* const pinned = kept_.memory + begin(window);
    std::byte* const staged = stage_.half(window);
    const bool sends = role_ == Role::sends;
    HVD_RETURN_IF_ERROR(
        parts_.copier().copy(sends ? staged : pinned, sends ? pinned : staged, size(window)));
    return parts_.copier().wait();
  }

  StateChannel& channel_;
  DeviceParts& parts_;
  const DeviceParts::Kept& kept_;
  Role role_;
  int root_;
  std::uint64_t window_;
  bool straight_;  // between the copies, without a stage
  Stage stage_;
};

}  // namespace

Failure transfer_device_parts(StateChannel& channel, DeviceParts& parts, std::size_t copy,
                              const Resume& resume, std::uint64_t window) {
  if (Status opened = parts.open(); !opened.ok()) return opened;
  const int root = resume.holders.front();
  const bool holds = std::find(resume.holders.begin(), resume.holders.end(), channel.rank()) !=
                     resume.holders.end();
  Role role = Role::receives;
  if (holds) role = channel.rank() == root ? Role::sends : Role::watches;
  if (role == Role::receives) {
    if (Status room = parts.make_room(copy); !room.ok()) return room;
  }
  return DeviceWindows(channel, parts, parts.kept(copy), role, root, window).move_all();
}

}  // namespace hvd::worker
