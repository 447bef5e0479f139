// The wire of a bed: a bridge with one port for each host, in a network of its own, and what is
// done there to the traffic. Lives in the bed's first process. Throws std::runtime_error.
//
// Silence is total: a cut drops packets on the bridge or where they arrive, never where they are
// sent, since there the kernel would tell the sender.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "tests/testbed/plan.h"

namespace hvd::test::bed {

inline constexpr const char* kBridge = "wire";

class Network {
 public:
  explicit Network(const Plan& plan);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Gives each of these hosts its eth0, all at a time. `pids` are of their first processes.
  void plug(const std::map<int, pid_t>& pids);
  // Once eth0 is up there: cuts and shapes that are in force hold for it too.
  void apply_to(int number);
  // No packet from now on; then, when the host is gone, its port is taken away.
  void silence(int number);
  void unplug(int number);

  void cut_off(int number);
  void cut(int one, int other);
  void heal();
  void shape(int number, const Shape& shape);
  void capture(const std::string& file);
  void end_capture();

 private:
  struct Port {
    UniqueFd pidfd;  // of the host's first process; none: it is off
    bool off = false;
    std::set<int> cut_from;
    Shape shape;
    bool limited = false;
    bool hooked = false;  // our chains are there
    pid_t delay_line = -1;
    UniqueFd delay_control;
  };

  std::string device(int number) const;
  void set_state(int number, bool forwarding);
  void set_rules(int number);
  void set_all_rules();
  std::string filter_rules(int number, bool ipv6) const;
  void set_rate(int number);
  void set_delay(int number);
  void end_delay(Port& port);
  void await_marker();

  const Plan& plan_;
  std::map<int, Port> ports_;
  bool has_bridge_ = false;
  pid_t tcpdump_ = -1;
  std::string capture_file_;
};

}  // namespace hvd::test::bed
