// A small framework on hvd/adapter.h, with tensors, memory and events of its own, as real ones have
// them: every collective through the seam, by as many ranks as there are.
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <hvd/adapter.h>

#include "tests/e2e/programs/check.h"

namespace {

using check::same;
using hvd::Collective;
using hvd::adapter::Completion;
using hvd::adapter::Submission;

// The framework's memory: counted, and with bytes around it that must not change.
class Allocator {
 public:
  std::byte* allocate(std::size_t size) {
    auto block = std::make_unique<Block>(size + 2 * kGuard, kMark);
    std::byte* const memory = block->data() + kGuard;
    const std::lock_guard lock(mutex_);
    blocks_[memory] = std::move(block);
    return memory;
  }
  void free(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    const auto& block = *blocks_.at(memory);
    for (std::size_t i = 0; i < kGuard; ++i) {
      check::that(block[i] == kMark && block[block.size() - 1 - i] == kMark, "only its own memory");
    }
    blocks_.erase(memory);
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  using Block = std::vector<std::byte>;
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kMark{0xA5};
  std::mutex mutex_;
  std::map<std::byte*, std::unique_ptr<Block>> blocks_;
};

Allocator memory;

class Array {
 public:
  Array() = default;
  explicit Array(std::vector<std::int64_t> shape) { resize(std::move(shape)); }
  Array(std::vector<std::int64_t> shape, float value) : Array(std::move(shape)) { fill(value); }
  ~Array() {
    if (data_ != nullptr) memory.free(data_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void* resize(std::vector<std::int64_t> shape) {
    if (data_ != nullptr) memory.free(data_);
    shape_ = std::move(shape);
    return data_ = memory.allocate(size() * sizeof(float));
  }
  void fill(float value) {
    for (std::size_t i = 0; i < size(); ++i) at(i) = value;
  }
  std::size_t size() const { return static_cast<std::size_t>(hvd::detail::elements_of(shape_)); }
  float& at(std::size_t i) { return reinterpret_cast<float*>(data_)[i]; }
  std::vector<float> values() {
    std::vector<float> all(size());
    for (std::size_t i = 0; i < size(); ++i) all[i] = at(i);
    return all;
  }
  hvd::TensorView view() { return {data_, shape_, hvd::DataType::float32}; }

 private:
  std::byte* data_ = nullptr;
  std::vector<std::int64_t> shape_;
};

// A stream: work that another thread does in its order; events are ready when it has come to them.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    enqueue(nullptr);
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_all();
  }

  class Event final : public hvd::ReadyEvent {
   public:
    bool ready() const override {
      const std::lock_guard lock(mutex_);
      return reached_;
    }
    void wait() override {
      std::unique_lock lock(mutex_);
      reached_now_.wait(lock, [this] { return reached_; });
    }
    void reach() {
      const std::lock_guard lock(mutex_);
      reached_ = true;
      reached_now_.notify_all();
    }

   private:
    mutable std::mutex mutex_;
    std::condition_variable reached_now_;
    bool reached_ = false;
  };

  std::shared_ptr<Event> record() {
    auto event = std::make_shared<Event>();
    enqueue([event] { event->reach(); });
    return event;
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !works_.empty(); });
      const auto work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  std::thread thread_;
};

// Callbacks that are counted, and what they were told.
class Inbox {
 public:
  std::function<void(const Completion&)> slot() {
    const std::lock_guard lock(mutex_);
    ++expected_;
    return [this](const Completion& completion) {
      const std::lock_guard inner(mutex_);
      came_.push_back(completion);
      changed_.notify_all();
    };
  }
  // All, when all are there.
  std::vector<Completion> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return came_.size() >= expected_; });
    same(came_.size(), expected_, "callbacks, each once");
    expected_ = 0;
    return std::exchange(came_, {});
  }
  Completion wait_for_one() {
    auto all = wait();
    same(all.size(), std::size_t{1}, "callbacks");
    if (all.front().error) std::rethrow_exception(all.front().error);
    return all.front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t expected_ = 0;
  std::vector<Completion> came_;
};

Inbox inbox;

Submission submission(Collective collective, const std::string& name, Array* input) {
  Submission work;
  work.collective = collective;
  work.name = name;
  if (input != nullptr) work.input = input->view();
  work.done = inbox.slot();
  return work;
}

Completion run(Submission work) {
  hvd::adapter::submit(std::move(work));
  return inbox.wait_for_one();
}

using Floats = std::vector<float>;
float own() { return static_cast<float>(hvd::rank() + 1); }
float sum() { return static_cast<float>(hvd::size() * (hvd::size() + 1)) / 2; }

