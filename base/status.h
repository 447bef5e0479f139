// Errors as values. Inside hvd no function throws for something that can happen; it returns a
// Status, or a Result<T> that holds either the value or the Status. Only the public surface in
// worker/ turns a Status into a typed exception.
//
// A message says what was tried, on whom, what happened and, where there is something, what the
// person can do. Both types are plain values: copy them, keep them, send them to another thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace hvd {

enum class Code {
  ok,
  invalid_argument,     // the caller asked for something that cannot be
  not_found,            // it is not there
  already_exists,       // it is there already, or changed meanwhile
  unauthenticated,      // the other side did not prove that it holds the right key
  permission_denied,    // it did, but may not do this
  failed_precondition,  // not now: the order of calls is wrong
  resource_exhausted,   // a limit was reached
  deadline_exceeded,    // it did not happen in time
  unavailable,          // the other side cannot be reached, or went away
  aborted,              // stopped on purpose before it ended
  data_loss,            // what arrived is not what can have been sent
  internal,             // a bug of ours, or of something below us
};

// "invalid argument", "not found", ...
std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  // Named after errno, for a system call that just failed: "open /x: Permission denied".
  static Status from_errno(std::string_view what, int error_number);

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "unavailable: connect to 10.0.0.1:4000: Connection refused"
  std::string to_string() const;
  // The same error with "context: " before its message; ok stays ok.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// A value or the reason why there is none. value() may only be called when ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace hvd

// Leaves the function with the Status if it is not ok.
#define HVD_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                \
    if (::hvd::Status hvd_status = (expression); !hvd_status.ok()) return hvd_status; \
  } while (false)
