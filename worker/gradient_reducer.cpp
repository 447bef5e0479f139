#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <hvd/error.h>
#include <hvd/gradient_reducer.h>
#include <hvd/types.h>

#include "base/clock.h"
#include "base/threads.h"
#include "runtime/core/arithmetic.h"
#include "worker/gradient_list.h"
#include "worker/gradient_pack.h"
#include "worker/process/process_world.h"
#include "worker/sparse_rows.h"
#include "worker/submissions.h"

namespace hvd {
namespace {

using adapter::Submission;
using detail::Pending;
using worker::Gradient;
using worker::GradientGroup;
using worker::GradientList;
using worker::GradientPack;
using worker::is_alike;
using worker::refuse_gradient;
using worker::Room;
using worker::SparseRows;

// A reduction would only take turns with the backward pass that is under way: many small ones take
// more time than few large ones after it. A GPU computes on meanwhile.
bool is_deferred(const Gradient& gradient) {
  const auto world = worker::ProcessWorld::instance().world();
  return world && !world->overlaps_computation() && gradient.tensor.device.is_host();
}

bool may_pack() {
  const auto world = worker::ProcessWorld::instance().world();
  return world && world->may_pack();
}

// Several ready events as one: the passes of a step may each end on a stream of their own.
class AllReady final : public ReadyEvent {
 public:
  explicit AllReady(std::vector<std::shared_ptr<ReadyEvent>> events) : events_(std::move(events)) {}
  bool ready() const override {
    return std::all_of(events_.begin(), events_.end(),
                       [](const auto& event) { return event->ready(); });
  }
  void wait() override {
    for (const auto& event : events_) event->wait();
  }

 private:
  std::vector<std::shared_ptr<ReadyEvent>> events_;
};

// How far a step has come.
//
//   collecting  ready() takes gradients, and sends those that are complete
//   agreeing    the ranks tell each other what they have
//   filling     this rank knows what it lacks: ready() takes that
//   reducing    all is sent
//   synchronized
enum class Step { collecting, agreeing, filling, reducing, synchronized };

// Which gradients a rank has, and its mark (GradientPack). Kept alive by the collective that makes
// them those of all ranks.
using Flags = std::vector<std::uint8_t>;

}  // namespace

class GradientReducer::Impl {
 public:
  explicit Impl(GradientReducerOptions options);

  std::size_t add(std::string name, const TensorView& gradient, bool sparse);
  std::size_t size() const;
  std::size_t index_of(std::string_view name) const;
  // Null: the memory that was named before; the gradient is not one of rows.
  void ready(std::size_t index, const TensorView* where, const std::shared_ptr<ReadyEvent>& event,
             const SparseGradient* rows);
  bool missing_until(TimePoint deadline, std::vector<std::size_t>& indices);
  bool synchronize_until(TimePoint deadline);
  bool synchronized() const;
  bool present(std::size_t index) const;
  bool in_flight() const;
  SparseGradient reduced(std::size_t index) const;
  void next_step(bool zero);
  void rebind(std::size_t index, void* data);
  void set_passes(int passes);
  int passes() const;
  void reset();

 private:
  using Lock = std::unique_lock<std::mutex>;
  class Turn;

  // All below: under mutex_.
  const GradientReducerOptions& options() const { return list_.options(); }
  void begin_next_step(std::string_view call);
  void check_is_wanted(const Gradient& gradient) const;
  void zero(const Gradient& gradient) const;
  void complete(std::size_t index);
  void leave_out(std::size_t index);
  void begin_agreement();
  bool agree_until(TimePoint deadline, Lock& lock);
  void agree_on_pack();
  bool packs();
  void let_packable_go();
  void send_missing();
  void send_pack();
  bool reduce_until(TimePoint deadline, Lock& lock);
  void send_deferred();
  void send_with_group(std::size_t index);
  void send(Gradient& gradient);
  void send_rows(Gradient& gradient);
  void send(const GradientGroup& group);
  Submission reduction_of(const TensorView& tensor) const;
  Submission submission_of(Gradient& gradient) const;
  void collect_rows();
  void keep_first_error();
  void forget_step();
  void forget_failed_step();

