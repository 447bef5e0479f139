#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace hvd {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::not_found:
      return "not found";
    case Code::already_exists:
      return "already exists";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::permission_denied:
      return "permission denied";
    case Code::failed_precondition:
      return "failed precondition";
    case Code::resource_exhausted:
      return "resource exhausted";
    case Code::deadline_exceeded:
      return "deadline exceeded";
    case Code::unavailable:
      return "unavailable";
    case Code::aborted:
      return "aborted";
    case Code::data_loss:
      return "data loss";
    case Code::internal:
      return "internal error";
  }
  return "unknown";
}

static Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ESRCH:
      return Code::not_found;
    case EEXIST:
    case EADDRINUSE:
      return Code::already_exists;
    case EACCES:
    case EPERM:
      return Code::permission_denied;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENOEXEC:
    case ENAMETOOLONG:
      return Code::invalid_argument;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case E2BIG:
      return Code::resource_exhausted;
    case ETIMEDOUT:
      return Code::deadline_exceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EAGAIN:
      return Code::unavailable;
    default:
      return Code::internal;
  }
}

Status Status::from_errno(std::string_view what, int error_number) {
  std::string message(what);
  message += ": ";
  message += std::generic_category().message(error_number);
  return {code_of_errno(error_number), std::move(message)};
}

std::string Status::to_string() const {
  std::string text(code_name(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  std::string message(context);
  message.append(": ").append(message_);
  return {code_, std::move(message)};
}

}  // namespace hvd
