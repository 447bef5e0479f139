// The helpers that the files of the C API share: exceptions become codes, pointers and numbers
// become values of the C++ API, and integers stand for the things that callers hold. All is safe
// from any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hvd/c_api.h>
#include <hvd/error.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

#include "base/text.h"
#include "base/threads.h"

namespace hvd::c_api {

// Notes the error for hvd_last_error() and returns its code; HVD_OK of none.
int note(const std::exception_ptr& error) noexcept;
int note(int code, const std::string& what) noexcept;

// The value that `call` returns, or the code of the exception that it throws. A thread that is
// being cancelled goes on ending.
template <typename Result = int, typename Call>
Result guard(Call call) {
  try {
    return static_cast<Result>(call());
  } catch (...) {
    if (thread_is_ending()) throw;
    return static_cast<Result>(note(std::current_exception()));
  }
}

// A code that a callback of the program has returned, on its way to the call that ran the callback.
class CallbackError : public std::runtime_error {
 public:
  CallbackError(int code, const std::string& what) : std::runtime_error(what), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Before a callback of the program: failures of earlier calls are not those of the callback.
void forget_failure() noexcept;
// After it: throws the failure of the last call of hvd on this thread, if `code` is its code, and
// CallbackError for every other code than HVD_OK. `what` names the callback.
void check_callback(int code, const char* what);

template <typename Call>
void run_callback(const char* what, Call call) {
  forget_failure();
  check_callback(call(), what);
}

template <typename... Why>
[[noreturn]] void refuse(const Why&... why) {
  throw InvalidArgumentError(cat(why...));
}

template <typename T>
T& not_null(T* pointer, const char* call, const char* what) {
  if (pointer == nullptr) refuse(call, "(): ", what, " is null");
  return *pointer;
}

// The member `size` of a struct of the caller, with which all structs that may grow begin.
// `first_size`: that of the first version of the struct. `what` names the struct.
template <typename Struct>
std::size_t check_size(const Struct& given, std::size_t first_size, const char* call,
                       const char* what) {
  constexpr std::size_t kLargest = 4096;
  if (given.size < first_size || given.size > kLargest) {
    refuse(call, "(): ", what, ".size is ", given.size, "; it is sizeof of the struct, ",
           sizeof(Struct), " in this version");
  }
  return given.size;
}

// A struct of an older or the same version, completed by defaults; one of a newer version if what
// this version does not know was not set.
template <typename Struct>
Struct read_struct(const Struct& given, const Struct& defaults, std::size_t first_size,
                   const char* call, const char* what) {
  const std::size_t size = check_size(given, first_size, call, what);
  Struct read = defaults;
  std::memcpy(&read, &given, std::min(size, sizeof(Struct)));

  const auto* const bytes = reinterpret_cast<const unsigned char*>(&given);
  for (std::size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] != 0) refuse(call, "(): ", what, " that only a newer version of hvd knows");
  }
  return read;
}

// Null stands for the defaults.
template <typename Options>
Options read_options(const Options* given, const Options& defaults, std::size_t first_size,
                     const char* call) {
  return given == nullptr ? defaults : read_struct(*given, defaults, first_size, call, "options");
}

// The element `index` of an array of structs of the caller's version, which are as far apart as the
// first one says.
template <typename Struct>
const Struct* element_of(const Struct* array, std::size_t index, std::size_t first_size,
                         const char* call, const char* what) {
  if (array == nullptr || index == 0) return array;
  const std::size_t size = check_size(*array, first_size, call, what);
  const auto* const element =
      reinterpret_cast<const Struct*>(reinterpret_cast<const unsigned char*>(array) + index * size);
  if (element->size != size) {
    refuse(call, "(): ", what, " ", index, " of an array has size ", element->size,
           ", but the first one has ", size);
  }
  return element;
}

// hvd_..._init().
template <typename Options>
int write_defaults(Options* options, std::size_t size, const Options& defaults,
                   std::size_t first_size, const char* call) noexcept {
  return guard([&] {
    not_null(options, call, "options");
    if (size < first_size || size > sizeof(Options)) {
      refuse(call, "(): there is no version with options of ", size, " bytes; this one has ",
             sizeof(Options));
    }
    std::memcpy(options, &defaults, size);
    options->size = size;
    return HVD_OK;
  });
}

TensorView tensor_of(const hvd_tensor* tensor, const char* call, const char* what);
// The tensor `index` of an array.
TensorView tensor_of(const hvd_tensor* tensors, std::size_t index, const char* call,
                     const char* what);
// The shape of the result is that of the argument, which must live as long.
hvd_tensor c_tensor_of(const void* data, const std::vector<std::int64_t>& shape, DataType type,
                       Device device = {});
// Writes as much of `tensor` as the caller's version of the struct has.
void write_tensor(hvd_tensor* out, hvd_tensor tensor, const char* call, const char* what);
ReduceOp op_of(std::int32_t op, const char* call);
Compression compression_of(std::int32_t compression, const char* call);
// Owns what `count` structs of an array say, and only then throws if one of them cannot be asked or
// waited for. An event whose size makes no sense is not owned.
std::vector<std::shared_ptr<ReadyEvent>> events_of(const hvd_ready_event* events, std::size_t count,
                                                   const char* call);

// The event behind one that hvd_cuda_ready_after() or hvd_cuda_in_order_of() has filled; null: it
// is the program's own.
std::shared_ptr<ReadyEvent> cuda_event_of(const hvd_ready_event& event);

// Things that callers hold by a number, which is never used again for another one.
template <typename T>
class Registry {
 public:
  explicit Registry(const char* what) : what_(what) { keep_free_in_children(mutex_); }
  std::int64_t add(std::shared_ptr<T> thing) {
    const std::lock_guard lock(mutex_);
    things_.emplace(++last_, std::move(thing));
    return last_;
  }
  std::shared_ptr<T> find(std::int64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = things_.find(number);
    if (found == things_.end()) refuse(what_, " ", number, " does not exist, or is released");
    return found->second;
  }
  // The thing that it stood for is destroyed by the caller, outside of the lock.
  std::shared_ptr<T> remove(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = things_.find(number);
    if (found == things_.end()) refuse(what_, " ", number, " does not exist, or is released");
    auto thing = std::move(found->second);
    things_.erase(found);
    return thing;
  }

 private:
  const char* what_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<T>> things_;
  std::int64_t last_ = 0;
};

}  // namespace hvd::c_api
