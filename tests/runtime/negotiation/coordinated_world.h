// A coordinator with the cache and the process sets that a negotiator would keep for it.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "runtime/negotiation/coordinator.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::test {

class CoordinatedWorld {
 public:
  explicit CoordinatedWorld(
      int size, runtime::CoordinatorOptions options = {1024, std::chrono::milliseconds(5), false})
      : tree(test::hosts(size)), sets(size), coordinator(tree, cache, sets, options) {}

  Status submit(int rank, runtime::Request request) {
    if (rank == 0) coordinator.note_order(request);
    runtime::RequestList message;
    message.full.push_back(asked(rank, std::move(request)));
    return coordinator.take(rank, message, now);
  }
  Status submit_known(const std::vector<int>& members, runtime::CacheId id) {
    runtime::RequestList message;
    message.cached.push_back({ranks(members), runtime::IntervalSet::of(id)});
    return coordinator.take(message.cached.front().ranks.front() == 0 ? 0 : 1, message, now);
  }
  Status join(int rank) {
    runtime::RequestList message;
    message.joined = ranks({rank});
    return coordinator.take(rank, message, now);
  }
  Status close(int rank) {
    runtime::RequestList message;
    message.closing = ranks({rank});
    return coordinator.take(rank, message, now);
  }
  Status leave(int rank) {
    runtime::RequestList message;
    message.left = ranks({rank});
    return coordinator.take(rank, message, now);
  }
  void submit_everywhere(const runtime::Request& request) {
    for (int rank = 0; rank < tree.size(); ++rank) {
      const Status taken = submit(rank, request);
      ASSERT_TRUE(taken.ok()) << taken.to_string();
    }
  }
  std::vector<runtime::Response> poll(int under_way = 0) {
    std::vector<runtime::Response> responses;
    while (auto response = coordinator.next(now, under_way)) {
      if (response->error.ok()) {
        ++under_way;
        if (response->kind == runtime::Kind::add_process_set) {
          sets.add(ranks(response->request().ranks), response->request().by_members);
        }
        if (response->kind == runtime::Kind::remove_process_set) sets.remove(response->process_set);
      }
      coordinator.applied(*response, {});
      responses.push_back(std::move(*response));
    }
    return responses;
  }
  // The one response that there must be.
  runtime::Response only() {
    auto responses = poll();
    EXPECT_EQ(responses.size(), 1U);
    return responses.empty() ? runtime::Response() : responses.front();
  }

  runtime::ControlTree tree;
  runtime::ResponseCache cache{1024};
  runtime::ProcessSets sets;
  runtime::Coordinator coordinator;
  TimePoint now{};
};

inline bool says(const runtime::Response& response, const std::string& text) {
  const bool found = response.error.message().find(text) != std::string::npos;
  EXPECT_TRUE(found) << text << " is not in: " << response.error.to_string();
  return found;
}

}  // namespace hvd::test
