// How the processes that one launcher has started, mpirun for instance, tell each other something
// before they are connected: through the launcher.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "base/text.h"

namespace hvd::worker {

// For one thread.
class LauncherStore {
 public:
  virtual ~LauncherStore() = default;
  LauncherStore() = default;
  LauncherStore(const LauncherStore&) = delete;
  LauncherStore& operator=(const LauncherStore&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A secret of all processes, if they have one already.
  virtual std::optional<Token> token() const { return std::nullopt; }
  // To be called by all processes, equally often. Publishes `value`, waits for all, and returns the
  // values of all, by rank. deadline_exceeded: some process did not call.
  virtual Result<std::vector<std::string>> gather(std::string_view value, TimePoint deadline) = 0;
};

// The error of a gather() that not all of so many processes have called.
inline Status not_all_came(int size) {
  return {Code::deadline_exceeded,
          cat("some of the ", size,
              " processes that the launcher has started did not call init() in time "
              "(--init-timeout)")};
}

}  // namespace hvd::worker
