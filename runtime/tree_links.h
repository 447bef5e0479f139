// The connections of one member to those next to it in the control tree: its parent, which it
// connects to, and its children, which come to it. Frames in, frames out; what they mean is the
// control loop's business, whose thread it belongs to.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/status.h"
#include "runtime/connection.h"
#include "runtime/lobby.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/poller.h"
#include "runtime/world.h"

namespace hvd::runtime {

class TreeLinks {
 public:
  TreeLinks(const WorldSpec& spec, const ControlTree& tree, Poller& poller)
      : spec_(spec), tree_(tree), poller_(poller) {}
  TreeLinks(const TreeLinks&) = delete;
  TreeLinks& operator=(const TreeLinks&) = delete;

  // Whoever has children listens; its address, as they need it, is address(): else empty.
  Status open();
  const std::string& address() const { return address_; }
  // Blocks; `address` is the parent's address().
  Status join_parent(const std::string& address, TimePoint deadline);
  bool has_parent() const { return spec_.rank != 0; }
  int parent() const { return tree_.parent(spec_.rank); }
  const std::vector<int>& children() const { return tree_.children(spec_.rank); }
  bool has(int rank) const { return peers_.contains(rank); }
  // The parent, if there is one, and all children are connected.
  bool complete() const;

  // What has come from a neighbour.
  struct Received {
    int rank = 0;
    std::vector<Frame> frames;  // whole ones
    Status lost;                // not ok: nothing more will come, and why
    bool lies = false;          // because what came can be no frames
  };
  std::optional<Received> handle(const Poller::Event& event, TimePoint now);
  // Shows out strangers whose time is up; returns when to do so next.
  TimePoint expire(TimePoint now) { return lobby_ ? lobby_->expire(now) : kNever; }
  void close_lobby() { lobby_.reset(); }

  // To nobody, if there is no such connection any more.
  void send(int rank, const std::string& bytes);
  void send_to_children(const std::string& bytes);
  void send_to_all(const std::string& bytes);
  // Bytes that wait for room on the way to it.
  std::size_t unsent(int rank) const;
  void drop(int rank);
  // Before the end: gives what is unsent a moment, and, unless all `part_in_peace`, the others time
  // to read it: closing a connection on which something lies unread would take back what was sent
  // last.
  void linger(bool part_in_peace);

 private:
  void welcome(Lobby::Arrival arrival);

  const WorldSpec& spec_;
  const ControlTree& tree_;
  Poller& poller_;
  std::string address_;
  std::optional<Lobby> lobby_;                        // until all children are there
  std::map<int, std::unique_ptr<Connection>> peers_;  // by rank
  std::map<int, int> rank_of_fd_;
};

}  // namespace hvd::runtime