void fixed_sizes() {
  Stream stream;
  Array array({2, 3});
  // The values come from the stream, after the submission.
  stream.enqueue([&array] {
    std::this_thread::yield();
    array.fill(own());
  });
  auto work = submission(Collective::allreduce, "reduced", &array);
  work.output = array.view();
  work.op = hvd::Sum;
  work.ready = stream.record();
  same(run(std::move(work)).output == array.view().data, true, "in place");
  same(array.values(), Floats(6, sum()), "allreduce");

  Array root({4}, own());
  Array copy({4}, 0);
  work = submission(Collective::broadcast, "broadcast", &root);
  work.output = copy.view();
  work.root = hvd::size() - 1;
  run(std::move(work));
  same(copy.values(), Floats(4, static_cast<float>(hvd::size())), "broadcast");
  same(root.values(), Floats(4, own()), "the input");
  run(submission(Collective::barrier, "barrier", nullptr));
  same(run(submission(Collective::join, "", nullptr)).last_joined >= 0, true, "join");
}

void made_sizes() {
  Array result;
  const auto make = [&result](const std::vector<std::int64_t>& shape) {
    return result.resize(shape);
  };
  Array rows({hvd::rank(), 2}, own());
  auto work = submission(Collective::allgather, "gathered", &rows);
  work.allocate = make;
  auto completion = run(std::move(work));
  const std::int64_t all = hvd::size() * (hvd::size() - 1) / 2;
  same(completion.shape, std::vector<std::int64_t>{all, 2}, "shape");
  same(completion.output == result.view().data, true, "the framework's memory");
  if (hvd::size() > 1) same(result.values().back(), static_cast<float>(hvd::size()), "allgather");

  Array to_all({hvd::size()}, own());
  work = submission(Collective::alltoall, "exchanged", &to_all);
  work.allocate = make;
  work.splits.assign(static_cast<std::size_t>(hvd::size()), 1);
  completion = run(std::move(work));
  same(completion.received_splits,
       std::vector<std::int64_t>(static_cast<std::size_t>(hvd::size()), 1), "received");
  same(result.values().back(), static_cast<float>(hvd::size()), "alltoall");

  Array shared({hvd::size(), 2}, own());
  work = submission(Collective::reducescatter, "scattered", &shared);
  work.op = hvd::Sum;
  work.allocate = make;
  run(std::move(work));
  same(result.values(), Floats(2, sum()), "reducescatter");
}

void groups() {
  Stream stream;
  std::deque<Array> arrays;
  std::vector<Submission> works;
  for (int i = 0; i < 5; ++i) {
    auto& array = arrays.emplace_back(std::vector<std::int64_t>{i + 1});
    stream.enqueue([&array] { array.fill(own()); });
    works.push_back(submission(Collective::allreduce, "member " + std::to_string(i), &array));
    works.back().output = array.view();
    works.back().op = hvd::Max;
    works.back().ready = stream.record();
  }
  hvd::adapter::submit_group("group", std::move(works));
  for (const auto& completion : inbox.wait()) same(completion.error == nullptr, true, "no error");
  for (auto& array : arrays)
    same(array.values(), Floats(array.size(), static_cast<float>(hvd::size())), "group");
}

void sets() {
  if (hvd::size() == 1) return;
  auto work = submission(Collective::add_process_set, "", nullptr);
  work.ranks = {0};
  const hvd::ProcessSet first(run(std::move(work)).process_set);
  same(first.ranks(), std::vector<int>{0}, "the set");
  work = submission(Collective::remove_process_set, "", nullptr);
  work.process_set = first;
  run(std::move(work));
}

void errors() {
  // Refused at once: no callback comes, and the event and the memory are given back.
  auto event = std::make_shared<Stream::Event>();
  Submission work;
  work.collective = Collective::allgather;
  work.name = "no room";
  Array rows({2}, 1);
  work.input = rows.view();
  work.ready = event;
  work.done = [](const Completion&) { std::abort(); };
  check::throws<hvd::InvalidArgumentError>("no allocator", {"no room", "allocate"},
                                           [&] { hvd::adapter::submit(std::move(work)); });
  same(event.use_count(), 1L, "owners of the event");

  // An allocator that has nothing, and one that throws: an error, on this rank and all others.
  for (const bool throws : {false, true}) {
    auto failing = submission(Collective::allgather, "full", &rows);
    failing.allocate = [throws](const auto&) -> void* {
      if (throws) throw std::runtime_error("the framework is out of memory");
      return nullptr;
    };
    hvd::adapter::submit(std::move(failing));
    same(inbox.wait().front().error != nullptr, true, "an error");
  }
  // Ranks that disagree.
  if (hvd::size() > 1) {
    Array differs({hvd::rank() == 0 ? 1 : 2}, 1);
    auto wrong = submission(Collective::allreduce, "differs", &differs);
    wrong.output = differs.view();
    hvd::adapter::submit(std::move(wrong));
    check::throws<hvd::InvalidArgumentError>("shapes", {"differs", "[1]", "[2]"}, [] {
      std::rethrow_exception(inbox.wait().front().error);
    });
  }
  fixed_sizes();
}

void work() {
  hvd::init({.dynamic_process_sets = true});
  fixed_sizes();
  made_sizes();
  groups();
  sets();
  errors();
  same(memory.count(), std::size_t{0}, "arrays that are left");
  check::say_ok();
  hvd::shutdown();
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv, {{"work", work}}); }
