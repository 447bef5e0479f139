// Training that goes on when workers come and go.
//
//     hvd::init();
//     hvd::elastic::State state;                 // what must survive
//     state.add("weights", weights);
//     state.add("step", step);
//     state.add("sampler", sampler);
//     hvd::elastic::run(state, [&](hvd::elastic::State& s) {
//       while (step < steps) {
//         train_one_step(weights, sampler.next(32));
//         ++step;
//         s.commit();
//       }
//     });
//
// run() calls the function, and calls it again whenever the world has changed: with another rank()
// and size(), and with the state as all agreed to have it. Objects that the function keeps of a
// world (batches of its rank, reducers, handles) it makes anew. docs/elastic.md says what happens
// when.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hvd/cuda_event.h>
#include <hvd/error.h>
#include <hvd/export.h>
#include <hvd/tensor.h>

namespace hvd::elastic {

enum class CommitMode {
  // A commit copies the state within memory; after a failure the copy is loaded.
  copy,
  // No copy. The program changes what was added only inside State::mutate(), after the last
  // collective of a step. After a failure the newest whole state of any rank is everybody's.
  mark,
};

// How something of one's own is kept: as bytes. A load must take what a save on another rank gave,
// and throws if it cannot.
struct Handler {
  // The number of bytes that save() will write now. A worker that is to receive the state,
  // at the start of a job each but rank 0, calls both before its first load(): bytes that it has
  // already need not come. If they throw then, all of it comes.
  std::function<std::size_t()> bytes;
  std::function<void(std::span<std::byte> into)> save;        // exactly so many
  std::function<void(std::span<const std::byte> from)> load;  // into the program's object
};

struct StateOptions {
  CommitMode mode = CommitMode::copy;
  // Every so many commits the ranks compare what they commit; 0: never. It costs reading all of it.
  int compare_every = 0;
  // For the case that every worker that held the committed state is gone: brings the program's
  // objects to its last checkpoint. Called on rank 0, whose state all have then. Without it run()
  // throws CommittedStateLostError.
  std::function<void()> loader = {};
  // The stream in which the program works with the tensors of a GPU that it adds:
  // they are copied after what is there at a commit, and what comes there later comes after the
  // copies. Null: the legacy stream, and with it all streams but non-blocking ones.
  cuda::Stream cuda_stream = nullptr;
};

class State;

namespace detail {

class StateImpl;

template <typename T>
concept Savable = requires(T& object, const T& constant, std::string_view saved) {
  { constant.save() } -> std::convertible_to<std::string>;
  object.load(saved);
};

template <typename T>
struct IsVector : std::false_type {};
template <typename T, typename Allocator>
struct IsVector<std::vector<T, Allocator>> : std::true_type {};
template <typename T>
struct IsSpan : std::false_type {};
template <typename T, std::size_t extent>
struct IsSpan<std::span<T, extent>> : std::true_type {};

HVD_API void copy_bytes(std::span<std::byte> into, const void* from);
[[noreturn]] HVD_API void refuse_size(std::size_t bytes, std::size_t expected);

template <typename T, std::size_t extent>
Handler handler_of_span(std::span<T, extent> elements) {
  static_assert(!std::is_const_v<T>, "a state cannot restore a const object");
  static_assert(std::is_trivially_copyable_v<T>,
                "elements must be trivially copyable; for others give a Handler");
  return {[elements] { return elements.size_bytes(); },
          [elements](std::span<std::byte> into) { copy_bytes(into, elements.data()); },
          [elements](std::span<const std::byte> from) {
            if (from.size() != elements.size_bytes()) {
              refuse_size(from.size(), elements.size_bytes());
            }
            copy_bytes({reinterpret_cast<std::byte*>(elements.data()), from.size()}, from.data());
          }};
}

// Vectors and strings: of any length.
template <typename T>
Handler handler_of_vector(T& vector) {
  using Element = typename T::value_type;
  static_assert(std::is_trivially_copyable_v<Element> && !std::is_same_v<T, std::vector<bool>>,
                "elements must lie in memory, and be trivially copyable; for others give a "
                "Handler");
  return {[&vector] { return vector.size() * sizeof(Element); },
          [&vector](std::span<std::byte> into) { copy_bytes(into, vector.data()); },
          [&vector](std::span<const std::byte> from) {
            if (from.size() % sizeof(Element) != 0) refuse_size(from.size(), sizeof(Element));
            vector.resize(from.size() / sizeof(Element));
            copy_bytes({reinterpret_cast<std::byte*>(vector.data()), from.size()}, from.data());
          }};
}

template <Savable T>
Handler handler_of_savable(T& object) {
  auto saved = std::make_shared<std::string>();  // between bytes() and save()
  return {[&object, saved] {
            *saved = object.save();
            return saved->size();
          },
          [saved](std::span<std::byte> into) { copy_bytes(into, saved->data()); },
          [&object](std::span<const std::byte> from) {
            object.load(std::string_view(reinterpret_cast<const char*>(from.data()), from.size()));
          }};
}

template <typename T>
inline constexpr bool kIsTensor = std::is_same_v<std::remove_cvref_t<T>, TensorView> ||
                                  std::is_same_v<std::remove_reference_t<T>, Tensor>;

template <typename T>
Handler handler_of(T& object) {
  if constexpr (std::is_same_v<T, Handler>) {
    return object;
  } else if constexpr (IsSpan<T>::value) {
    return handler_of_span(object);
  } else if constexpr (IsVector<T>::value || std::is_same_v<T, std::string>) {
    return handler_of_vector(object);
  } else if constexpr (Savable<T>) {
    return handler_of_savable(object);
  } else {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_const_v<T> &&
                      !std::is_same_v<T, std::string_view>,
                  "a state takes spans, vectors, strings, values that are trivially copyable, "
                  "types with std::string save() const and load(std::string_view), and Handlers");
    return handler_of_span(std::span<T, 1>(&object, 1));
  }
}

}  // namespace detail

