// The content of a State: the program's objects by name, and, unless commits are only marked, a
// copy of all of them as they were at the last commit. The books about it are kept_states.h;
// tensors of a GPU, which are kept in step with the rest, device_parts.h. For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hvd/elastic.h>

#include "base/protocol/state_memory.h"
#include "base/status.h"
#include "worker/elastic/agreement.h"
#include "worker/elastic/device_parts.h"
#include "worker/elastic/kept_states.h"

namespace hvd::worker {

// Memory that is kept for the next time, and not filled before it is written. Large ones lie in
// large pages where there are any: the first writing of 100 MB costs less than half then.
//
// A buffer may lie in a region of a file in memory: what is written there stays after its end.
class Buffer {
 public:
  Buffer() = default;
  // Empty. The file must outlive it.
  explicit Buffer(const FileRegion& region) : region_(region) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { clear(); }

  void resize(std::size_t size);  // its content is lost
  // What lies in the region. std::bad_alloc, as of resize(), if there is no memory for it.
  void map(std::size_t size);
  // The pages of these bytes are faulted in, and their content is lost: writing there afterwards
  // costs no page fault.
  void touch(std::size_t begin, std::size_t end);
  void clear();  // gives the memory back, unless it is that of a file
  std::span<std::byte> bytes() { return {bytes_, size_}; }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }

 private:
  FileRegion region_;
  std::byte* bytes_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// All objects of the host as bytes, one after the other; without sizes while they are not whole.
struct Copy {
  std::vector<std::uint64_t> sizes;
  Buffer bytes;
};

class Store {
 public:
  explicit Store(elastic::CommitMode mode, DeviceOptions device = {})
      : Store(mode, DeviceParts(std::move(device))) {}

  // invalid_argument if the name is empty or taken, or a function of the handler is missing.
  Status add(const std::string& name, elastic::Handler handler);
  // A tensor of a GPU; also if it is on another one than those before.
  Status add(const std::string& name, const TensorView& tensor);
  // The same on ranks that have added the same.
  std::uint64_t shape() const;
  std::size_t parts() const { return parts_.size(); }  // of the host
  elastic::CommitMode mode() const { return mode_; }

  // From now on what is kept lies in this memory, and so does nothing that was kept before. What an
  // earlier worker has kept there of this run and of the same objects is kept again, though the
  // objects are not loaded from it; nothing if there is none. If it has kept the state of a later
  // run, the memory is not taken. invalid_argument: of a state that cannot be kept there.
  Result<std::optional<StateMemory::Entry>> keep_in(StateMemory& memory, std::uint64_t run);
  // Nothing is kept any more, and the memory has what was.
  UniqueFd leave_memory();
  // With a ledger: the number in it of what is kept next.
  void set_step(std::uint64_t step) { step_ = step; }

  // A world is entered: what is kept in it gets numbers of its own.
  void entered(std::uint64_t generation, std::uint64_t run) { states_.entered(generation, run); }
  CommitId next() const { return states_.next(); }
  // The newest state that this rank has whole, and its size.
  CommitId holds() const { return states_.newest(); }
  std::uint64_t bytes() const;
  // The same on ranks whose parts of the host are as large.
  std::uint64_t sizes_digest() const;

  // Room for what will be received and for the commit after it, as large as the objects are now:
  // a joining worker makes it before the others wait for it. Throws what the handlers throw.
  void make_room();
  // Copies the objects into the room for what will be received: bytes that the state has at the
  // same place need not travel. Throws what the handlers throw.
  void save_own();
  // The objects are now what belongs to `id`: copies them, unless commits are only marked. Throws
  // what their handlers throw; nothing has changed then.
  void keep(const CommitId& id);
  // For others to receive. Copied for that if commits are only marked: let_go() frees it.
  const Copy& to_send();
  // Writes the newest state there, without tensors of a GPU. Throws what the handlers throw.
  void copy_newest(Copy& copy);
  // Where to put what is received, and what to do when it is whole: then the objects are loaded
  // from it. Until then nothing has changed.
  Copy& to_receive();
  void take_over(const CommitId& id);
  // The tensors of a GPU; which copy of theirs belongs to that copy of the rest.
  DeviceParts& device() { return device_; }
  std::size_t number_of(const Copy& copy) const {
    return static_cast<std::size_t>(&copy - copies_.data());
  }
  // A buffer that holds nothing, and is not what is sent or received: for whatever is needed on
  // the way, since memory that was written before costs no page faults. Null without a free one.
  Buffer* idle(bool receives);
  void let_go();
  // The objects as they were kept. Where commits are only marked they are that already.
  void load();
  // CommitMode::mark: `change` changes the objects. If it throws there is nothing whole.
  void mutate(const std::function<void()>& change);
  // Nothing is kept any more, but in the memory of the agent.
  void forget();
  // With nothing kept, and copies in any mode.
  Store of_the_same_objects() const;
  std::uint64_t checksum();
  // Of each part, by name, in the order in which they were added, those of a GPU last: the SHA-256
  // of its bytes, and on a GPU runtime/gpu/digest.h.
  std::vector<std::pair<std::string, std::string>> digests();

 private:
  struct Part {
    std::string name;
    elastic::Handler handler;
  };
  Store(elastic::CommitMode mode, DeviceParts device) : mode_(mode), device_(std::move(device)) {}
  Status check_name(const std::string& name) const;
  std::size_t measure(std::vector<std::uint64_t>& sizes) const;  // and the sum of them
  std::vector<std::uint64_t> sizes() const;                      // of what it has whole
  void save_into(Copy& copy);                                    // the objects of the host
  void copy_into(Copy& copy);
  void load_from(const Copy& copy);
  // The buffer to write to, which holds nothing whole from now on.
  std::size_t spare();
  // What was written there is whole.
  void has(const CommitId& id);

  elastic::CommitMode mode_;
  std::vector<Part> parts_;
  DeviceParts device_;
  KeptStates states_;
  std::array<Copy, 2> copies_;  // KeptStates says which; the first for transfer if only marked
  std::optional<StateMemory> memory_;
  std::array<std::size_t, 2> entries_{};  // in the memory, of each copy
  std::uint64_t step_ = 0;
};

}  // namespace hvd::worker
