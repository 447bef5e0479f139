// Several ready events as one: the passes of a step may each end on a stream of their own.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <hvd/types.h>

namespace hvd::worker {

class AllReady final : public ReadyEvent {
 public:
  explicit AllReady(std::vector<std::shared_ptr<ReadyEvent>> events) : events_(std::move(events)) {}
  bool ready() const override {
    return std::all_of(events_.begin(), events_.end(),
                       [](const auto& event) { return event->ready(); });
  }
  void wait() override {
    for (const auto& event : events_) event->wait();
  }

 private:
  std::vector<std::shared_ptr<ReadyEvent>> events_;
};

}  // namespace hvd::worker
