// The pods of deploy/kubernetes, as far as a test that runs them has to know them.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace hvd::test {

// Its one container, and what the kubelet does around it.
struct PodSpec {
  std::vector<std::string> command;    // command and args
  std::vector<std::string> variables;  // "NAME=value"
  int user = -1;
  int group = -1;
  int fs_group = -1;
  std::chrono::seconds grace{0};     // from SIGTERM to SIGKILL
  std::vector<std::string> volumes;  // "secret:/etc/hvd", "empty:/tmp", "claim:/state"
  std::string probe_path;            // of the liveness probe; empty: there is none
  int probe_port = 0;
  int replicas = 1;  // or completions

  // The same pod with another program behind "--".
  PodSpec with_program(const std::vector<std::string>& program) const;
};

std::filesystem::path kubernetes_folder();

// The pod of a Job or StatefulSet, from a file like "elastic/driver.yaml". Throws
// std::runtime_error if the file lacks what a pod here must have: a root that is read-only, an
// ordinary user.
PodSpec read_pod(const std::string& file);

}  // namespace hvd::test
