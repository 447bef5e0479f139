// A world of the processes that another launcher has started, mpirun for instance: they tell each
// other through it where they are. The launcher decides on rank and size; what hvdrun would decide
// beside that, the addresses and the token, is decided here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/machine/machine.h"
#include "base/protocol/world_document.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "runtime/control/world.h"
#include "worker/launch/launcher_store.h"

namespace hvd::worker {

// The data about itself that each process tells the others. Its form is JSON.
struct Introduction {
  std::string build_id;
  std::string host;
  std::vector<Interface> interfaces;  // where it may be reached, the best first
  std::string wanted;                 // only these, "ib0,eth0"; empty: any
  // The world's, in hexadecimal digits. That of rank 0 counts, if the store has none.
  std::string token;

  std::string to_json() const;
  static Result<Introduction> from_json(std::string_view text);
};

// Those of the interfaces on which other hosts may reach this one: of `wanted` ("ib0,eth0"), in
// that order, if it is not empty. Else all, IPv4 before IPv6, but not loopback, link-local
// addresses and the bridges of containers and virtual machines.
std::vector<Interface> reachable_interfaces(const std::vector<Interface>& all,
                                            std::string_view wanted);

// The members by rank. All on one host meet at 127.0.0.1. Else they meet on the first interface of
// rank 0 that each of them has, or, if there is none, each one on its own first. An error names the
// rank and the host.
Result<std::vector<WorldMember>> arrange(const std::vector<Introduction>& introductions);

struct LaunchedWorld {
  std::vector<WorldMember> members;
  Token token;
};
// Called by all processes of the launcher.
Result<LaunchedWorld> meet(LauncherStore& store, const Introduction& own, TimePoint deadline);

class LauncherExchange final : public runtime::Exchange {
 public:
  explicit LauncherExchange(LauncherStore& store) : store_(store) {}
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override {
    return store_.gather(blob, deadline);
  }

 private:
  LauncherStore& store_;
};

}  // namespace hvd::worker
