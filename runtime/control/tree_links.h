// The connections of one member to its neighbours in the control tree: its parent, to which it
// connects, and its children, which connect to it. It sends and receives frames; the controller,
// which owns it, interprets them. For one thread at a time, under the lock of the progress engine.
//
// Short frames to a neighbour on the same host may go through shared memory instead
// (shm/shm_mailbox.h). Each such message carries the number of connection bytes that must be read
// before it, so that everything arrives in the order in which it was sent, whichever way it takes.
//
// A connection can stand, acknowledge everything, and carry nothing: one through a firewall or a
// proxy that has forgotten the other half. So neighbours on different hosts say that they are alive
// where they have nothing else to say (Config::control_timeout).
#pragma once

#include <chrono>
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
#include "runtime/net/member_acceptor.h"
#include "runtime/net/poller.h"
#include "runtime/shm/shm_mailbox.h"

namespace hvd::runtime {

class TreeLinks {
 public:
  TreeLinks(const WorldSpec& spec, const ControlTree& tree, Poller& poller)
      : spec_(spec), tree_(tree), poller_(poller) {}
  TreeLinks(const TreeLinks&) = delete;
  TreeLinks& operator=(const TreeLinks&) = delete;

  // A rank with children listens; its address, as the children need it, is address(), which is
  // empty otherwise.
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
  // The shortest that was seen so far, if the parent is on another host and the kernel says.
  std::optional<std::chrono::microseconds> round_trip_to_parent() const;

  // The messages that have arrived from a neighbour.
  struct Received {
    int rank = 0;
    std::vector<Frame> frames;  // whole ones
    Status lost;                // not ok: nothing more will arrive, and why
    bool is_malformed = false;  // because the bytes were not valid frames
  };
  std::optional<Received> handle(const Poller::Event& event, TimePoint now);
  // From now on messages go through shared memory, too. read_shm_messages() returns those of all
  // neighbours that have sent any.
  void use_mailbox(std::shared_ptr<ShmMailbox> mailbox) { mailbox_ = std::move(mailbox); }
  bool has_shm_messages() const { return mailbox_ && mailbox_->has_new(); }
  std::vector<Received> read_shm_messages();
  // Closes connections whose handshake took too long; returns when to call again.
  TimePoint expire(TimePoint now) { return acceptor_ ? acceptor_->expire(now) : kNever; }
  // MemberAcceptor::cannot_accept().
  Status cannot_accept() const { return acceptor_ ? acceptor_->cannot_accept() : Status(); }
  void close_acceptor() { acceptor_.reset(); }

  // Tells silent connections that this rank is alive. Returns the neighbours that have been silent
  // for too long, as lost; next_sign_of_life() says when to call again.
  std::vector<Received> keep_alive(TimePoint now);
  TimePoint next_sign_of_life() const { return next_sign_of_life_; }

  // Sends whole frames; no effect if the connection has ended. `may_wait`: a frame in shared memory
  // is announced by notify_unseen() only, because the receiver may have polled it by then.
  void send(int rank, const std::string& bytes, bool may_wait = false);
  void send_to_children(const std::string& bytes, bool may_wait = false);
  // Notifies the neighbours that have not read a message which was written at least `ago` before
  // now.
  void notify_unseen(Duration ago = Duration::zero());
  void send_to_all(const std::string& bytes);
  // Bytes that wait for room in the socket.
  std::size_t unsent(int rank) const;
  void drop(int rank);
  // Before the end: gives unsent bytes a moment to be sent, and, unless `all_left`, the neighbours
  // time to read them: closing a connection with unread input would discard what was sent last.
  void linger(bool all_left);

 private:
  struct Peer {
    std::unique_ptr<Connection> connection;
    std::uint64_t sent = 0;         // bytes sent over the connection
    std::uint64_t taken = 0;        // bytes received over it, in whole frames
    std::uint64_t sent_before = 0;  // `sent` at the last call of keep_alive()
    // When the oldest message was written that waits for its notification.
    std::optional<TimePoint> unseen;
  };
  void add(int rank, std::unique_ptr<Connection> connection, const SessionKeys& keys);
  void add_child(MemberAcceptor::Arrival arrival);
  void take_frames(int rank, Peer& neighbour, Received& received);
  void send_bytes(Peer& neighbour, std::string_view bytes);
  bool is_on_other_host(int rank) const;

  const WorldSpec& spec_;
  const ControlTree& tree_;
  Poller& poller_;
  std::string address_;
  std::optional<MemberAcceptor> acceptor_;  // until all children are connected
  std::map<int, Peer> peers_;               // by rank
  std::map<int, int> rank_of_fd_;
  TimePoint next_sign_of_life_{};
  std::shared_ptr<ShmMailbox> mailbox_;
};

}  // namespace hvd::runtime
