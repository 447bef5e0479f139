#include "worker/process/attempt_watch.h"

#include <utility>

#include "base/log.h"
#include "base/protocol/world_document.h"
#include "base/text.h"
#include "runtime/core/threads.h"

namespace hvd::worker {
namespace {

constexpr std::chrono::seconds kUnwatched{1};
// The limit of one request, so that the thread ends soon even if it cannot be woken.
constexpr std::chrono::seconds kOneWait{5};

}  // namespace

std::string scope_of_attempt(std::uint64_t generation, std::uint64_t round) {
  return cat(kWorldScopePrefix, generation, ".", round);
}

Status mark_given_up(rendezvous::Client& client, std::string_view scope, std::string_view name) {
  const Status marked = client.compare_and_set(scope, kGivenUpKey, name, 0).status();
  return marked.code() == Code::already_exists ? Status() : marked;
}

AttemptWatch::~AttemptWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (client_) client_->cancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Result<std::vector<std::string>> AttemptWatch::exchange(std::string_view blob, TimePoint deadline) {
  auto blobs = inner_.exchange(blob, deadline);
  if (blobs.ok()) met_();
  if (blobs.ok() && !thread_.joinable()) {
    thread_ = runtime::start_thread("hvd-attempt", [this] { watch(); });
  }
  return blobs;
}

void AttemptWatch::watch() {
  {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kUnwatched, [this] { return over_; })) return;
    client_ = std::make_unique<rendezvous::Client>(options_, credential_);
  }
  for (;;) {
    const auto mark = client_->wait(scope_, kGivenUpKey, Clock::now() + kOneWait);
    if (mark.ok()) {
      interrupt_->raise(Status(Code::unavailable, cat(mark->value, " has given up this attempt")));
      return;
    }
    const Code code = mark.status().code();
    if (code == Code::resource_exhausted) interrupt_->raise(mark.status());
    const std::lock_guard lock(mutex_);
    if (over_) return;
    if (code != Code::deadline_exceeded && code != Code::unavailable) {
      HVD_LOG(info, "watch for ranks that give up: " << mark.status().message());
      return;
    }
  }
}

}  // namespace hvd::worker
