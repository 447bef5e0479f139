#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <hvd/error.h>
#include <hvd/gradient_reducer.h>
#include <hvd/types.h>

#include "base/forced_unwind.h"
#include "runtime/core/arithmetic.h"
#include "worker/gradient_list.h"
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
using worker::refuse_gradient;
using worker::Room;
using worker::SparseRows;

// A reduction would only take turns with the backward pass that is under way: many small ones take
// more time than few large ones after it. A GPU computes on meanwhile.
bool is_deferred(const Gradient& gradient) {
  const auto world = worker::ProcessWorld::instance().world();
  return world && !world->overlaps_computation() && gradient.tensor.device.is_host();
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

}  // namespace

class GradientReducer::Impl {
 public:
  explicit Impl(GradientReducerOptions options);

  std::size_t add(std::string name, const TensorView& gradient, bool sparse);
  std::size_t size() const;
  std::size_t index_of(std::string_view name) const;
  void ready(std::size_t index, const std::shared_ptr<ReadyEvent>& event,
             const SparseGradient* rows);
  void synchronize();
  bool synchronized() const;
  SparseGradient reduced(std::size_t index) const;
  void next_step(bool zero);
  void rebind(std::size_t index, void* data);
  void set_passes(int passes);
  int passes() const;
  void reset();

 private:
  enum class Step { collecting, synchronizing, synchronized };

  // All below: under mutex_.
  const GradientReducerOptions& options() const { return list_.options(); }
  void begin_next_step(std::string_view call);
  void zero(const Gradient& gradient) const;
  void complete(std::size_t index);
  void send_missing();
  void send_deferred();
  void send_with_group(std::size_t index);
  void send(Gradient& gradient);
  void send_rows(Gradient& gradient);
  void send(const GradientGroup& group);
  Submission submission_of(Gradient& gradient) const;
  void collect_rows();
  void forget_step();

