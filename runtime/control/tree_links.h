// The connections of one member to those next to it in the control tree: its parent, which it
// connects to, and its children, which come to it. Frames in, frames out; what they mean is the
// business of the controller, which owns it. For one thread at a time, who has the turn.
//
// A neighbour on the same host may have letters instead (shm/host_mail.h), with short frames. Each
// says after how many bytes of the connection it is to be read, so that all that is sent arrives in
// its order, whichever way it takes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/status.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/control_tree.h"
#include "runtime/net/connection.h"
#include "runtime/net/lobby.h"
#include "runtime/net/poller.h"
#include "runtime/shm/host_mail.h"

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
  // The same for letters, from now on; of all neighbours from whom there are some.
  void write_letters(std::shared_ptr<HostMail> mail) { mail_ = std::move(mail); }
  bool has_letters() const { return mail_ && mail_->has_news(); }
  std::vector<Received> read_letters();
  // Shows out strangers whose time is up; returns when to do so next.
  TimePoint expire(TimePoint now) { return lobby_ ? lobby_->expire(now) : kNever; }
  void close_lobby() { lobby_.reset(); }

  // Whole frames, to nobody, if there is no such connection any more. `may_wait`: until
  // announce_letters(), for somebody who may look for himself by then.
  void send(int rank, const std::string& bytes, bool may_wait = false);
  void send_to_children(const std::string& bytes, bool may_wait = false);
  // Of letters that were left so long ago and nobody has seen yet those hear for whom they are.
  void announce_letters(Duration ago = Duration::zero());
  void send_to_all(const std::string& bytes);
  // Bytes that wait for room on the way to it.
  std::size_t unsent(int rank) const;
  void drop(int rank);
  // Before the end: gives what is unsent a moment, and, unless all `part_in_peace`, the others time
  // to read it: closing a connection on which something lies unread would take back what was sent
  // last.
  void linger(bool part_in_peace);

 private:
  struct Link {
    std::unique_ptr<Connection> connection;
    std::uint64_t sent = 0;           // bytes of the connection, since it is one
    std::uint64_t taken = 0;          // of those that came, in whole frames
    std::optional<TimePoint> unseen;  // when the oldest letter was left that may wait
  };
  void add(int rank, std::unique_ptr<Connection> connection);
  void welcome(Lobby::Arrival arrival);
  void take_frames(int rank, Link& link, Received& received);
  void send_bytes(Link& link, std::string_view bytes);

  const WorldSpec& spec_;
  const ControlTree& tree_;
  Poller& poller_;
  std::string address_;
  std::optional<Lobby> lobby_;  // until all children are there
  std::map<int, Link> peers_;   // by rank
  std::map<int, int> rank_of_fd_;
  std::shared_ptr<HostMail> mail_;
};

}  // namespace hvd::runtime
