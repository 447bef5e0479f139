// Bytes that are encoded once and sent to many: each queue holds a reference and its own position,
// never a copy. Immutable, so safe to share between threads.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace hvd {

using SharedBytes = std::shared_ptr<const std::string>;

inline SharedBytes share(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

}  // namespace hvd