  mutable std::mutex mutex_;
  GradientList list_;
  int passes_;
  Step step_ = Step::collecting;
  std::size_t complete_ = 0;          // gradients in this step
  std::deque<std::size_t> deferred_;  // complete with their groups, and not sent yet
  std::vector<std::shared_ptr<Pending>> in_flight_;
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

void GradientReducer::Impl::ready(std::size_t index, const std::shared_ptr<ReadyEvent>& event,
                                  const SparseGradient* rows) {
  const std::lock_guard lock(mutex_);
  auto& gradient = list_.at(index);
  if (step_ == Step::synchronizing) {
    refuse_gradient("\"", gradient.name, "\" is ready while synchronize() has not returned");
  }
  if ((rows != nullptr) != gradient.sparse) {
    refuse_gradient("\"", gradient.name, "\" was added as a ", gradient.sparse ? "sparse" : "dense",
                    " gradient");
  }
  if (step_ == Step::collecting && gradient.complete) {
    refuse_gradient("\"", gradient.name, "\" is ready for the ", passes_ + 1,
                    ". time in one step, of which backward_passes_per_step allows ", passes_,
                    ": synchronize() comes first");
  }

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

  step_ = Step::collecting;
  if (event) gradient.events.push_back(event);
  if (++gradient.passes < passes_) return;

  try {
    complete(index);
  } catch (...) {
    --gradient.passes;
    if (event) gradient.events.pop_back();
    if (gradient.sparse) gradient.rows->keep_first(rows_before);
    throw;
  }
}

// The last gradient of a step takes along those that wait: so all gradients of a step are sent
// before synchronize(), unless one has had no pass.
void GradientReducer::Impl::complete(std::size_t index) {
  auto& gradient = list_.at(index);
  GradientGroup* const group =
      gradient.group == worker::kNoGroup ? nullptr : &list_.group(gradient.group);
  if (!group || group->incomplete == 1) {
    deferred_.push_back(index);
    const bool is_last = complete_ + 1 == list_.all().size();
    try {
      if (is_last || !is_deferred(gradient)) send_deferred();
    } catch (...) {
      deferred_.pop_back();
      throw;
    }
  }
  if (group) --group->incomplete;
  gradient.complete = true;
  ++complete_;
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
  send(group);
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

Submission GradientReducer::Impl::submission_of(Gradient& gradient) const {
  if (gradient.sparse || gradient.passes == 0) zero(gradient);
  if (gradient.sparse) gradient.rows->add_to(gradient.tensor.data);
  Submission work;
  work.collective = Collective::allreduce;
  work.name = list_.full_name(gradient);
  work.input = gradient.tensor;
  work.output = gradient.tensor;
  work.op = options().op;
  work.prescale = 1 / options().gradient_predivide_factor;
  work.postscale = options().gradient_predivide_factor;
  if (options().average_over_passes) work.prescale /= passes_;
  work.compression = options().compression;
  work.process_set = options().process_set;
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
  for (const auto member : group.members) works.push_back(submission_of(list_.all()[member]));
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

void GradientReducer::Impl::send_missing() {
  for (std::size_t i = 0; i < list_.all().size(); ++i) {
    if (!list_.all()[i].complete) complete(i);
  }
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
    if (options().op == Average && parts[1].contributors > 0) {
      runtime::divide(type, gradient.values.data(), count, parts[1].contributors);
    }
  }
}

void GradientReducer::Impl::synchronize() {
  std::unique_lock lock(mutex_);
  if (step_ == Step::synchronizing) refuse_gradient("another thread is in synchronize()");
  if (step_ == Step::synchronized) {
    refuse_gradient(
        "synchronize() was called in this step already, and no gradient is ready since; if this "
        "rank has none in the next step, call next_step()");
  }

  list_.close();
  std::exception_ptr error;
  try {
    send_missing();
  } catch (...) {
    if (thread_is_ending()) throw;
    error = std::current_exception();
  }

  step_ = Step::synchronizing;
  const auto flights = in_flight_;
  lock.unlock();
  for (const auto& flight : flights) {
    try {
      flight->wait();
    } catch (...) {
      if (thread_is_ending()) throw;
      if (!error) error = std::current_exception();
    }
  }

  lock.lock();
  if (!error) {
    try {
      collect_rows();
    } catch (...) {  // no memory, say
      if (thread_is_ending()) throw;
      error = std::current_exception();
    }
  }

  if (error) {
    forget_step();
    std::rethrow_exception(error);
  }
  in_flight_.clear();
  step_ = Step::synchronized;
}

bool GradientReducer::Impl::synchronized() const {
  const std::lock_guard lock(mutex_);
  return step_ == Step::synchronized;
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
  in_flight_.clear();
  step_ = Step::collecting;
}

void GradientReducer::Impl::begin_next_step(std::string_view call) {
  if (step_ == Step::synchronizing)
    refuse_gradient(call, "() while synchronize() has not returned");
  if (step_ == Step::collecting) {
    for (const auto& gradient : list_.all()) {
      if (gradient.passes == 0) continue;
      refuse_gradient(call, "(): \"", gradient.name,
                      "\" is ready, but not synchronized: synchronize() or reset() comes first");
    }
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
  if (step_ == Step::synchronizing || (step_ == Step::collecting && gradient.complete)) {
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
  std::unique_lock lock(mutex_);
  if (step_ == Step::synchronizing) refuse_gradient("reset() while synchronize() has not returned");
  step_ = Step::synchronizing;
  const auto flights = in_flight_;
  lock.unlock();
  for (const auto& flight : flights) {
    try {
      flight->wait();
    } catch (const Error&) {  // the caller of reset() knows of it
    } catch (const HostsUpdated&) {
    }
  }
  lock.lock();
  forget_step();
}

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
  impl_->ready(index, event, nullptr);
}
void GradientReducer::ready(std::string_view name, const std::shared_ptr<ReadyEvent>& event) {
  impl_->ready(impl_->index_of(name), event, nullptr);
}
void GradientReducer::ready(std::size_t index, const SparseGradient& gradient) {
  impl_->ready(index, nullptr, &gradient);
}
void GradientReducer::ready(std::string_view name, const SparseGradient& gradient) {
  impl_->ready(impl_->index_of(name), nullptr, &gradient);
}

void GradientReducer::synchronize() { impl_->synchronize(); }
bool GradientReducer::synchronized() const { return impl_->synchronized(); }
SparseGradient GradientReducer::reduced(std::size_t index) const { return impl_->reduced(index); }
void GradientReducer::next_step() { impl_->next_step(false); }
void GradientReducer::zero_gradients() { impl_->next_step(true); }
void GradientReducer::rebind(std::size_t index, void* data) { impl_->rebind(index, data); }
void GradientReducer::set_backward_passes_per_step(int passes) { impl_->set_passes(passes); }
int GradientReducer::backward_passes_per_step() const { return impl_->passes(); }
void GradientReducer::reset() { impl_->reset(); }

}  // namespace hvd
