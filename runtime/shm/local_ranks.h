// The ranks of a world that share this rank's host: which they are by their host names, and whether
// they really share memory. Without memory, for whatever reason, the world goes
// on over its connections; the first rank of the host says why in the log.
//
// Made on the thread whose cores the world's threads may use;
// open() before the members exchange what they are, form() once after it, by one thread; abort()
// may come from any at any time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/shm/shm_group.h"
#include "runtime/shm/shm_mailbox.h"
#include "runtime/shm/shm_rendezvous.h"

namespace hvd::runtime {

struct WorldSpec;

class LocalRanks {
 public:
  // The spec must outlive it.
  explicit LocalRanks(const WorldSpec& spec);

  // Where the ranks of this host outnumber its cores: the one for all threads of this rank. The
  // scheduler is too slow to spread threads that sleep and wake every few microseconds, and a core
  // idles while three ranks wait for another. None: there is a core for each rank, or the
  // user has chosen cores.
  std::optional<int> core() const;
  // Each rank of this host may have a core of its own: waiting may spin for a moment.
  bool own_cores() const;
  // All ranks of the world are on this host, and outnumber the cores of the machine. The cores that
  // this rank may use do not tell: others may use other ones.
  bool share_all_cores() const { return share_all_cores_; }

  // The text that the others must know of this rank; empty: it does without.
  std::string open();
  // `names[r]` is what open() says on rank r. An error: the ranks of this host cannot agree.
  Status form(const std::vector<std::string>& names, TimePoint deadline);
  // The group that the ranks share after that; null: nothing.
  const std::shared_ptr<ShmGroup>& shared() const { return host_; }
  std::shared_ptr<ShmMailbox> mailbox() const { return mailbox_; }
  // What they share it in, likewise.
  const std::optional<ShmLayout>& memory() const { return memory_; }
  void abort();

 private:
  const WorldSpec& spec_;
  std::vector<int> ranks_;  // of the world, on this host
  std::vector<int> cores_;  // that they may use
  bool share_all_cores_ = false;
  Status closed_;  // why open() said nothing
  std::mutex mutex_;
  bool aborted_ = false;                     // guarded by mutex_
  std::optional<ShmRendezvous> rendezvous_;  // made under mutex_, and ended
  std::shared_ptr<ShmGroup> host_;           // set under mutex_
  std::shared_ptr<ShmMailbox> mailbox_;
  std::optional<ShmLayout> memory_;
};

}  // namespace hvd::runtime
