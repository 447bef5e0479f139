#include "base/protocol/agent_link.h"

#include <set>

#include "base/machine/capacity.h"
#include "base/text.h"

namespace hvd::agent_link {

Status check(Stream stream) {
  const bool known = stream == Stream::standard_output || stream == Stream::standard_error;
  return known ? Status() : Status(Code::data_loss, "no such output stream");
}

Status Launch::check() const {
  return part < parts ? Status() : Status(Code::data_loss, "no such part of a host's processors");
}

Status check(Checked::Step step) {
  const bool known = step <= Checked::Step::find_program;
  return known ? Status() : Status(Code::data_loss, "no such step of a check");
}

Status Ready::check() const {
  const bool possible = gpus >= 0 && gpus <= kMaxSlots && visible_gpus >= 0 &&
                        visible_gpus <= kMaxSlots && cores >= 1 && cores <= kMaxSlots;
  if (possible) return {};
  return {Code::data_loss, cat("it has ", gpus, " GPUs, of which it may use ", visible_gpus,
                               ", and ", cores, " cores")};
}

Status HostLeaves::check() const {
  if (left_ms >= kUnknown) return {};
  return {Code::data_loss, cat("a host that is to be taken away has ", left_ms, " ms left")};
}

Status WorkReports::check() const {
  for (const auto& worker : workers) HVD_RETURN_IF_ERROR(worker.reading.check());
  return {};
}

Launch complete(const Program& program, Launch launch) {
  if (launch.command.empty()) launch.command = program.command;
  if (launch.working_directory.empty()) launch.working_directory = program.working_directory;

  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::set<std::string_view> set_by_launch;
  for (const auto& entry : launch.environment) set_by_launch.insert(name_of(entry));
  std::vector<std::string> environment;
  environment.reserve(program.environment.size() + launch.environment.size());
  for (const auto& entry : program.environment) {
    if (set_by_launch.count(name_of(entry)) == 0) environment.push_back(entry);
  }
  for (auto& entry : launch.environment) environment.push_back(std::move(entry));
  launch.environment = std::move(environment);

  launch.host_variables.insert(launch.host_variables.end(), program.host_variables.begin(),
                               program.host_variables.end());
  return launch;
}

}  // namespace hvd::agent_link
