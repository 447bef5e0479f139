// Who may write what into the store of a job. The holder of the job's key, which is hvdrun or
// whoever has the token file of `hvdrun rendezvous`, may write anything. A worker may write
//
//     world                     nothing: hvdrun says which worlds there are
//     world.<generation>.*      of a world that it is a member of: its own rank's entry, that it
//                               has given up, and as rank 0 the process sets
//     elastic                   the commits of a world that it is rank 0 of, until a newer one is
//                               in force
//     anything else             all of it: these scopes are the program's own
//
// and anybody who may ask may read all of it. Pure, a value; for one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::rendezvous {

using Incarnation = std::uint64_t;  // of a worker; 0: the holder of the job's key

// A worker that has a credential of its own (base/protocol/credentials.h).
struct KnownWorker {
  std::string name;  // "a#0"
  bool has_ended = false;
};
// Nothing: there was never such a worker.
using FindWorker = std::function<std::optional<KnownWorker>(Incarnation incarnation)>;

class Rights {
 public:
  // The members of this world by rank, from before it is published. The world that is in force is
  // known until another one is; of the others, which were before it or are proposed, the oldest are
  // forgotten when there are more than kWorlds and they have more than kMembers members together:
  // workers can be behind by many proposals.
  static constexpr std::size_t kWorlds = 64;
  static constexpr std::size_t kMembers = std::size_t{1} << 20;
  void set_members(std::uint64_t generation, std::vector<Incarnation> members, bool is_in_force);

  // Whether this worker may write the key, whose value is `current` now; an empty `value` takes it
  // away. permission_denied: the message says why not.
  Status check_write(Incarnation worker, std::string_view scope, std::string_view key,
                     std::string_view value, std::string_view current) const;

 private:
  Status check_entry(Incarnation worker, std::string_view scope, std::string_view key) const;
  Status check_commit(Incarnation worker, std::string_view key, std::string_view value,
                      std::string_view current) const;
  const std::vector<Incarnation>* members_of(std::string_view generation) const;

  std::map<std::uint64_t, std::vector<Incarnation>> members_;
  std::size_t count_ = 0;       // of all of them
  std::uint64_t in_force_ = 0;  // 0: none
};

}  // namespace hvd::rendezvous
