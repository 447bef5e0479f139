// The collectives: every rank of the world calls them, in any order; calls are matched by name.
//
//     std::vector<float> gradients = ...;
//     hvd::allreduce(gradients, {.name = "gradients"});                        // in place, average
//     hvd::allreduce(gradients, result, {.op = hvd::Sum});                     // into another
//     buffer auto handle = hvd::allreduce_async(gradients, {.name = "gradients"});    // and later:
//     handle.wait();
//     hvd::broadcast(weights, {.root = 0});
//     hvd::barrier();
//
// The synchronous forms block until the result is there. The asynchronous ones return at once; the
// buffers then belong to hvd, and must stay alive and untouched, until wait() has returned or
// thrown or ready() has said true. All are safe from any thread, and throw what hvd/error.h says.
//
// Whatever std::span can be made of is taken: std::vector, std::array, C arrays, std::span. A
// TensorView (hvd/types.h) carries a shape of its own, and the types that C++ has no name for.
//
// A call without a name gets "allreduce.noname.0", "allreduce.noname.1", ... in the order of this
// rank's calls: that matches only if all ranks make their unnamed calls in the same order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <hvd/export.h>
#include <hvd/types.h>

namespace hvd {

// Average divides the sum by the number of ranks. Of integers it is truncated toward zero, as are
// scaled integers; of booleans Sum and Max are "any", Product, Min and Average are "all".
struct AllreduceOptions {
  std::string name = {};
  ReduceOp op = Average;
  double prescale = 1.0;   // every element is multiplied by it before it is reduced ...
  double postscale = 1.0;  // ... and by this afterwards
};

struct BroadcastOptions {
  std::string name = {};
  int root = 0;  // the rank whose elements all get
};

struct BarrierOptions {
  std::string name = {};
};

namespace detail {
class Pending;
}

// A collective in flight. Copies stand for the same one. Dropping it does not stop it.
class HVD_API Handle {
 public:
  Handle() = default;  // of nothing: ready, and wait() returns
  explicit Handle(std::shared_ptr<detail::Pending> pending);

  bool ready() const;  // the result, or the error, is there: wait() will not block
  void wait() const;   // blocks until then; throws the error, each time it is called

 private:
  std::shared_ptr<detail::Pending> pending_;
};

// The same over a TensorView.
HVD_API Handle allreduce_async(const TensorView& tensor, const AllreduceOptions& options = {});
HVD_API Handle allreduce_async(const TensorView& input, const TensorView& output,
                               const AllreduceOptions& options);
HVD_API Handle broadcast_async(const TensorView& tensor, const BroadcastOptions& options = {});
HVD_API Handle barrier_async(const BarrierOptions& options = {});
HVD_API void allreduce(const TensorView& tensor, const AllreduceOptions& options = {});
HVD_API void allreduce(const TensorView& input, const TensorView& output,
                       const AllreduceOptions& options);
HVD_API void broadcast(const TensorView& tensor, const BroadcastOptions& options = {});
HVD_API void barrier(const BarrierOptions& options = {});

namespace detail {

template <typename C>
using ElementOf = typename decltype(std::span(std::declval<C>()))::element_type;

// Read only: any elements that a span can be made of.
template <typename C>
concept Readable = requires(C&& container) {
  std::span(std::forward<C>(container));
}
&&kIsElement<std::remove_const_t<ElementOf<C>>>;

// Elements that may be written.
template <typename C>
concept Writable = Readable<C> && !std::is_const_v<ElementOf<C>>;

template <typename C>
TensorView view_of(C&& container) {
  const auto span = std::span(std::forward<C>(container));
  using Element = std::remove_const_t<typename decltype(span)::element_type>;
  // An input is never written through this view.
  return {const_cast<Element*>(span.data()),
          {static_cast<std::int64_t>(span.size())},
          kDataTypeOf<Element>};
}

}  // namespace detail

template <detail::Writable C>
Handle allreduce_async(C&& elements, const AllreduceOptions& options = {}) {
  return allreduce_async(detail::view_of(std::forward<C>(elements)), options);
}

template <detail::Readable In, detail::Writable Out>
Handle allreduce_async(In&& input, Out&& output, const AllreduceOptions& options = {}) {
  return allreduce_async(detail::view_of(std::forward<In>(input)),
                         detail::view_of(std::forward<Out>(output)), options);
}

template <detail::Writable C>
void allreduce(C&& elements, const AllreduceOptions& options = {}) {
  allreduce(detail::view_of(std::forward<C>(elements)), options);
}

template <detail::Readable In, detail::Writable Out>
void allreduce(In&& input, Out&& output, const AllreduceOptions& options = {}) {
  allreduce(detail::view_of(std::forward<In>(input)), detail::view_of(std::forward<Out>(output)),
            options);
}

template <detail::Writable C>
Handle broadcast_async(C&& elements, const BroadcastOptions& options = {}) {
  return broadcast_async(detail::view_of(std::forward<C>(elements)), options);
}

template <detail::Writable C>
void broadcast(C&& elements, const BroadcastOptions& options = {}) {
  broadcast(detail::view_of(std::forward<C>(elements)), options);
}

}  // namespace hvd
