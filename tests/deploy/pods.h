// Pods on pretend hosts. A host of the bed is the pod's sandbox: its network, and its address. In
// it runs one container with PID, mount, IPC and UTS namespaces of its own, which container.sh
// makes. Needs root. For one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/deploy/manifests.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {

// Makes a host ready for pods: programs below /opt/hvd, as in an image, the token, an /etc/hosts
// that knows no other pod, an empty /data, and an empty volume for claims.
void prepare_for_pods(Host& host, const std::vector<std::string>& programs);
// From now on pods on `host` find this address, and no other one, under this name.
void publish_name(Host& host, const std::string& address, const std::string& name);
// The files of /data there.
std::filesystem::path data_of(const Host& host);
// The volume of claims is detached from one host and attached to the other.
void move_volume(const Host& from, const Host& to);

class Pod {
 public:
  // Starts it. The host outlives the pod.
  Pod(Host& host, PodSpec spec, const std::string& name);

  // As a kubelet ends a pod that was deleted: SIGTERM to process 1, SIGKILL after the grace period.
  // The code is 137 then.
  ExitStatus remove();
  // As `kubectl exec`.
  ExitStatus exec(const std::vector<std::string>& command) const;
  // The node takes it away without a word.
  void kill();
  ExitStatus wait() { return process_->wait(); }
  bool wait_for_error(const std::string& text) { return process_->wait_for_error(text); }
  // Everything that it has said so far.
  std::string said() const { return process_->out() + process_->err(); }

 private:
  pid_t first_process() const;

  PodSpec spec_;
  std::unique_ptr<Process> process_;
};

}  // namespace hvd::test