  mutable std::mutex mutex_;
  GradientList list_;
  int passes_;
  Step step_ = Step::collecting;
  bool has_caller_ = false;           // a thread waits for the step
  std::size_t complete_ = 0;          // gradients in this step
  std::deque<std::size_t> deferred_;  // complete with their groups, and not sent yet
  std::optional<bool> packs_;         // packable ones wait for the agreement, or are packed
  GradientPack pack_;
  std::shared_ptr<Flags> flags_;  // of this rank until the agreement, then of all ranks
  std::shared_ptr<Pending> agreement_;
  std::vector<std::shared_ptr<Pending>> in_flight_;
  std::exception_ptr error_;  // the first of this step
};

GradientReducer::Impl::Impl(GradientReducerOptions options)
    : list_(std::move(options)), passes_(list_.options().backward_passes_per_step) {}

std::size_t GradientReducer::Impl::size() const {
  const std::lock_guard lock(mutex_);
  return list_.all().size();
}

std::size_t GradientReducer::Impl::add(std::string name, const TensorView& tensor, bool sparse) {
  const std::lock_guard lock(mutex_);
  return list_.add(std::move(name), tensor, sparse);
}

std::size_t GradientReducer::Impl::index_of(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return list_.index_of(name);
}

void GradientReducer::Impl::check_is_wanted(const Gradient& gradient) const {
  if (step_ == Step::agreeing || step_ == Step::reducing) {
    refuse_gradient("\"", gradient.name, "\" is ready while synchronize() has not returned");
  }
  if (step_ == Step::synchronized || !gradient.complete) return;
  if (step_ == Step::filling) {
    refuse_gradient("\"", gradient.name, "\" is not one that other ranks have and this one lacks");
  }
  refuse_gradient("\"", gradient.name, "\" is ready for the ", passes_ + 1,
                  ". time in one step, of which backward_passes_per_step allows ", passes_,
                  ": synchronize() comes first");
}

void GradientReducer::Impl::ready(std::size_t index, const TensorView* where,
                                  const std::shared_ptr<ReadyEvent>& event,
                                  const SparseGradient* rows) {
  const std::lock_guard lock(mutex_);
  auto& gradient = list_.at(index);
  check_is_wanted(gradient);
  if ((rows != nullptr) != gradient.sparse) {
    refuse_gradient("\"", gradient.name, "\" was added as a ", gradient.sparse ? "sparse" : "dense",
                    " gradient");
  }
  if (where != nullptr) {
    if (step_ == Step::filling && packs() && gradient.packable &&
        !is_alike(*where, gradient.tensor)) {
      refuse_gradient("\"", gradient.name, "\" is not as other ranks have it");
    }
    list_.move(gradient, *where);
  }
  list_.check_memory(gradient);

  list_.close();
  const bool first_of_step = step_ == Step::synchronized;
  const std::size_t rows_before = gradient.sparse && !first_of_step ? gradient.rows->count() : 0;
  if (rows != nullptr) {
    // The old rows may still be read: the new step has some of its own.
    auto checked = first_of_step
                       ? std::make_shared<SparseRows>(gradient.tensor.shape, gradient.tensor.type)
                       : gradient.rows;
    checked->append(*rows, gradient.name);
    if (first_of_step) forget_step();
    gradient.rows = std::move(checked);
  } else if (first_of_step) {
    forget_step();
  }

  if (event) gradient.events.push_back(event);
  // What the other ranks have sent already waits for no further pass.
  if (++gradient.passes < passes_ && step_ != Step::filling) return;

  try {
    complete(index);
  } catch (...) {
    --gradient.passes;
    if (event) gradient.events.pop_back();
    if (gradient.sparse) gradient.rows->keep_first(rows_before);
    throw;
  }
}

// Whether this step packs what can be packed, as far as this rank knows before the agreement.
bool GradientReducer::Impl::packs() {
  if (!packs_) packs_ = may_pack() && list_.digest_of_packable().has_value();
  return *packs_;
}

// The last gradient of a step takes along those that wait: so all gradients of a step are sent
// before synchronize(), unless one has had no pass, or is packed.
void GradientReducer::Impl::complete(std::size_t index) {
  auto& gradient = list_.at(index);
  GradientGroup* const group =
      gradient.group == worker::kNoGroup ? nullptr : &list_.group(gradient.group);
  // An event is for the collective to wait for. After the agreement the pack waits for it.
  if (step_ == Step::collecting && gradient.packable && !gradient.events.empty() && packs()) {
    let_packable_go();
  }
  const bool may_go = !(gradient.packable && packs()) && (!group || group->incomplete == 1);
  if (may_go) deferred_.push_back(index);
  const bool is_last = complete_ + 1 == list_.all().size();
  try {
    if (is_last || (may_go && !is_deferred(gradient))) send_deferred();
  } catch (...) {
    if (may_go) deferred_.pop_back();
    throw;
  }
  if (group) --group->incomplete;
  gradient.complete = true;
  ++complete_;
}

// No rank has it. Its group may have waited for it alone.
void GradientReducer::Impl::leave_out(std::size_t index) {
  auto& gradient = list_.at(index);
  gradient.left_out = true;
  gradient.complete = true;
  // That of a sparse one holds what rows add up to.
  if (gradient.as_rows) {
    gradient.forget_rows();
  } else if (gradient.sparse) {
    zero(gradient);
  }
  ++complete_;
  if (gradient.group == worker::kNoGroup) return;
  if (--list_.group(gradient.group).incomplete == 0) deferred_.push_back(index);
}

void GradientReducer::Impl::send_deferred() {
  for (; !deferred_.empty(); deferred_.pop_front()) send_with_group(deferred_.front());
}

// With it all of its group, if it has one.
void GradientReducer::Impl::send_with_group(std::size_t index) {
  auto& gradient = list_.at(index);
  if (gradient.group == worker::kNoGroup) {
    send(gradient);
    gradient.events.clear();  // the submission has them
    return;
  }
  const auto& group = list_.group(gradient.group);
  send(group);  // nothing of one that no rank has
  for (const auto member : group.members) list_.all()[member].events.clear();
}

void GradientReducer::Impl::zero(const Gradient& gradient) const {
  const auto& tensor = gradient.tensor;
  if (tensor.data == nullptr) return;
  if (options().fill_zeros) {
    options().fill_zeros(tensor);
  } else {
    std::memset(tensor.data, 0, tensor.bytes());
  }
}

// In place.
Submission GradientReducer::Impl::reduction_of(const TensorView& tensor) const {
  Submission work;
  work.collective = Collective::allreduce;
  work.input = tensor;
  work.output = tensor;
  work.op = options().op;
  work.prescale = 1 / options().gradient_predivide_factor;
  work.postscale = options().gradient_predivide_factor;
  if (options().average_over_passes) work.prescale /= passes_;
  if (options().shards > 0) {
    work.op = Sum;
    work.postscale /= options().shards;
  }
  work.compression = options().compression;
  work.process_set = options().process_set;
  return work;
}

Submission GradientReducer::Impl::submission_of(Gradient& gradient) const {
  if (gradient.sparse || gradient.passes == 0) zero(gradient);
  if (gradient.sparse) gradient.rows->add_to(gradient.tensor.data);
  auto work = reduction_of(gradient.tensor);
  work.name = list_.full_name(gradient);
  if (gradient.events.size() == 1) {
    work.ready = gradient.events.front();
  } else if (!gradient.events.empty()) {
    work.ready = std::make_shared<AllReady>(gradient.events);
  }
  return work;
}

void GradientReducer::Impl::send(Gradient& gradient) {
  if (gradient.as_rows) return send_rows(gradient);
  in_flight_.push_back(
      worker::start(submission_of(gradient), list_.full_name(gradient), Room::given));
}

void GradientReducer::Impl::send(const GradientGroup& group) {
  std::vector<Submission> works;
  works.reserve(group.members.size());
  for (const auto member : group.members) {
    auto& gradient = list_.all()[member];
    if (!gradient.left_out) works.push_back(submission_of(gradient));
  }
  if (works.empty()) return;
  in_flight_.push_back(
      worker::start_group(std::move(works), group.name, "grouped_allreduce", Room::given));
}

void GradientReducer::Impl::send_rows(Gradient& gradient) {
  const auto name = list_.full_name(gradient);
  std::vector<Submission> works(2);
  works[0].input = gradient.rows->indices();
  works[0].name = name + ".indices";
  works[1].input = gradient.rows->values();
  works[1].name = name + ".values";
  for (auto& work : works) {
    work.collective = Collective::allgather;
    work.process_set = options().process_set;
  }
  auto pending = worker::start_group(std::move(works), name, "grouped_allgather", Room::made);
  // They are read until then, whatever becomes of the reducer.
  pending->on_done([rows = gradient.rows](const std::exception_ptr&) {});
  in_flight_.push_back(pending);
  gradient.gathering = std::move(pending);
}

void GradientReducer::Impl::collect_rows() {
  for (auto& gradient : list_.all()) {
    if (!gradient.gathering) continue;
    auto parts = gradient.gathering->take();
    gradient.indices = std::move(parts[0].tensor);
    gradient.values = std::move(parts[1].tensor);
    const auto count = static_cast<std::size_t>(gradient.values.elements());
    const auto type = gradient.values.type();
    if (options().average_over_passes) {
      runtime::divide(type, gradient.values.data(), count, passes_);
    }
    const int divisor = options().shards > 0 ? options().shards : parts[1].contributors;
    if (options().op == Average && divisor > 0) {
      runtime::divide(type, gradient.values.data(), count, divisor);
    }
  }
}

// --- the end of a step ---

// A thread that brings the step to its end, the only one at a time.
class GradientReducer::Impl::Turn {
 public:
  explicit Turn(Impl& reducer) : reducer_(reducer), lock_(reducer.mutex_) {
    if (reducer.has_caller_) refuse_gradient("another thread is in synchronize()");
    reducer.has_caller_ = true;
  }
  ~Turn() {
    if (!lock_.owns_lock()) lock_.lock();
    reducer_.has_caller_ = false;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Lock& lock() { return lock_; }

 private:
  Impl& reducer_;
  Lock lock_;
};

void GradientReducer::Impl::keep_first_error() {
  if (thread_is_ending()) throw;
  if (!error_) error_ = std::current_exception();
}

// What a rank has goes to all, as the largest of the flags: that also holds for those of ranks that
// have joined, which give none.
void GradientReducer::Impl::begin_agreement() {
  list_.close();
  flags_ = std::make_shared<Flags>();
  for (const auto& gradient : list_.all()) flags_->push_back(gradient.passes > 0 ? 1 : 0);
  const auto mark = GradientPack::mark(packs() ? list_.digest_of_packable() : std::nullopt);
  flags_->insert(flags_->end(), mark.begin(), mark.end());
  step_ = Step::agreeing;
  try {
    Submission work;
    work.collective = Collective::allreduce;
    work.input = work.output = TensorView(*flags_);
    work.op = Max;
    work.process_set = options().process_set;
    agreement_ = worker::start(std::move(work), options().name + ".<present>", Room::given);
    agreement_->on_done([flags = flags_](const std::exception_ptr&) {});
  } catch (...) {
    keep_first_error();
  }
}

bool GradientReducer::Impl::agree_until(TimePoint deadline, Lock& lock) {
  if (step_ == Step::synchronized) {
    refuse_gradient(
        "synchronize() was called in this step already, and no gradient is ready since; if this "
        "rank has none in the next step, call next_step()");
  }
  if (step_ == Step::collecting) begin_agreement();
  if (step_ != Step::agreeing) return true;
  if (agreement_) {
    lock.unlock();
    try {
      if (!agreement_->wait_until(deadline)) return false;
      lock.lock();
    } catch (...) {
      lock.lock();
      keep_first_error();
    }
  }
  step_ = error_ ? Step::reducing : Step::filling;
  if (!error_) agree_on_pack();
  return true;
}

// Without an agreement those that have waited for it go alone.
void GradientReducer::Impl::agree_on_pack() {
  if (!packs()) return;  // no rank does then
  if (!GradientPack::is_agreed(std::span(*flags_).subspan(list_.all().size()))) let_packable_go();
}

// Nothing is packed in this step.
void GradientReducer::Impl::let_packable_go() {
  packs_ = false;
  for (std::size_t i = 0; i < list_.all().size(); ++i) {
    const auto& gradient = list_.all()[i];
    if (gradient.packable && gradient.complete) deferred_.push_back(i);
  }
}

bool GradientReducer::Impl::missing_until(TimePoint deadline, std::vector<std::size_t>& indices) {
  Turn turn(*this);
  if (!agree_until(deadline, turn.lock())) return false;
  if (error_) {
    if (!reduce_until(deadline, turn.lock())) return false;
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
  indices.clear();
  if (step_ != Step::filling) return true;  // all that was missing is sent
  for (std::size_t i = 0; i < list_.all().size(); ++i) {
    if (list_.all()[i].passes == 0 && (*flags_)[i] != 0) indices.push_back(i);
  }
  return true;
}

void GradientReducer::Impl::send_missing() {
  for (std::size_t i = 0; i < list_.all().size(); ++i) {
    auto& gradient = list_.all()[i];
    if (gradient.complete) continue;
    if ((*flags_)[i] == 0) {
      leave_out(i);
    } else {
      list_.check_memory(gradient);
      complete(i);
    }
  }
  send_deferred();
  if (packs()) send_pack();
}

void GradientReducer::Impl::send_pack() {
  pack_.fill(list_);
  for (std::size_t i = 0; i < pack_.parts().size(); ++i) {
    const auto& part = pack_.parts()[i];
    const auto name = cat(options().name, ".<packed>.", i);
    in_flight_.push_back(worker::start(reduction_of(part->memory), name, Room::given));
    in_flight_.back()->on_done([part](const std::exception_ptr&) {});
  }
}

// False: something is in flight. An error is for the caller to throw.
bool GradientReducer::Impl::reduce_until(TimePoint deadline, Lock& lock) {
  const auto flights = in_flight_;
  lock.unlock();
  bool all_done = true;
  std::exception_ptr error;
  for (const auto& flight : flights) {
    try {
      all_done = flight->wait_until(deadline) && all_done;
    } catch (...) {
      if (thread_is_ending()) throw;
      if (!error) error = std::current_exception();
    }
  }
  lock.lock();
  if (!error_) error_ = error;
  if (!all_done) return false;
  if (error_) forget_failed_step();
  return true;
}

bool GradientReducer::Impl::synchronize_until(TimePoint deadline) {
  Turn turn(*this);
  if (!agree_until(deadline, turn.lock())) return false;
  if (step_ == Step::filling) {
    try {
      send_missing();
    } catch (...) {
      keep_first_error();
    }
    step_ = Step::reducing;
  }
  if (!reduce_until(deadline, turn.lock())) return false;
  if (!error_) {
    try {
      if (packs()) pack_.unpack(list_);
      collect_rows();
    } catch (...) {  // no memory, say
      keep_first_error();
      forget_failed_step();
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  in_flight_.clear();
  agreement_.reset();
  step_ = Step::synchronized;
  return true;
}

bool GradientReducer::Impl::synchronized() const {
  const std::lock_guard lock(mutex_);
  return step_ == Step::synchronized;
}

bool GradientReducer::Impl::present(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  const auto& gradient = list_.at(index);
  if (step_ != Step::synchronized) {
    refuse_gradient("\"", gradient.name,
                    "\": whether a rank has it is known between synchronize() and the next step");
  }
  return !gradient.left_out;
}

bool GradientReducer::Impl::in_flight() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [](const auto& flight) { return !flight->ready(); });
}

SparseGradient GradientReducer::Impl::reduced(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  const auto& gradient = list_.at(index);
  if (!gradient.as_rows) {
    refuse_gradient("\"", gradient.name, "\" is reduced in its own memory, not as rows");
  }
  if (step_ != Step::synchronized) {
    refuse_gradient("\"", gradient.name,
                    "\": there are rows only between synchronize() and the next step");
  }
  return {gradient.indices, gradient.values};
}

void GradientReducer::Impl::forget_step() {
  list_.forget_step();
  complete_ = 0;
  deferred_.clear();
  packs_.reset();
  in_flight_.clear();
  agreement_.reset();
  error_ = nullptr;
  step_ = Step::collecting;
}

// The error is left for the caller to throw.
void GradientReducer::Impl::forget_failed_step() {
  const auto first = error_;
  forget_step();
  error_ = first;
}

void GradientReducer::Impl::begin_next_step(std::string_view call) {
  if (step_ == Step::collecting) {
    for (const auto& gradient : list_.all()) {
      if (gradient.passes == 0) continue;
      refuse_gradient(call, "(): \"", gradient.name,
                      "\" is ready, but not synchronized: synchronize() or reset() comes first");
    }
  } else if (step_ != Step::synchronized) {
    refuse_gradient(call, "() while synchronize() has not returned");
  }
  forget_step();
}

void GradientReducer::Impl::next_step(bool zero_them) {
  const std::lock_guard lock(mutex_);
  begin_next_step(zero_them ? "zero_gradients" : "next_step");
  if (!zero_them) return;
  for (const auto& gradient : list_.all()) zero(gradient);
}

void GradientReducer::Impl::rebind(std::size_t index, void* data) {
  const std::lock_guard lock(mutex_);
  auto& gradient = list_.at(index);
  const bool is_collecting = step_ == Step::collecting || step_ == Step::filling;
  if (step_ != Step::synchronized && (!is_collecting || gradient.complete)) {
    refuse_gradient("\"", gradient.name,
                    "\" is in flight: it can be elsewhere after synchronize()");
  }
  if (data == nullptr && gradient.tensor.elements() != 0 && !gradient.as_rows) {
    refuse_gradient("\"", gradient.name, "\" needs memory (data is null)");
  }
  gradient.tensor.data = data;
}

void GradientReducer::Impl::set_passes(int passes) {
  const std::lock_guard lock(mutex_);
  if (passes < 1) refuse_gradient("backward_passes_per_step ", passes, ": it must be 1 or more");
  begin_next_step("set_backward_passes_per_step");
  passes_ = passes;
}

int GradientReducer::Impl::passes() const {
  const std::lock_guard lock(mutex_);
  return passes_;
}

void GradientReducer::Impl::reset() {
  Turn turn(*this);
  auto flights = in_flight_;
  if (step_ != Step::synchronized && agreement_) flights.push_back(agreement_);
  step_ = Step::reducing;
  turn.lock().unlock();
  for (const auto& flight : flights) {
    try {
      flight->wait();
    } catch (const Error&) {  // the caller of reset() knows of it
    } catch (const HostsUpdated&) {
    }
  }
  turn.lock().lock();
  forget_step();
}

// --- what users call ---

namespace {

TimePoint deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest =
      std::chrono::hours(24 * 365);  // the clock has an end
  return Clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest);
}

}  // namespace

GradientReducer::GradientReducer(GradientReducerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
GradientReducer::~GradientReducer() = default;

std::size_t GradientReducer::add(std::string name, const TensorView& gradient) {
  return impl_->add(std::move(name), gradient, false);
}
std::size_t GradientReducer::add_sparse(std::string name, const TensorView& gradient) {
  return impl_->add(std::move(name), gradient, true);
}
std::size_t GradientReducer::size() const { return impl_->size(); }
std::size_t GradientReducer::index_of(std::string_view name) const { return impl_->index_of(name); }

void GradientReducer::ready(std::size_t index, const std::shared_ptr<ReadyEvent>& event) {
  impl_->ready(index, nullptr, event, nullptr);
}
void GradientReducer::ready(std::string_view name, const std::shared_ptr<ReadyEvent>& event) {
  impl_->ready(impl_->index_of(name), nullptr, event, nullptr);
}
void GradientReducer::ready(std::size_t index, const TensorView& gradient,
                            const std::shared_ptr<ReadyEvent>& event) {
  impl_->ready(index, &gradient, event, nullptr);
}
void GradientReducer::ready(std::size_t index, const SparseGradient& gradient) {
  impl_->ready(index, nullptr, nullptr, &gradient);
}
void GradientReducer::ready(std::string_view name, const SparseGradient& gradient) {
  impl_->ready(impl_->index_of(name), nullptr, nullptr, &gradient);
}

bool GradientReducer::missing_for(std::chrono::milliseconds timeout,
                                  std::vector<std::size_t>& indices) {
  return impl_->missing_until(deadline_after(timeout), indices);
}
void GradientReducer::synchronize() { impl_->synchronize_until(kNever); }
bool GradientReducer::synchronize_for(std::chrono::milliseconds timeout) {
  return impl_->synchronize_until(deadline_after(timeout));
}
bool GradientReducer::present(std::size_t index) const { return impl_->present(index); }
bool GradientReducer::in_flight() const { return impl_->in_flight(); }
bool GradientReducer::synchronized() const { return impl_->synchronized(); }
SparseGradient GradientReducer::reduced(std::size_t index) const { return impl_->reduced(index); }
void GradientReducer::next_step() { impl_->next_step(false); }
void GradientReducer::zero_gradients() { impl_->next_step(true); }
void GradientReducer::rebind(std::size_t index, void* data) { impl_->rebind(index, data); }
void GradientReducer::set_backward_passes_per_step(int passes) { impl_->set_passes(passes); }
int GradientReducer::backward_passes_per_step() const { return impl_->passes(); }
void GradientReducer::reset() { impl_->reset(); }

}  // namespace hvd
