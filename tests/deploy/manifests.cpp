#include "tests/deploy/manifests.h"

#include <algorithm>
#include <stdexcept>
#include <yaml-cpp/yaml.h>

#include "base/text.h"

namespace hvd::test {
namespace {

void append_words(std::vector<std::string>& words, const YAML::Node& list) {
  for (const auto& word : list) words.push_back(word.as<std::string>());
}

std::vector<std::string> volumes_of(const YAML::Node& pod, const YAML::Node& container) {
  std::vector<std::string> found;
  for (const auto& mount : container["volumeMounts"]) {
    for (const auto& volume : pod["volumes"]) {
      if (volume["name"].as<std::string>() != mount["name"].as<std::string>()) continue;
      const char* const kind = volume["secret"]                  ? "secret"
                               : volume["persistentVolumeClaim"] ? "claim"
                                                                 : "empty";
      found.push_back(cat(kind, ":", mount["mountPath"].as<std::string>()));
    }
  }
  return found;
}

// As the kubelet does it: $(NAME) in a word is the container's variable of that name, also in the
// value of a later variable.
void expand(std::string& word, const std::vector<std::string>& variables) {
  for (const auto& variable : variables) {
    const auto equals = variable.find('=');
    const std::string mark = cat("$(", variable.substr(0, equals), ")");
    const auto at = word.find(mark);
    if (at != std::string::npos) word.replace(at, mark.size(), variable.substr(equals + 1));
  }
}

std::vector<std::string> variables_of(const YAML::Node& container) {
  std::vector<std::string> variables;
  for (const auto& variable : container["env"]) {
    // The only field that a manifest here asks for is the number of the Job.
    auto value = variable["value"].as<std::string>("0d6c1f2e-8f0b-4c55-9f5e-1b1f5f0c7a11");
    expand(value, variables);
    variables.push_back(cat(variable["name"].as<std::string>(), "=", value));
  }
  return variables;
}

int port_called(const YAML::Node& container, const std::string& name) {
  for (const auto& port : container["ports"]) {
    if (port["name"].as<std::string>() == name) return port["containerPort"].as<int>();
  }
  throw std::runtime_error("no port is called " + name);
}

PodSpec pod_of(const YAML::Node& object) {
  const YAML::Node pod = object["spec"]["template"]["spec"];
  const YAML::Node container = pod["containers"][0];
  const YAML::Node rights = container["securityContext"];
  if (!rights["readOnlyRootFilesystem"].as<bool>() || !pod["securityContext"]["runAsNonRoot"]) {
    throw std::runtime_error("its root can be written, or it may be root's");
  }

  PodSpec spec;
  append_words(spec.command, container["command"]);
  append_words(spec.command, container["args"]);
  spec.variables = variables_of(container);
  for (auto& word : spec.command) expand(word, spec.variables);
  spec.user = pod["securityContext"]["runAsUser"].as<int>();
  spec.group = pod["securityContext"]["runAsGroup"].as<int>();
  spec.fs_group = pod["securityContext"]["fsGroup"].as<int>();
  spec.grace = std::chrono::seconds(pod["terminationGracePeriodSeconds"].as<int>());
  spec.volumes = volumes_of(pod, container);

  if (container["livenessProbe"]) {
    const YAML::Node probe = container["livenessProbe"]["httpGet"];
    spec.probe_path = probe["path"].as<std::string>();
    spec.probe_port = port_called(container, probe["port"].as<std::string>());
  }
  for (const char* const number : {"replicas", "completions"}) {
    if (object["spec"][number]) spec.replicas = object["spec"][number].as<int>();
  }
  return spec;
}

}  // namespace

PodSpec PodSpec::with_program(const std::vector<std::string>& program) const {
  PodSpec other = *this;
  const auto end_of_options = std::find(other.command.begin(), other.command.end(), "--");
  if (end_of_options == other.command.end()) throw std::runtime_error("the pod has no program");
  other.command.erase(end_of_options + 1, other.command.end());
  other.command.insert(other.command.end(), program.begin(), program.end());
  return other;
}

std::filesystem::path kubernetes_folder() { return HVD_SOURCE_DIR "/deploy/kubernetes"; }

PodSpec read_pod(const std::string& file) {
  try {
    return pod_of(YAML::LoadFile(kubernetes_folder() / file));
  } catch (const std::exception& error) {
    throw std::runtime_error(cat("the pod of ", file, ": ", error.what()));
  }
}

}  // namespace hvd::test
