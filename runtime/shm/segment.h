// Memory that processes of one host share: an anonymous file in memory (memfd) that has no name, so
// that nothing is left of it when the last process that has it ends, however it ends. Its size is
// sealed: no process can truncate it while another one uses it.
//
// Pages are there only once they are reserved: touching one that the machine cannot give is the end
// of a process (SIGBUS), reserving it is an error. Memory that is never reserved costs nothing.
//
// No segment is part of core dumps: most of it may be holes, which a dump would fill.
//
// Ranks that are threads of one process get the same mapping, so that ThreadSanitizer sees what
// they do to each other. The object has shared owners; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::runtime {

// The size of a page of this machine.
std::size_t page_bytes();
// So many bytes, rounded up to whole pages.
std::size_t whole_pages(std::size_t bytes);
// The most bytes that a file of this process may have (ulimit -f), memory without a name included.
// The kernel sends SIGXFSZ, which ends a program, where a file would become larger.
std::uint64_t most_file_bytes();

class Segment {
 public:
  // The file alone, of zeros, whose size is sealed. `name` stands in /proc/PID/maps.
  // resource_exhausted beyond the limit of the size of files (ulimit -f).
  static Result<UniqueFd> create_file(const char* name, std::size_t bytes);
  // New memory.
  static Result<std::shared_ptr<Segment>> create(std::size_t bytes);
  // A segment that another process created, of this size and sealed; anything else is an error.
  static Result<std::shared_ptr<Segment>> adopt(UniqueFd fd, std::size_t bytes);

  // A heap (shared_heap.h), of any size. That of this process is mapped by processes that it forks,
  // too; those of others can only be read.
  enum class HeapOf { this_process, another };
  static Result<std::shared_ptr<Segment>> adopt_heap(UniqueFd fd, HeapOf whose);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // To hand on.
  int fd() const { return fd_.get(); }
  // Makes sure that these bytes, of which none is reserved yet, can be touched. resource_exhausted:
  // they cannot, and none of them is kept.
  Status reserve(std::size_t offset, std::size_t bytes) const;
  // Gives whole pages back to the machine. They are zeros from now on.
  void give_back(std::size_t offset, std::size_t bytes) const;

 private:
  Segment(UniqueFd fd, std::size_t bytes) : fd_(std::move(fd)), size_(bytes), owner_(::getpid()) {}
  // A forked process has the object, but not the mapping.
  bool is_mapped() const { return data_ != nullptr && owner_ == ::getpid(); }
  struct Mapping {
    bool writable = true;
    bool in_children = false;  // what a program forks is no rank
  };
  Status map(const Mapping& how);
  static Result<std::size_t> sealed_size(const UniqueFd& fd);
  // The mapping that this process has, if it has one.
  static Result<std::shared_ptr<Segment>> mapped(UniqueFd fd, std::size_t bytes,
                                                 const Mapping& how);

  UniqueFd fd_;
  std::size_t size_;
  pid_t owner_;
  std::byte* data_ = nullptr;
};

}  // namespace hvd::runtime
