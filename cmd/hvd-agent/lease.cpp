#include "cmd/hvd-agent/lease.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <new>
#include <sys/mman.h>
#include <utility>

#include "base/text.h"

namespace hvd::agent {
namespace {

LeaseTime from_nanoseconds(std::int64_t count) {
  return LeaseTime(std::chrono::nanoseconds(count));
}

}  // namespace

LeaseTime LeaseClock::now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return LeaseTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

Lease::Lease(std::chrono::milliseconds length, LeaseTime ready_sent) : length_(length) {
  if (length_.count() > 0) runs_until_ = ready_sent + length_;
}

Status Lease::heartbeat(std::uint64_t sequence, std::uint64_t acknowledged, LeaseTime now) {
  if (sequence <= last_sequence_) {
    return {Code::data_loss, cat("heartbeat ", sequence, " came after heartbeat ", last_sequence_)};
  }
  if (acknowledged > last_sequence_) {
    return {Code::data_loss, cat("heartbeat ", sequence, " names answer ", acknowledged,
                                 ", but the last that was given is ", last_sequence_)};
  }
  while (!unnamed_.empty() && unnamed_.front().sequence <= acknowledged) {
    if (length_.count() > 0) runs_until_ = std::max(runs_until_, unnamed_.front().sent + length_);
    unnamed_.pop_front();
  }
  last_sequence_ = sequence;
  unnamed_.push_back({sequence, now});
  if (unnamed_.size() > kRemembered) unnamed_.pop_front();
  return {};
}

Result<SharedLease> SharedLease::create() {
  void* const memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Status::from_errno("share a page of memory", errno);
  SharedLease board(new (memory) Page{});
  board.write(Lease());
  return board;
}

SharedLease::SharedLease(SharedLease&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

SharedLease::~SharedLease() {
  if (page_ != nullptr) ::munmap(page_, sizeof(Page));
}

void SharedLease::begin(std::chrono::milliseconds orphan_timeout, pid_t local_driver) {
  page_->orphan_timeout = orphan_timeout;
  page_->local_driver = local_driver;
}

void SharedLease::write(const Lease& lease) {
  page_->runs_until = lease.runs_until().time_since_epoch().count();
}

void SharedLease::pause(bool paused) { page_->paused = paused; }

void SharedLease::note_heard() { ++page_->times_heard; }

bool SharedLease::take_frozen() { return page_->frozen.exchange(false); }

LeaseTime SharedLease::runs_until() const { return from_nanoseconds(page_->runs_until); }

void SharedLease::note_frozen() const { page_->frozen = true; }

}  // namespace hvd::agent
