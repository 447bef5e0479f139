#include "worker/elastic/state_saver.h"

#include <exception>

#include "base/log.h"
#include "base/text.h"
#include "worker/process/errors.h"

namespace hvd::worker {

StateSaver::~StateSaver() {
  give_up();
  wait();
}

bool StateSaver::is_due(TimePoint now) const {
  if (every_ == Duration::zero() || is_writing_) return false;
  return !last_ || now - *last_ >= every_;
}

void StateSaver::begin(Store& store, std::uint64_t step, TimePoint now) {
  wait();
  last_ = now;
  try {
    store.copy_newest(copy_);
  } catch (const std::exception& error) {
    return report({Code::internal, cat("copy the state for its file: ", error.what())});
  }
  is_given_up_ = false;
  is_writing_ = true;
  thread_.emplace();
  const Status started =
      thread_->start([this, shape = store.shape(), step] { write_copy(shape, step); });
  if (started.ok()) return;
  is_writing_ = false;
  report(started.with_context("write the state to its file"));
}

void StateSaver::write_copy(std::uint64_t shape, std::uint64_t step) {
  report(status_of([&] { return write_({shape, step, copy_}, is_given_up_); }));
  is_writing_ = false;
}

void StateSaver::report(const Status& saved) {
  if (saved.ok()) has_warned_ = false;
  if (saved.ok() || saved.code() == Code::aborted || std::exchange(has_warned_, true)) return;
  HVD_LOG(warning, "cannot " << saved.message() << "; the training goes on, and it is tried again "
                             << "every " << seconds_text(every_));
}

void StateSaver::give_up() {
  if (!is_writing_) return;
  is_given_up_ = true;
  last_.reset();
}

void StateSaver::wait() {
  if (thread_) thread_->join();
  thread_.reset();
}

void StateSaver::clear() {
  wait();
  copy_ = {};
}

}  // namespace hvd::worker
