// Runs responses in their order, each by the first operation that is enabled for it, and delivers
// what came of it to the entries' callbacks. One at a time: on its thread, or, if it is little, on
// one of the program that waits for it anyway and so has nobody to wake.
//
// Where this rank has joined it has no entries: they are made up, without memory, so that the
// operation takes this rank's part all the same. Joins and process sets need no operation: they are
// done once all have agreed.
//
// When an operation fails because a connection broke, nobody knows yet whose fault it was: the
// executor says so once (on_broken) and waits for the world's verdict, which is then what the
// callbacks get. After a verdict nothing is run any more; entries get the verdict.
//
// Operations of a device only begin here: the executor goes on to the next response, and the batch
// ends on the thread that sees it end, which delivers it, too.
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
  // Bytes of one response. Of what is more, waking a thread is little, and it may have a core of
  // its own.
  static constexpr std::size_t kLittle = std::size_t{64} << 10;

  struct Hooks {
    std::function<void(const Status&)> on_broken;  // an operation failed
    std::function<void()> on_done;                 // under_way() has become less, not by run_here()
    std::function<void()> on_delivered;            // callbacks have returned
    trace::Recorder* recorder = nullptr;           // hears of all that is run
  };

  Executor(TensorQueue& queue, Verdict& verdict, Hooks hooks)
      : queue_(queue), verdict_(verdict), hooks_(std::move(hooks)) {}
  ~Executor() { stop(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Once, before the first response is run; until then responses wait. `sets`: those that there
  // are from the start.
  void start(std::vector<std::unique_ptr<Operation>> operations, const ProcessSets& sets, int rank);
  // Responses to this rank, in their order; how many more are under way now. `is_helped`: the
  // caller is going to look for has_little(), and need not wake anybody for that.
  int submit(std::vector<Response> responses, bool is_helped);
  // There is something that run_here() would run.
  bool has_little();
  // Runs it, in this thread, which may be a HelpingThread.
  void run_here();
  // To be called on the executor's thread. Must not throw.
  void post(std::function<void()> errand);
  // The caller looks no longer.
  void hand_over();
  // Batches submitted and not done yet; errors do not count.
  int under_way() const { return under_way_; }
  // Ends after what is running, on devices, too; the verdict must be there, or nothing be under
  // way.
  void stop();

 private:
  // What is being run. Its memory is used again for the next one, unless it goes on elsewhere.
  struct Batch {
    Response response;
    int set_size = 0;
    bool made_up = false;  // this rank has joined
    bool is_here = false;  // in run_here()
    bool goes_on = false;  // on a device
    TensorQueue::Slots slots;
    std::vector<Entry> phantoms;  // if this rank has joined: instead of the slots
    Entries entries;              // they lie in either
    std::vector<Outcome> outcomes;
    std::vector<Callback> callbacks;
    std::optional<trace::Run> traced;
    void clear();
  };

  void loop();
  bool is_little(const Response& response) const;
  bool can_run_here() const;
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
  void remove_set(int process_set);
  void enter(int id, const RankSet& members);

  TensorQueue& queue_;
  Verdict& verdict_;
  Hooks hooks_;
  int rank_ = 0;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::map<int, Group> groups_;  // process sets that this rank is in
  std::shared_ptr<Batch> batch_ = std::make_shared<Batch>();
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Response> responses_;             // guarded by mutex_
  std::deque<std::function<void()>> errands_;  // guarded by mutex_
  bool busy_ = false;                          // guarded by mutex_: somebody serves
  bool stopping_ = false;                      // guarded by mutex_
  std::condition_variable landed_;
  int on_devices_ = 0;  // guarded by mutex_
  std::atomic<int> under_way_ = 0;
  std::thread thread_;
};

}  // namespace hvd::runtime
