#include <algorithm>
#include <utility>

#include <hvd/elastic.h>
#include <hvd/error.h>

#include "base/log.h"
#include "base/machine/bulk_copy.h"
#include "base/text.h"
#include "worker/elastic/state_impl.h"
#include "worker/process/errors.h"
#include "worker/process/settings.h"

namespace hvd::elastic {
namespace detail {

using worker::CommitProtocol;
using worker::ProcessWorld;

void copy_bytes(std::span<std::byte> into, const void* from) {
  if (!into.empty()) bulk_copy(into.data(), from, into.size());
}

void refuse_size(std::size_t bytes, std::size_t expected) {
  throw InvalidArgumentError(cat("another rank has ", bytes,
                                 " bytes of it, which do not fit here (", expected,
                                 " do); only vectors and strings may change in size"));
}

namespace {

// A step counts as done when the next one has begun (runtime/negotiation/tensor_queue.h).
constexpr std::uint64_t kUnderWay = 1;

worker::DeviceOptions device_options() {
  const auto limit = worker::on_device_limit(process_environment());
  if (!limit.ok()) throw InvalidArgumentError(cat("State: ", limit.status().message()));
  worker::DeviceOptions options;
  options.on_device_limit = *limit;
  return options;
}

worker::StateFile state_file() {
  auto settings = worker::state_file(process_environment());
  if (!settings.ok()) throw InvalidArgumentError(cat("State: ", settings.status().message()));
  return {.name = std::move(settings->file),
          .job = process_environment()("HVD_JOB_ID").value_or(""),
          .every = settings->every};
}

// The world that rank 0 has been told to go over to; empty: none.
std::string proposal() {
  auto* const membership = ProcessWorld::instance().membership();
  return membership == nullptr ? std::string() : membership->proposal();
}

}  // namespace

StateImpl::StateImpl(StateOptions options)
    : progress_(std::move(options), device_options(), state_file(), worker::Ledger::of_process()) {}

template <typename Object>
void StateImpl::add(const std::string& name, Object object) {
  if (running) {
    throw InvalidArgumentError(
        cat("State::add(): \"", name, "\" must be added before elastic::run()"));
  }
  const Status added = progress_.store().add(name, std::move(object));
  if (!added.ok()) throw InvalidArgumentError(added.message());
}

void StateImpl::raise(const runtime::Failure& failure, bool lost) const {
  auto& process = ProcessWorld::instance();
  if (failure.world_failed) {
    process.before_failure_is_thrown();
  } else if (failure.status.code() == Code::data_loss) {
    if (lost) throw CommittedStateLostError(failure.status.message());
    throw StateDivergedError(failure.status.message());
  }
  std::rethrow_exception(process.exception_of(failure, runtime::Kind::broadcast));
}

CommitProtocol StateImpl::protocol_of(const ProcessWorld::Generation& generation) {
  return {*generation.world, generation.number, generation.finished_runs, *generation.high_water};
}

ProcessWorld::Generation StateImpl::generation_of(std::string_view call) {
  if (!running) {
    throw InvalidArgumentError(cat("State::", call,
                                   "() can be called only while elastic::run() "
                                   "runs, from what it calls"));
  }
  at_commit_ = false;
  return ProcessWorld::instance().generation_for(cat("elastic::State::", call));
}

bool StateImpl::is_change_due(std::string_view call) {
  const auto generation = generation_of(call);
  auto protocol = protocol_of(generation);
  bool is_due = false;
  if (const auto failed = protocol.look(proposal, is_due); !failed.ok()) raise(failed);
  return is_due;
}

void StateImpl::commit(std::string_view call) {
  auto& process = ProcessWorld::instance();
  const auto generation = generation_of(call);
  auto* const membership = process.membership();
  auto protocol = protocol_of(generation);
  std::string next;

  if (const auto failed = progress_.commit(protocol, proposal, next); !failed.ok()) {
    raise(failed);
  }
  kept_steps_ = process.steps() + kUnderWay;
  if (next.empty() || membership == nullptr) return;

  if (worker::Membership::is_last(next)) {
    const auto report = [membership](const Status& saved) {
      if (saved.ok()) membership->agent().send_work();
      // Nobody else could keep it there either.
      if (!saved.ok() && saved.code() != Code::aborted) {
        (void)membership->agent().send_left(cat("it could not ", saved.message()), true);
      }
    };
    const auto suspended = progress_.suspend(protocol, process.save_meter(), report);
    if (!suspended.ok()) raise(suspended);
  }

  at_commit_ = true;
  process.entry_timer().world_ended(Clock::now());
  const Status told = membership->committed(next);
  if (!told.ok()) throw InternalError(cat("State::", call, "(): ", told.message()));
  // hvdrun has heard of the commit, so that it waits for this worker's end alone.
  if (membership->is_out()) {
    for (const auto& callback : notice_callbacks_) callback();
  }
  throw HostsUpdated(cat("State::", call, "(): the world changes here, as all ranks have agreed"));
}

void StateImpl::commit() {
  ProcessWorld::instance().entry_timer().step_ended(Clock::now());
  commit("commit");
}

void StateImpl::check_host_updates() {
  constexpr std::string_view kCall = "check_host_updates";
  if (is_change_due(kCall)) commit(kCall);
}

void StateImpl::sync() {
  const auto generation = ProcessWorld::instance().generation_for("elastic::State::sync");
  auto protocol = protocol_of(generation);
  if (const auto failed = progress_.sync(protocol); !failed.ok()) raise(failed);
}

void StateImpl::keep_in_agent() {
  auto& process = ProcessWorld::instance();
  UniqueFd file = process.take_state_memory();
  if (!file) return;
  auto memory = StateMemory::open(std::move(file));
  const Status kept = worker::status_of([&] {
    HVD_RETURN_IF_ERROR(memory.status());
    return progress_.keep_in(*memory, process.finished_runs());
  });
  if (memory.ok()) process.return_state_memory(memory->release());  // if it was not taken
  if (kept.ok()) return;
  HVD_LOG(warning, "the agent of this host does not keep the state (--keep-state-in-agents): "
                       << kept.message());
}

void StateImpl::leave_agent() {
  if (UniqueFd file = progress_.leave_memory()) {
    ProcessWorld::instance().return_state_memory(std::move(file));
  }
}

void StateImpl::make_room() {
  try {
    progress_.store().make_room();
  } catch (const std::exception& error) {
    // The objects may not be ready before a state was loaded into them: then all of it comes.
    HVD_LOG(debug, "the room for the state is not complete before it comes: " << error.what());
  }
}

worker::RunStatus StateImpl::begin(bool rolls_back) {
  at_commit_ = false;
  auto& process = ProcessWorld::instance();
  const auto generation = process.generation_for("elastic::run");
  auto protocol = protocol_of(generation);
  if (rolls_back && kept_steps_) {
    const std::uint64_t begun = process.steps() + kUnderWay;
    process.entry_timer().redoes(std::max(begun, *kept_steps_ + 1) - *kept_steps_);
  }
  const auto failed = progress_.begin(protocol, rolls_back, &process.entry_timer());
  if (!failed.ok()) raise(failed, progress_.is_lost());
  if (progress_.run_status() == worker::RunStatus::goes_on) {
    kept_steps_ = process.steps();
    process.expect_first_step();
  }
  return progress_.run_status();
}

void StateImpl::call_back() {
  for (const auto& callback : callbacks_) callback();
}

void StateImpl::finish() {
  auto& process = ProcessWorld::instance();
  const auto generation = process.generation_for("elastic::run");
  process.entry_timer().step_ended(Clock::now());
  auto protocol = protocol_of(generation);
  if (const auto failed = progress_.finish(protocol); !failed.ok()) raise(failed);
}

}  // namespace detail

State::State(StateOptions options) {
  if (options.compare_every < 0) {
    throw InvalidArgumentError(
        cat("StateOptions::compare_every is ", options.compare_every, "; 0 means never"));
  }
  impl_ = std::make_unique<detail::StateImpl>(std::move(options));
}
State::~State() = default;

void State::add_handler(const std::string& name, Handler handler) {
  impl_->add(name, std::move(handler));
}
void State::add_tensor(const std::string& name, const TensorView& tensor) {
  if (!tensor.device.is_host()) return impl_->add(name, tensor);
  const std::span bytes(static_cast<std::byte*>(tensor.data), tensor.bytes());
  impl_->add(name, detail::handler_of_span(bytes));
}
void State::commit() { impl_->commit(); }
void State::check_host_updates() { impl_->check_host_updates(); }
void State::restore() { impl_->restore(); }
void State::sync() { impl_->sync(); }
void State::on_reset(std::function<void()> callback) {
  if (!callback) throw InvalidArgumentError("State::on_reset(): there is no function to call");
  impl_->add_callback(std::move(callback));
}
void State::on_notice(std::function<void()> callback) {
  if (!callback) throw InvalidArgumentError("State::on_notice(): there is no function to call");
  impl_->add_notice_callback(std::move(callback));
}
void State::mutate(const std::function<void()>& change) {
  if (!change) throw InvalidArgumentError("State::mutate(): there is no function to call");
  impl_->mutate(change);
}

}  // namespace hvd::elastic
