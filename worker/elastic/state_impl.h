// The implementation of hvd::elastic::State: its progress, in the worlds of this process.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <hvd/elastic.h>

#include "worker/elastic/progress.h"
#include "worker/process/process_world.h"

namespace hvd::elastic::detail {

class StateImpl {
 public:
  // Throws InvalidArgumentError if what the environment says of it cannot be.
  explicit StateImpl(StateOptions options);
  static StateImpl& of(State& state) { return *state.impl_; }

  // A Handler, or a TensorView of a GPU.
  template <typename Object>
  void add(const std::string& name, Object object);
  void commit();
  void check_host_updates();
  // The first half of check_host_updates(); the same answer on all ranks. `call`: for errors.
  bool is_change_due(std::string_view call);
  void restore() { progress_.store().load(); }
  void sync();
  void mutate(const std::function<void()>& change) { progress_.mutate(change); }
  void add_callback(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }
  void add_notice_callback(std::function<void()> callback) {
    notice_callbacks_.push_back(std::move(callback));
  }

  // ---- of run() ----

  // A run has begun in this process, or is over: between that the state is kept in the memory that
  // the agent holds, if it holds any.
  void keep_in_agent();
  void leave_agent();
  // Before a joiner says that it is ready: the others train on meanwhile.
  void make_room();
  // The state is in place when it returns, and as all ranks of the new world have it; unless the
  // run does not go on.
  worker::RunStatus begin(bool rolls_back);
  bool has_inherited_end() const { return progress_.has_inherited_end(); }
  void call_back();
  void finish();
  void end_saving(bool gives_up) { progress_.end_saving(gives_up); }
  // This run has finished, as this rank has heard from the mark alone.
  void forget() { progress_.forget(); }
  // The objects are what was committed last: commit() has thrown HostsUpdated.
  bool is_at_commit() const { return at_commit_; }
  CommitId newest_commit() { return progress_.store().holds(); }
  bool running = false;

 private:
  void commit(std::string_view call);
  static worker::CommitProtocol protocol_of(const worker::ProcessWorld::Generation& generation);
  // For a call that is allowed only while run() runs.
  worker::ProcessWorld::Generation generation_of(std::string_view call);
  [[noreturn]] void raise(const runtime::Failure& failure, bool lost = false) const;

  worker::Progress progress_;
  std::vector<std::function<void()>> callbacks_;
  std::vector<std::function<void()>> notice_callbacks_;
  bool at_commit_ = false;
  // How many of the program's steps need not be done again. Nothing: it has not begun any.
  std::optional<std::uint64_t> kept_steps_;
};

}  // namespace hvd::elastic::detail
