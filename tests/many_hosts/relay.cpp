#include "tests/many_hosts/relay.h"

#include <chrono>
#include <csignal>
#include <stdexcept>

#include "base/text.h"

namespace hvd::test {
namespace {

constexpr const char* kProgram = HVD_SOURCE_DIR "/tests/many_hosts/programs/relay.py";
constexpr const char* kPort = "999";

// Its rules are all that a host has in this table.
void redirect(Host& host, const std::string& ports) {
  const auto set = host.shell(cat("iptables -t nat -A OUTPUT -p tcp ! -o lo --dport ", ports,
                                  " -m mark ! --mark 7 -j REDIRECT --to-ports ", kPort));
  if (set.code != 0) throw std::runtime_error(cat("send connections to the relay: ", set.err));
}

}  // namespace

Relay::Relay(Host& host, const std::string& ports, const Words& rules) : host_(host) {
  Words command{"python3", "relay.py", kPort};
  command.insert(command.end(), rules.begin(), rules.end());
  host_.place(kProgram);
  process_ = host_.start(command);
  if (!process_->wait_for_output("listening")) {
    throw std::runtime_error(cat("the relay does not listen: ", process_->err()));
  }
  redirect(host_, ports);
}

Relay::~Relay() {
  host_.shell("iptables -t nat -F OUTPUT");
  process_->signal(SIGKILL);
  process_->wait();
}

bool Relay::acts(const std::string& what) { return process_->wait_for_output(what); }

std::string Relay::acted() {
  // Reads what there is.
  process_->wait_for_output("what no relay says", std::chrono::milliseconds(20));
  const std::string& said = process_->out();
  return said.substr(said.find('\n') + 1);
}

}  // namespace hvd::test
