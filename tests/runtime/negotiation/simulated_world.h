// A world without sockets, threads and real time: one Negotiator for each rank, and messages with
// random delays that keep their order between two neighbours. An executor is a counter.
//
// It checks the invariants: every rank gets the responses of its process sets in one order; every
// entry gets exactly one outcome; a rank runs only what it requested, in every field, unless it has
// joined; no message violates the protocol. The first violation is kept in failure().
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/negotiation/negotiator.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::test {

class SimulatedWorld {
 public:
  using Time = std::chrono::microseconds;
  struct Answer {
    std::string text;  // the response: tensors, or the error
    bool ok = false;
    int process_set = -1;
  };
  // Called when an entry of the rank is answered; may submit more.
  using OnAnswer = std::function<void(int rank, const runtime::Request& request, const Answer&)>;

  SimulatedWorld(int size, int per_host, unsigned seed, const runtime::Config& config)
      : random_(seed), tree_(std::make_shared<const runtime::ControlTree>(hosts(size, per_host))) {
    ranks_.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(tree_, rank, config));
    }
    at(0).negotiator->allow_lanes(true);
  }

  int size() const { return tree_->size(); }
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  void on_answer(OnAnswer on_answer) { on_answer_ = std::move(on_answer); }
  void slowest_message(Time time) { slowest_message_ = time; }
  TimePoint now() const { return now_; }
  const runtime::Negotiator& negotiator(int rank) const { return *at(rank).negotiator; }
  const std::string& failure() const { return failure_; }
  std::uint64_t messages_of_root() const { return messages_of_root_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::vector<std::string>& recoveries() const { return recoveries_; }
  // Responses as rank 0 runs them, in their order.
  const std::vector<std::string>& batches() const { return batches_; }
  bool all_said_goodbye() const {
    for (const auto& rank : ranks_) {
      if (!rank->goodbye) return false;
    }
    return true;
  }
  std::size_t in_flight() const {
    std::size_t count = 0;
    for (const auto& rank : ranks_) count += rank->in_flight.size();
    return count;
  }

  void submit(int rank, std::vector<runtime::Request> requests) {
    auto& self = at(rank);
    // As the tensor queue does: requests for a removed set are refused at once.
    std::erase_if(requests, [&](const runtime::Request& request) {
      if (!self.removed_sets.contains(runtime::negotiated_in(request))) return false;
      after(Time(1), [this, rank, request] {
        if (on_answer_) on_answer_(rank, request, {"refused", false, -1});
      });
      return true;
    });
    for (const auto& request : requests) {
      if (!self.in_flight.emplace(runtime::key_of(request), request).second) {
        fail(rank, cat("the test asked for \"", request.name, "\" twice"));
      }
    }
    check(rank, self.negotiator->submit(std::move(requests), now_));
    work(rank);
  }
  void tune(const runtime::Parameters& parameters) {
    at(0).negotiator->tune(parameters);
    work(0);
  }
  void close(int rank) {
    check(rank, at(rank).negotiator->close(now_));
    work(rank);
  }
  void leave(int rank) {
    check(rank, at(rank).negotiator->leave(now_));
    work(rank);
  }
  void after(Time delay, std::function<void()> action) {
    events_.push({now_ + delay, next_event_++, std::move(action)});
  }

  // Runs until nothing is left to do, or `limit` has passed.
  void run(Duration limit = std::chrono::hours(1)) {
    const TimePoint until = now_ + limit;
    while (!events_.empty() && failure_.empty()) {
      auto event = events_.top();
      if (event.when > until) break;
      events_.pop();
      now_ = std::max(now_, event.when);
      event.action();
    }
  }

  // All ranks have the same text at each position in the order of their sets.
  void check_orders() {
    for (int rank = 0; rank < size(); ++rank) {
      for (const auto& [process_set, texts] : at(rank).orders) {
        auto& reference = orders_[process_set];
        if (reference.empty()) reference = texts;
        if (reference != texts) {
          fail(rank, cat("another order in process set ", process_set, ": ", join(texts, "; "),
                         " instead of ", join(reference, "; ")));
        }
      }
    }
  }

 private:
  struct Rank {
    Rank(const std::shared_ptr<const runtime::ControlTree>& tree, int rank,
         const runtime::Config& config)
        : negotiator(std::make_unique<runtime::Negotiator>(tree, rank, config)) {}
    std::unique_ptr<runtime::Negotiator> negotiator;
    std::map<runtime::TensorKey, runtime::Request> in_flight;
    std::map<int, std::vector<std::string>> orders;
    std::set<int> removed_sets;
    std::map<int, TimePoint> link_free;  // to each neighbour: messages do not overtake
    TimePoint executor_free{};
    int under_way = 0;
    bool goodbye = false;
    TimePoint wakes_at = kNever;
    std::uint64_t last_number = 0;  // of a response
  };
  struct Event {
    TimePoint when;
    std::uint64_t number;
    std::function<void()> action;
    bool operator<(const Event& other) const {  // the earliest is on top
      return std::tie(other.when, other.number) < std::tie(when, number);
    }
  };

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& at(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  void fail(int rank, const std::string& why) {
    if (failure_.empty()) failure_ = cat("rank ", rank, ": ", why);
  }
  void check(int rank, const Status& status) {
    if (!status.ok()) fail(rank, status.to_string());
  }

  template <typename Deliver>
  void send(int from, int to, Deliver deliver) {
    if (from == 0 || to == 0) ++messages_of_root_;
    const Time delay(1 + below(static_cast<unsigned>(slowest_message_.count())));
    auto& free = at(from).link_free[to];
    free = std::max(free, now_ + delay);
    events_.push({free, next_event_++, std::move(deliver)});
  }

  void work(int rank) {
    auto& self = at(rank);
    if (self.goodbye || !failure_.empty()) return;
    auto output = self.negotiator->work(now_, self.under_way);
    if (!output.up.empty()) {
      const int parent = tree_->parent(rank);
      send(rank, parent, [this, rank, parent, message = std::move(output.up)] {
        check(parent, at(parent).negotiator->from_child(rank, message, now_));
        work(parent);
      });
    }
    if (!output.down.empty()) {
      const auto message = std::make_shared<const runtime::ResponseList>(std::move(output.down));
      for (const int child : tree_->children(rank)) {
        send(rank, child, [this, child, message] {
          check(child, at(child).negotiator->from_parent(*message, now_));
          work(child);
        });
      }
    }
    if (rank == 0) {
      for (auto& text : output.stalls.warnings) warnings_.push_back(std::move(text));
      for (auto& text : output.stalls.recoveries) recoveries_.push_back(std::move(text));
    }
    if (!output.stalls.failure.ok()) fail(rank, output.stalls.failure.status.message());
    for (auto& response : output.run) execute(rank, std::move(response));
    if (output.goodbye) self.goodbye = true;
    wake(rank);
  }

  void wake(int rank) {
    auto& self = at(rank);
    const TimePoint when = self.negotiator->next_work(now_, self.under_way);
    if (when == kNever || when >= self.wakes_at) return;
    self.wakes_at = when;
    events_.push({std::max(when, now_ + Time(1)), next_event_++, [this, rank, when] {
                    if (at(rank).wakes_at == when) at(rank).wakes_at = kNever;
                    work(rank);
                  }});
  }

  static std::string text_of(const runtime::Response& response) {
    if (!response.error.ok()) {
      return cat(kind_name(response.kind), " error: ", response.error.to_string());
    }
    std::vector<std::string> extents;
    for (const auto& tensor : response.tensors) {
      extents.push_back(runtime::shape_text(tensor->first_extents));
    }
    return cat(kind_name(response.kind), " ", join(names_of(response), ","), " extents ",
               join(extents, ""), " joined ", response.joined.size(), " last ",
               response.last_joined, " set ", response.new_set,
               response.hierarchical ? " by hosts" : "");
  }

  void execute(int rank, runtime::Response response) {
    auto& self = at(rank);
    const bool counts = response.error.ok();
    if (counts) ++self.under_way;
    self.executor_free = std::max(self.executor_free, now_) + Time(1 + below(300));
    events_.push(
        {self.executor_free, next_event_++, [this, rank, counts, response = std::move(response)] {
           if (counts) --at(rank).under_way;
           finish(rank, response);
           if (rank == 0) work(rank);
         }});
  }

  // The response must equal the request of this rank in every field.
  void check_answer(int rank, runtime::Request asked, const runtime::ResponseTensor& answer) {
    const auto world = static_cast<std::size_t>(size());
    if (runtime::is_ragged(asked)) {
      const auto own = std::exchange(asked.shape.front(), 0);
      const auto& extents = answer.first_extents;
      if (extents.size() == world && extents[static_cast<std::size_t>(rank)] != own) {
        fail(rank, cat("asked for \"", asked.name, "\" with ", own, " rows, and is to run ",
                       extents[static_cast<std::size_t>(rank)]));
      }
    }
    if (asked.kind != runtime::Kind::join && asked != answer.request) {
      fail(rank, cat("asked for \"", asked.name, "\" of shape ", runtime::shape_text(asked.shape),
                     ", and is to run something else, of shape ",
                     runtime::shape_text(answer.request.shape)));
    }
  }

  // Numbers ascend on every rank, and mean the same response on all.
  void check_number(int rank, const runtime::Response& response, const std::string& text) {
    auto& self = at(rank);
    if (response.number <= self.last_number) fail(rank, cat("out of order: ", text));
    self.last_number = response.number;
    const auto [same, is_first] = texts_.emplace(response.number, text);
    if (!is_first && same->second != text) {
      fail(rank, cat("response ", response.number, " is: ", text, " instead of ", same->second));
    }
  }

  // Other ranks hear of the sets of their members.
  static bool is_onlooker(int rank, const runtime::Request& request) {
    return request.by_members &&
           !std::binary_search(request.ranks.begin(), request.ranks.end(), rank);
  }

  void finish(int rank, const runtime::Response& response) {
    auto& self = at(rank);
    std::string text = text_of(response);
    for (const auto& spot : response.lanes) {
      text += cat("; lane ", spot.lane, " at ", spot.offset, " of ", spot.room);
    }
    const bool removal = response.kind == runtime::Kind::remove_process_set;
    check_number(rank, response, text);
    // Of a send only its two ranks hear, unless it is an error.
    if (response.kind != runtime::Kind::send_recv || !response.error.ok()) {
      self.orders[removal ? runtime::kGlobalSet : response.process_set].push_back(text);
    }
    if (rank == 0) batches_.push_back(text);
    const bool joined = std::binary_search(response.joined.begin(), response.joined.end(), rank);
    std::vector<runtime::Request> answered;
    for (const auto& tensor : response.tensors) {
      auto node = self.in_flight.extract(runtime::key_of(tensor->request));
      if (!node.empty()) {
        if (joined) fail(rank, cat("has an entry, and counts as joined: ", text));
        if (response.error.ok()) check_answer(rank, node.mapped(), *tensor);
        answered.push_back(std::move(node.mapped()));
      } else if (response.error.ok() && !joined && !is_onlooker(rank, tensor->request)) {
        fail(rank, cat("never requested it: ", text));
      }
    }
    if (removal && response.error.ok()) {
      self.removed_sets.insert(response.process_set);
      for (auto entry = self.in_flight.begin(); entry != self.in_flight.end();) {
        const auto current = entry++;
        if (current->first.process_set != response.process_set) continue;
        answered.push_back(std::move(current->second));
        self.in_flight.erase(current);
      }
    }
    for (const auto& request : answered) {
      const bool ok = response.error.ok() && (request.kind == response.kind);
      if (on_answer_) on_answer_(rank, request, {text, ok, response.new_set});
    }
  }

  std::mt19937 random_;
  std::shared_ptr<const runtime::ControlTree> tree_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::priority_queue<Event> events_;
  std::uint64_t next_event_ = 0;
  TimePoint now_{};
  Time slowest_message_{200};
  OnAnswer on_answer_;
  std::string failure_;
  std::vector<std::string> warnings_;
  std::vector<std::string> recoveries_;
  std::vector<std::string> batches_;
  std::map<int, std::vector<std::string>> orders_;
  std::map<std::uint64_t, std::string> texts_;  // of responses, by number
  std::uint64_t messages_of_root_ = 0;
};

}  // namespace hvd::test
