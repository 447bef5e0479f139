// Who may write what into the store of a job. The holder of the job's key, which is hvdrun or
// whoever has the token file of `hvdrun rendezvous`, may write anything. A worker may write
//
//     world                     nothing: hvdrun says which worlds there are
//     world.<generation>.*      of a world that it is a member of: its own rank's entry, that it
//     has
//                               given up, and as rank 0 the process sets
//     elastic                   the commits of a world that it is rank 0 of
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
  // The members of this world by rank, from before it is published. Of worlds that are older than
  // the kWorlds newest ones nothing is known any more: workers can be behind by some.
  static constexpr std::size_t kWorlds = 64;
  void set_members(std::uint64_t generation, std::vector<Incarnation> members);

  // Whether this worker may write the key; an empty `value` takes it away. permission_denied: the
  // message says why not.
  Status check_write(Incarnation worker, std::string_view scope, std::string_view key,
                     std::string_view value) const;

 private:
  Status check_entry(Incarnation worker, std::string_view scope, std::string_view key) const;
  Status check_commit(Incarnation worker, std::string_view key, std::string_view value) const;
  const std::vector<Incarnation>* members_of(std::string_view generation) const;

  std::map<std::uint64_t, std::vector<Incarnation>> members_;
};

}  // namespace hvd::rendezvous
