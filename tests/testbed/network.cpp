#include "tests/testbed/network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/delay_line.h"
#include "tests/testbed/system.h"

namespace hvd::test::bed {
namespace {

// A number with its unit, in units of `units[0]`.
double parse_with_unit(const std::string& text, const std::string& what,
                       const std::vector<std::pair<std::string, double>>& units) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  for (const auto& [unit, factor] : units) {
    if (end > 0 && value >= 0 && text.substr(end) == unit) return value * factor;
  }
  throw std::runtime_error(cat(what, " \"", text, "\" is no number with a unit such as ",
                               units.front().first, " or ", units.back().first));
}

std::chrono::nanoseconds parse_delay(const std::string& text) {
  const double seconds = parse_with_unit(text, "delay", {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
  return std::chrono::nanoseconds(static_cast<long long>(seconds * 1e9));
}

double parse_rate(const std::string& text) {
  return parse_with_unit(text, "rate", {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}});
}

}  // namespace

Network::Network(const Plan& plan) : plan_(plan) {
  for (int number = 0; number <= plan.last(); ++number) ports_[number];
}

Network::~Network() = default;  // the processes end with the bed's first one

std::string Network::device(int number) const { return name_of(number); }

void Network::plug(const std::map<int, pid_t>& pids) {
  std::string batch;
  if (!has_bridge_) {
    batch += cat("link add ", kBridge, " type bridge mcast_snooping 0\nlink set ", kBridge,
                 " addrgenmode none up\n");
  }
  for (const auto& [number, pid] : pids) {
    batch += cat("link add ", device(number), " type veth peer name eth0 address ", mac_of(number),
                 " netns ", pid, "\nlink set ", device(number), " master ", kBridge,
                 " addrgenmode none up\n");
  }
  run_program({.arguments = {"ip", "-batch", "-"}, .input = batch});
  has_bridge_ = true;
  for (const auto& [number, pid] : pids) ports_.at(number).pidfd = open_pidfd(pid);
}

void Network::apply_to(int number) {
  const Port& port = ports_.at(number);
  if (port.off) set_state(number, false);
  if (!port.shape.rate.empty()) set_rate(number);
  if (!port.shape.delay.empty()) set_delay(number);
  const bool lossy = std::any_of(ports_.begin(), ports_.end(),
                                 [](const auto& entry) { return entry.second.shape.loss > 0; });
  if (lossy || !port.cut_from.empty() || !port.shape.delay.empty()) set_rules(number);
}

void Network::silence(int number) { set_state(number, false); }

void Network::unplug(int number) {
  Port& port = ports_.at(number);
  end_delay(port);
  port.pidfd.reset();
  port.hooked = false;
  port.limited = false;
  try {
    run_program({.arguments = {"ip", "link", "delete", device(number)}});
  } catch (const std::runtime_error&) {
    // The kernel does so by itself, some time after the host's network lost its last process.
    if (::if_nametoindex(device(number).c_str()) != 0) throw;
  }
}

void Network::set_state(int number, bool forwarding) {
  run_program({.arguments = {"bridge", "link", "set", "dev", device(number), "state",
                             forwarding ? "3" : "0"}});
}

void Network::cut_off(int number) {
  Port& port = ports_.at(number);
  port.off = true;
  if (port.pidfd) set_state(number, false);
}

void Network::cut(int one, int other) {
  ports_.at(one).cut_from.insert(other);
  ports_.at(other).cut_from.insert(one);
  set_rules(one);
  set_rules(other);
}

void Network::heal() {
  for (auto& [number, port] : ports_) {
    if (port.off && port.pidfd) set_state(number, true);
    port.off = false;
    if (port.cut_from.empty()) continue;
    port.cut_from.clear();
    set_rules(number);
  }
}

std::string Network::filter_rules(int number, bool ipv6) const {
  const Port& port = ports_.at(number);
  std::string text;
  for (const auto& [other, its] : ports_) {
    if (other == number) continue;
    std::vector<std::string> from{ipv6 ? ipv6_of(other) : ipv4_of(other)};
    if (ipv6) from.push_back(link_local_of(other));
    for (const auto& address : from) {
      if (port.cut_from.count(other) != 0) text += cat("-A HVD -s ", address, " -j DROP\n");
      if (its.shape.loss > 0) {
        text += cat("-A HVD -s ", address, " -m statistic --mode random --probability ",
                    its.shape.loss, " -j DROP\n");
      }
    }
  }
  if (port.shape.loss > 0) {
    text += cat("-A HVD -m statistic --mode random --probability ", port.shape.loss, " -j DROP\n");
  }
  return text;
}

// In chains of our own, so that what a test sets up there by itself stays.
void Network::set_rules(int number) {
  Port& port = ports_.at(number);
  if (!port.pidfd) return;
  const std::string hook = port.hooked ? "" : "-A INPUT -i eth0 -j HVD\n";
  for (const bool ipv6 : {false, true}) {
    if (ipv6 ? !plan_.options.ipv6 : !plan_.options.ipv4) continue;
    std::string rules = cat("*filter\n:HVD - [0:0]\n", hook, filter_rules(number, ipv6),
                            "COMMIT\n*mangle\n:HVD - [0:0]\n", hook);
    if (port.delay_line > 0) {
      rules += cat("-A HVD -j NFQUEUE --queue-num ", kDelayQueue, " --queue-bypass\n");
    }
    run_program(
        {.arguments = {ipv6 ? "ip6tables-restore" : "iptables-restore", "--wait", "--noflush"},
         .input = rules + "COMMIT\n",
         .network_of = port.pidfd.get()});
  }
  port.hooked = true;
}

void Network::set_all_rules() {
  for (const auto& [number, port] : ports_) set_rules(number);
}

void Network::shape(int number, const Shape& shape) {
  if (!shape.rate.empty()) parse_rate(shape.rate);
  if (!shape.delay.empty()) parse_delay(shape.delay);
  if (shape.loss < 0 || shape.loss > 1) {
    throw std::runtime_error(cat("loss ", shape.loss, " is not between 0 and 1"));
  }
  Port& port = ports_.at(number);
  const bool loss_changes = port.shape.loss != shape.loss;
  port.shape = shape;
  if (!port.pidfd) return;
  set_rate(number);
  set_delay(number);
  if (loss_changes) {
    set_all_rules();
  } else {
    set_rules(number);
  }
}

void Network::set_rate(int number) {
  Port& port = ports_.at(number);
  const auto both = [&](const std::vector<std::string>& here,
                        const std::vector<std::string>& rest) {
    for (const bool inside : {true, false}) {
      std::vector<std::string> arguments{"tc", "qdisc"};
      arguments.insert(arguments.end(), here.begin(), here.end());
      arguments.insert(arguments.end(), {"dev", inside ? "eth0" : device(number), "root"});
      arguments.insert(arguments.end(), rest.begin(), rest.end());
      run_program({.arguments = arguments, .network_of = inside ? port.pidfd.get() : -1});
    }
  };
  if (port.limited) both({"delete"}, {});
  port.limited = !port.shape.rate.empty();
  if (!port.limited) return;
  const double bytes_per_second = parse_rate(port.shape.rate) / 8;
  // Two milliseconds at full rate, so that timers keep up; never less than some packets.
  const long burst = std::clamp(static_cast<long>(bytes_per_second / 500), 16384L, 1L << 20);
  both({"add"},
       {"tbf", "rate", port.shape.rate, "burst", std::to_string(burst), "latency", "50ms"});
}

void Network::set_delay(int number) {
  Port& port = ports_.at(number);
  const bool had_one = port.delay_line > 0;
  if (had_one) {
    // First no new packets, then the line lets go what it holds.
    const pid_t line = std::exchange(port.delay_line, -1);
    set_rules(number);
    port.delay_line = line;
    end_delay(port);
  }
  if (port.shape.delay.empty()) return;
  const auto delay = parse_delay(port.shape.delay);
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    throw_errno("socketpair");
  UniqueFd ours(pair[0]);
  UniqueFd its(pair[1]);
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    try {
      enter_namespaces(port.pidfd.get(), CLONE_NEWNET, name_of(number));
      close_others(its.get());
      be_delay_line(delay, its.get());
    } catch (const std::exception& error) {
      tell(its.get(), error.what());
    }
    ::_exit(0);
  }
  its.reset();
  std::array<char, 512> said{};
  const ssize_t got = ::read(ours.get(), said.data(), said.size() - 1);
  if (got != 1) {
    ::waitpid(pid, nullptr, 0);
    throw std::runtime_error(cat("delay packets of ", name_of(number), ": ", said.data()));
  }
  port.delay_line = pid;
  port.delay_control = std::move(ours);
}

void Network::end_delay(Port& port) {
  if (port.delay_line <= 0) return;
  port.delay_control.reset();
  ::waitpid(port.delay_line, nullptr, 0);
  port.delay_line = -1;
}

}  // namespace hvd::test::bed