// The state that must survive. It refers to the program's objects, which must live as long. All
// ranks add the same names, in the same order, before run(). For one thread at a time.
class HVD_API State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // A span, a vector or string (whose size may change), a value that is trivially copyable, or an
  // object with `std::string save() const` and `void load(std::string_view)`, such as a Sampler;
  // or a Handler. Throws InvalidArgumentError if the name is empty or taken, or if run() is under
  // way.
  template <typename T>
  requires(!detail::kIsTensor<T>) void add(const std::string& name, T& object) {
    add_handler(name, detail::handler_of(object));
  }
  // A tensor, of the host or of the GPU that this worker works on; its size may not change. All
  // ranks have it on the same kind of device.
  template <typename T>
  requires detail::kIsTensor<T>
  void add(const std::string& name, T&& tensor) { add_tensor(name, tensor); }
  template <typename T, std::size_t extent>
  void add(const std::string& name, std::span<T, extent>&& elements) {
    add_handler(name, detail::handler_of_span(elements));
  }
  void add(const std::string& name, Handler&& handler) { add_handler(name, std::move(handler)); }

  // All ranks agree to have come this far; from now on nothing before is lost. If the world is to
  // change it changes here: throws HostsUpdated, for run(). Throws CollectiveError if it has
  // failed, InvalidArgumentError if other ranks are at another commit, StateDivergedError.
  void commit();
  // The same if the world is to change: the state is committed as it is now. Else nothing is, which
  // costs less.
  void check_host_updates();
  // Brings the program's objects back to this rank's last commit.
  void restore();
  // Everybody gets what rank 0's objects hold now.
  void sync();
  // Called by run() in each later generation, with the state in place, before the function, on the
  // ranks that were in a generation before.
  void on_reset(std::function<void()> callback);
  // Called by the commit at which this worker leaves for good: its host goes, it was told to, or
  // the job is suspended. All ranks have committed, and the program's objects are what they were
  // then. It has until --leave-grace is over, and uses no collective: the others go on. What it
  // throws comes from the commit.
  void on_notice(std::function<void()> callback);
  // CommitMode::mark: `change` changes what was added, and uses no collective. If it throws, this
  // rank's state counts as broken, and comes from another rank after the next change of the world.
  void mutate(const std::function<void()>& change);

 private:
  friend class detail::StateImpl;
  void add_handler(const std::string& name, Handler handler);
  void add_tensor(const std::string& name, const TensorView& tensor);
  std::unique_ptr<detail::StateImpl> impl_;
};

// The number of the world that this process is in: it grows with each one. Throws what rank()
// throws.
HVD_API std::uint64_t generation();

enum class Ending {
  // The function has returned, on all ranks. In a newcomer that comes when the others are in a
  // later
  // run it was not called, and the objects are as the program made them.
  done,
  left,  // the job goes on without this worker
};

struct RunOptions {
  // A worker that is not needed any more (its host was taken away, or it was told to go) ends its
  // process with exit(0). If this is set, run() returns Ending::left instead.
  bool return_when_left = false;
};

namespace detail {
HVD_API Ending run(State& state, const std::function<void()>& body, const RunOptions& options);
}

// Calls function(state), or function(), until it has returned on all ranks of one world. Handles
// HostsUpdated, and CollectiveError, if hvdrun can change the world: one that the program throws
// itself ends the world for all ranks, and all go on from the last commit. The fifth such error
// without a commit in between is rethrown, and so is every other exception. Needs init() before it.
template <typename Function>
Ending run(State& state, Function&& function, const RunOptions& options = {}) {
  if constexpr (std::is_invocable_v<Function&, State&>) {
    return detail::run(
        state, [&] { function(state); }, options);
  } else {
    static_assert(std::is_invocable_v<Function&>, "the function takes a State&, or nothing");
    return detail::run(
        state, [&] { function(); }, options);
  }
}

}  // namespace hvd::elastic
