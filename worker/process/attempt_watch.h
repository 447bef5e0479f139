// All members of a world give up an attempt to form it together. A rank that begins another attempt
// leaves a mark in the scope of the last one. The others may not notice the failure, if it is that
// of a connection between two other ranks: so while they connect to each other they watch for the
// mark, and it ends their attempt, too. Otherwise they would wait until their deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/control/world.h"
#include "runtime/core/interrupt.h"

namespace hvd::worker {

// Where the members of a world meet in this attempt.
std::string scope_of_attempt(std::uint64_t generation, std::uint64_t round);
// Leaves the mark: `name` says which rank has given up.
Status mark_given_up(rendezvous::Client& client, std::string_view scope, std::string_view name);

// The Exchange of an attempt, with a thread that watches for the mark from some time after the
// exchange until the destructor: most worlds have formed by then, and need no watch.
class AttemptWatch final : public runtime::Exchange {
 public:
  // The watch raises `interrupt` with unavailable and the name of a rank that has given up, or with
  // resource_exhausted, if this rank lacks a descriptor for the watch. `met` is called when the
  // exchange is over.
  AttemptWatch(runtime::Exchange& inner, rendezvous::ClientOptions options, const Token& credential,
               std::string scope, std::shared_ptr<runtime::Interrupt> interrupt,
               std::function<void()> met)
      : inner_(inner),
        options_(std::move(options)),
        credential_(credential),
        scope_(std::move(scope)),
        interrupt_(std::move(interrupt)),
        met_(std::move(met)) {}
  ~AttemptWatch() override;
  AttemptWatch(const AttemptWatch&) = delete;
  AttemptWatch& operator=(const AttemptWatch&) = delete;

  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;

 private:
  void watch();

  runtime::Exchange& inner_;
  const rendezvous::ClientOptions options_;
  const Token credential_;
  const std::string scope_;
  const std::shared_ptr<runtime::Interrupt> interrupt_;
  const std::function<void()> met_;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;                           // under mutex_
  std::unique_ptr<rendezvous::Client> client_;  // under mutex_, but for calls of the thread
};

}  // namespace hvd::worker
