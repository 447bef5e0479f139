// Executes responses in their order, each by the first operation that is enabled for it, and
// delivers the results to the entries' callbacks. One at a time: on its own thread, or, if the
// response is small, inline on an application thread that waits anyway, so that no thread has to be
// woken.
//
// A rank that has joined has no entries: placeholders without memory stand in for them, so that the
// operation takes this rank's part all the same. Joins and process sets need no operation: they are
// done once all ranks have agreed.
//
// When an operation fails because a connection broke, the cause is not known yet: the executor
// reports it once (on_broken) and waits for the world's verdict, which the callbacks then get.
// After a verdict nothing is executed any more; all entries get the verdict.
//
// What is complete in the fast lane (lane/lane.h) is added up and delivered by the thread that
// finds it, beside the order of the responses.
//
// Operations on a device are only begun here: the executor goes on to the next response, and the
// batch is delivered by the thread that notices its end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/core/request.h"
#include "runtime/core/verdict.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/ops/operation.h"
#include "runtime/trace/recorder.h"

namespace hvd::runtime {

class Executor {
 public:
  // Bytes of a response that may run inline. For a larger one the cost of waking a thread is
  // negligible, and that thread may have a core of its own.
  static constexpr std::size_t kInlineBytes = std::size_t{64} << 10;

  struct Hooks {
    std::function<void(const Status&)> on_broken;  // an operation failed
    std::function<void()> on_done;                 // a batch has ended that did not run inline
    std::function<void()> on_delivered;            // callbacks have returned
    trace::Recorder* recorder = nullptr;           // records all batches
    // WorldSpec::on_set_changed
    std::function<void(int, const std::vector<int>*, bool)> on_set = {};
    // The ranks do not agree on a call of this rank, or some do not make it.
    std::function<void(const Status&)> on_refused = {};
    // Entries have left their lanes, and wait to be drained.
    std::function<void()> on_left_lanes = {};
  };

  Executor(TensorQueue& queue, Verdict& verdict, Hooks hooks)
      : queue_(queue), verdict_(verdict), hooks_(std::move(hooks)) {}
  ~Executor() {
    stop();
    delete lane_batch_.load();
  }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Once, before the first response is run; until then responses wait. `sets`: the process sets
  // that exist from the start.
  void start(std::vector<std::unique_ptr<Operation>> operations, const ProcessSets& sets, int rank);
  // Responses to this rank, in their order; returns how many batches this adds to under_way().
  // `caller_executes`: the calling thread is going to look for has_inline_work(), so no thread
  // needs to be woken for small responses.
  int submit(std::vector<Response> responses, bool caller_executes);
  // The next response may run inline.
  bool has_inline_work();
  // Executes it on the calling thread, which may be within a CallerProgressScope.
  void run_inline();
  // Ends entries that are complete in their lanes, some of them or all (TensorQueue). Returns
  // whether any have ended or have left. Safe from any thread, which may be within a
  // CallerProgressScope.
  bool serve_lanes();
  bool serve_all_lanes(Duration patience);
  // Runs `task` on the executor's thread. It must not throw.
  void post(std::function<void()> task);
  // The calling thread will not call run_inline() again: what is left goes to the executor's
  // thread.
  void end_inline();
  // Batches submitted and not done yet; responses that are errors do not count.
  int under_way() const { return under_way_; }
  // Ends after the running batches, including those on devices. Either the verdict is set, or no
  // batch is under way.
  void stop();

 private:
  // The batch that is being executed. Its memory is reused for the next one, unless a device still
  // works on it.
  struct Batch {
    Response response;
    int set_size = 0;
    bool has_joined = false;       // this rank has joined
    bool is_inline = false;        // executed by run_inline()
    bool is_asynchronous = false;  // a device's thread ends it
    TensorQueue::Slots slots;
    std::vector<Entry> placeholders;  // used instead of the slots if this rank has joined
    Entries entries;                  // pointers into either of them
    std::vector<Outcome> outcomes;
    std::vector<Callback> callbacks;
    std::optional<trace::TracedBatch> traced;
    void clear();
  };

  void loop();
  template <typename Take>
  bool serve_lanes(const Take& take);
  void end_in_lanes(Batch& batch, std::int64_t begun);
  void deliver_from_lanes(Batch& batch);
  bool may_run_inline(const Response& response) const;
  bool can_run_inline() const;
  void take_and_serve(std::unique_lock<std::mutex>& lock, bool here);
  void serve(Response response, bool here);
  Failure run();
  Failure await_verdict();
  Failure broken(const Status& why);
  Failure operate();
  Status begin(Operation& operation, const Group& group);
  void end(Batch& batch, const Failure& failure);
  void deliver(Batch& batch);
  int set_size(const Response& response) const;
  void add_set(const Response& response);
  void remove_set(const Response& response);
  void note_set(int id, const Request& request);
  bool is_onlooker(const Response& response) const;
  void enter(int id, const RankSet& members);

  TensorQueue& queue_;
  Verdict& verdict_;
  Hooks hooks_;
  int rank_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::map<int, Group> groups_;  // the process sets that this rank is in
  std::shared_ptr<Batch> batch_ = std::make_shared<Batch>();
  std::atomic<Batch*> lane_batch_ = nullptr;  // owned; its memory is reused by one thread at a time
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Response> responses_;           // guarded by mutex_
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool busy_ = false;                        // guarded by mutex_: a batch is being executed
  bool stopping_ = false;                    // guarded by mutex_
  std::condition_variable device_batch_ended_;
  int device_batches_ = 0;  // guarded by mutex_
  std::atomic<int> under_way_ = 0;
  std::thread thread_;
};

}  // namespace hvd::runtime
