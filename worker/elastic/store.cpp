#include "worker/elastic/store.h"

#include <algorithm>
#include <cstddef>
#include <fcntl.h>
#include <limits>
#include <new>
#include <numeric>
#include <sys/mman.h>
#include <utility>

#include "base/checksum.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "base/wire.h"
#include "worker/elastic/state_blocks.h"
#include "worker/process/errors.h"

namespace hvd::worker {

using elastic::CommitMode;

namespace {

constexpr std::size_t kPage = std::size_t{4} << 10;  // the smallest anywhere
constexpr std::size_t kLargePage = std::size_t{2} << 20;

// Throws the refusal of a GPU; like an exception of the handlers it goes to the program.
void must(const Status& done) {
  if (!done.ok()) std::rethrow_exception(exception_of({done}));
}

std::align_val_t alignment_of(std::size_t capacity) {
  return std::align_val_t{capacity < kLargePage ? alignof(std::max_align_t) : kLargePage};
}

std::size_t whole_pages(std::size_t size) {
  return (size + kLargePage - 1) / kLargePage * kLargePage;
}

}  // namespace

void Buffer::resize(std::size_t size) {
  if (size > capacity_) {
    if (size > std::numeric_limits<std::ptrdiff_t>::max() - kLargePage) throw std::bad_alloc();
    if (region_.file >= 0) return map(size);
    clear();
    const std::size_t whole = whole_pages(size);
    capacity_ = size < kLargePage ? size : whole;
    bytes_ = static_cast<std::byte*>(::operator new(capacity_, alignment_of(capacity_)));
    // Where it is refused it is as it always was.
    if (capacity_ >= kLargePage) ::madvise(bytes_, capacity_, MADV_HUGEPAGE);
  }
  size_ = size;
}

void Buffer::touch(std::size_t begin, std::size_t end) {
  begin -= begin % kPage;
  for (std::size_t at = begin; at < std::min(end, capacity_); at += kPage) bytes_[at] = {};
}

// A page that is touched before the machine has given it may be the end of the process (SIGBUS).
void Buffer::map(std::size_t size) {
  clear();
  if (size == 0) return;
  const std::size_t whole = whole_pages(size);
  const auto begin = static_cast<off_t>(region_.begin);
  if (::fallocate(region_.file, 0, begin, static_cast<off_t>(whole)) != 0) throw std::bad_alloc();
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* const at = ::mmap(nullptr, whole, kAccess, MAP_SHARED, region_.file, begin);
  if (at == MAP_FAILED) throw std::bad_alloc();
  bytes_ = static_cast<std::byte*>(at);
  capacity_ = whole;
  size_ = size;
}

void Buffer::clear() {
  if (bytes_ != nullptr && region_.file >= 0) ::munmap(bytes_, capacity_);
  if (bytes_ != nullptr && region_.file < 0) ::operator delete(bytes_, alignment_of(capacity_));
  bytes_ = nullptr;
  size_ = capacity_ = 0;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(region_, other.region_);
  std::swap(bytes_, other.bytes_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Status Store::check_name(const std::string& name) const {
  if (name.empty()) return {Code::invalid_argument, "State::add(): the name is empty"};
  auto names = device_.names();
  for (const auto& part : parts_) names.push_back(part.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) return {};
  return {Code::invalid_argument,
          cat("State::add(): \"", name, "\" was added before; each name can stand only once")};
}

Status Store::add(const std::string& name, const TensorView& tensor) {
  HVD_RETURN_IF_ERROR(check_name(name));
  return device_.add(name, tensor);
}

Status Store::add(const std::string& name, elastic::Handler handler) {
  HVD_RETURN_IF_ERROR(check_name(name));
  if (!handler.bytes || !handler.save || !handler.load) {
    return {Code::invalid_argument,
            cat("State::add(): the handler of \"", name, "\" lacks one of its three functions")};
  }
  parts_.push_back({name, std::move(handler)});
  return {};
}

std::uint64_t Store::shape() const {
  WireWriter description;
  description.u8(mode_ == CommitMode::mark ? 1 : 0);
  for (const auto& part : parts_) description.str(part.name);
  for (const auto& name : device_.names()) description.str(cat("on a GPU: ", name));
  return checksum_of(std::as_bytes(std::span(description.bytes())));
}

std::uint64_t Store::bytes() const {
  if (mode_ == CommitMode::copy && !states_.buffer()) return 0;
  const auto of_host = sizes();
  return std::accumulate(of_host.begin(), of_host.end(), device_.bytes());
}

std::uint64_t Store::sizes_digest() const {
  const auto of_host = sizes();
  return checksum_of(std::as_bytes(std::span(of_host)));
}

std::vector<std::uint64_t> Store::sizes() const {
  if (mode_ == CommitMode::copy) {
    const auto newest = states_.buffer();
    return newest ? copies_[*newest].sizes : std::vector<std::uint64_t>();
  }
  std::vector<std::uint64_t> sizes;
  measure(sizes);
  return sizes;
}

std::size_t Store::measure(std::vector<std::uint64_t>& sizes) const {
  sizes.clear();
  for (const auto& part : parts_) sizes.push_back(part.handler.bytes());
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

void Store::make_room() {
  std::vector<std::uint64_t> sizes;
  const std::size_t total = measure(sizes);
  const std::size_t copies = mode_ == CommitMode::copy ? copies_.size() : 1;
  for (std::size_t at = 0; at < copies; ++at) {
    if (mode_ == CommitMode::copy && states_.buffer() == at) continue;
    copies_[at].bytes.resize(total);
    copies_[at].bytes.touch(0, total);
    must(device_.make_room(at));
  }
  save_own();  // last, since its failure costs only the comparison
}

void Store::save_own() { save_into(to_receive()); }

void Store::save_into(Copy& copy) {
  copy.sizes.clear();
  std::vector<std::uint64_t> sizes;
  copy.bytes.resize(measure(sizes));
  std::size_t offset = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].handler.save(copy.bytes.bytes().subspan(offset, sizes[i]));
    offset += sizes[i];
  }
  copy.sizes = std::move(sizes);
}

void Store::copy_into(Copy& copy) {
  save_into(copy);
  must(device_.keep(number_of(copy)));
}

void Store::keep(const CommitId& id) {
  if (mode_ == CommitMode::copy) copy_into(copies_[spare()]);
  has(id);
}

const Copy& Store::to_send() {
  if (mode_ == CommitMode::copy) return copies_[states_.buffer().value_or(0)];
  copy_into(copies_[0]);
  return copies_[0];
}

void Store::copy_newest(Copy& copy) {
  const auto newest = states_.buffer();
  if (mode_ == CommitMode::mark || !newest) return save_into(copy);
  const Copy& from = copies_[*newest];
  copy.sizes = from.sizes;
  copy.bytes.resize(from.bytes.size());
  elastic::detail::copy_bytes(copy.bytes.bytes(), from.bytes.bytes().data());
}

Copy& Store::to_receive() { return mode_ == CommitMode::copy ? copies_[spare()] : copies_[0]; }

void Store::take_over(const CommitId& id) {
  if (mode_ == CommitMode::copy) {
    has(id);
    load();
    return;
  }
  states_.mutate_begins();
  load_from(copies_[0]);
  states_.kept(id);
}

Buffer* Store::idle(bool receives) {
  if (mode_ == CommitMode::mark) return nullptr;
  const std::size_t free = spare();
  if (!receives) return &copies_[free].bytes;
  return states_.buffer() ? nullptr : &copies_[1 - free].bytes;
}

void Store::let_go() {
  if (mode_ != CommitMode::mark) return;
  copies_[0] = {};
  device_.let_go(0);
}

void Store::load() {
  const auto newest = states_.buffer();
  if (mode_ == CommitMode::copy && newest) load_from(copies_[*newest]);
}

void Store::mutate(const std::function<void()>& change) {
  if (mode_ == CommitMode::copy) return change();
  states_.mutate_begins();
  change();
  states_.mutate_ends();
}

void Store::load_from(const Copy& copy) {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    try {
      parts_[i].handler.load(copy.bytes.bytes().subspan(offset, copy.sizes[i]));
    } catch (const InvalidArgumentError& error) {
      throw InvalidArgumentError(cat("the state's \"", parts_[i].name, "\": ", error.what()));
    }
    offset += copy.sizes[i];
  }
  must(device_.load(number_of(copy)));
}

void Store::forget() {
  states_ = {};
  for (Copy& copy : copies_) {
    copy.sizes.clear();
    copy.bytes.clear();
  }
  device_.forget();
}

// ---- in the memory of the agent ----

Result<std::optional<StateMemory::Entry>> Store::keep_in(StateMemory& memory, std::uint64_t run) {
  if (mode_ != CommitMode::copy) {
    return Status(Code::invalid_argument, "its commits are only marked (CommitMode::mark)");
  }
  if (!device_.empty()) return Status(Code::invalid_argument, "it has tensors of a GPU");
  forget();
  std::array<std::optional<StateMemory::Entry>, 2> found;
  const auto id_of = [&found](std::size_t at) { return found[at] ? found[at]->id : CommitId(); };
  for (std::size_t at = 0; at < found.size(); ++at) {
    found[at] = memory.read(at);
    // What a later run of the program has kept waits for it.
    if (found[at] && found[at]->id.run > run) return std::optional<StateMemory::Entry>();
    const bool is_of_use = found[at] && found[at]->id.run == run && found[at]->shape == shape() &&
                           found[at]->sizes.size() == parts_.size();
    if (!is_of_use) found[at].reset();
  }
  const std::size_t newest = id_of(0) < id_of(1) ? 1 : 0;
  memory_ = std::move(memory);
  copies_[0].bytes = Buffer(memory_->region(newest));
  copies_[1].bytes = Buffer(memory_->region(1 - newest));
  entries_ = {newest, 1 - newest};
  if (!found[newest]) return std::optional<StateMemory::Entry>();
  const auto total = total_of(found[newest]->sizes);
  HVD_RETURN_IF_ERROR(total.status());
  const std::size_t at = states_.begin_to_keep();
  copies_[at].bytes.map(*total);
  copies_[at].sizes = found[newest]->sizes;
  states_.kept(found[newest]->id);
  step_ = found[newest]->step;
  return found[newest];
}

UniqueFd Store::leave_memory() {
  if (!memory_) return {};
  states_ = {};
  copies_ = {};
  UniqueFd file = memory_->release();
  memory_.reset();
  return file;
}

std::size_t Store::spare() {
  const std::size_t spare = states_.begin_to_keep();
  if (memory_) must(memory_->make_void(entries_[spare]));
  return spare;
}

void Store::has(const CommitId& id) {
  states_.kept(id);
  if (!memory_) return;
  const std::size_t at = states_.buffer().value_or(0);
  must(memory_->write(entries_[at], {id, shape(), step_, copies_[at].sizes}));
}

Store Store::of_the_same_objects() const {
  Store other(CommitMode::copy, device_.of_the_same_tensors());
  other.parts_ = parts_;
  return other;
}

std::uint64_t Store::checksum() {
  const Copy& copy = to_send();
  Checksum checksum;
  checksum.add(copy.bytes.bytes());
  if (!device_.empty()) {
    const auto digest = device_.digest(number_of(copy));
    must(digest.status());
    checksum.add(std::as_bytes(std::span(&*digest, 1)));
  }
  let_go();
  return checksum.value();
}

std::vector<std::pair<std::string, std::string>> Store::digests() {
  const Copy& copy = to_send();
  std::vector<std::pair<std::string, std::string>> digests;
  std::size_t offset = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto bytes = copy.bytes.bytes().subspan(offset, copy.sizes[i]);
    const auto digest = sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    digests.emplace_back(parts_[i].name, to_hex(as_view(digest)));
    offset += copy.sizes[i];
  }
  auto of_device = device_.digests(number_of(copy));
  must(of_device.status());
  for (auto& digest : *of_device) digests.push_back(std::move(digest));
  let_go();
  return digests;
}

}  // namespace hvd::worker
