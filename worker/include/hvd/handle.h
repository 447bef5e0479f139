// The handle that an asynchronous call returns.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>

#include <hvd/export.h>

namespace hvd {

namespace detail {
class Pending;
}

// Work in flight: one collective, or a group of them. Copies stand for the same one. Dropping it
// does not stop it, and its buffers still belong to hvd. All calls are safe from any thread.
class HVD_API Handle {
 public:
  Handle() = default;  // of nothing: ready, and wait() returns
  explicit Handle(std::shared_ptr<detail::Pending> pending);

  bool ready() const;  // the result, or the error, is there: wait() will not block
  void wait() const;   // blocks until then; throws the error, each time it is called
  // The same, for at most so long. True: the work is done. False: it is not, and goes on.
  bool wait_for(std::chrono::milliseconds timeout) const;

  // Calls `done` once, with the error or with null: when the work ends, from a thread of hvd, or at
  // once from this one if it has ended. It must not block; asynchronous calls it may make. An
  // exception that it throws is logged and goes no further. Callbacks of one handle are called in
  // their order.
  void on_done(std::function<void(std::exception_ptr error)> done) const;

 protected:
  std::shared_ptr<detail::Pending> pending_;
};

// Work that has a result: Tensor, std::vector<Tensor>, Rows, SparseTensor or int. The result has
// one owner: a future is moved, never copied. A Handle made from it waits for the same work.
template <typename Result>
class Future : public Handle {
 public:
  using Handle::Handle;
  Future() = default;
  Future(Future&&) noexcept = default;
  Future& operator=(Future&&) noexcept = default;
  Future(const Future&) = delete;
  Future& operator=(const Future&) = delete;
  ~Future() = default;

  // Waits, and hands the result out: once; a second call throws InvalidArgumentError.
  Result get();
};

}  // namespace hvd
