// hvd-hosts: pretend hosts for benchmarks and for trying things by hand. Also what the test bed
// itself runs on, as `serve` and `enter`, which are not for people.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <sched.h>
#include <stdexcept>
#include <unistd.h>

#include "base/text.h"
#include "tests/support/exec_arguments.h"
#include "tests/testbed/bed_server.h"
#include "tests/testbed/hosts.h"
#include "tests/testbed/system.h"

namespace hvd::test {
namespace {

constexpr const char* kUsage =
    "hvd-hosts run N [options] [--] COMMAND...\n"
    "Makes N pretend hosts h1 to hN, runs COMMAND on one more, the head, which sees all files of\n"
    "this machine, takes everything down again and ends as COMMAND did. COMMAND finds the names "
    "of\n"
    "the hosts in HVD_HOSTS, separated by blanks, and may log in there by ssh. Needs root.\n"
    "  --place FILE             copies a file to every host's /root; may be repeated\n"
    "  --rate RATE              of every host's link, as 1gbit\n"
    "  --sshd-setting 'X Y'     a line of every host's sshd_config; may be repeated\n"
    "  --no-ipv4, --no-ipv6     only the other one\n"
    "  --unknown-hosts          the head's known_hosts is empty\n"
    "  --no-login               the head has no key\n";

int run_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    std::cout << kUsage;
    return arguments.empty() ? 2 : 0;
  }
  arguments.insert(arguments.begin(), "--hosts");
  std::vector<std::string> placed;
  std::string rate;
  std::vector<std::string> settings{arguments[0], arguments[1]};
  std::size_t at = 2;
  for (; at < arguments.size() && arguments[at].starts_with("--"); ++at) {
    if (arguments[at] == "--") {
      ++at;
      break;
    }
    const bool has_value = arguments[at] == "--place" || arguments[at] == "--rate" ||
                           arguments[at] == "--sshd-setting";
    if (has_value && at + 1 == arguments.size())
      throw std::runtime_error(arguments[at] + " needs a value");
    if (arguments[at] == "--place") {
      placed.push_back(arguments[++at]);
      continue;
    }
    if (arguments[at] == "--rate") {
      rate = arguments[++at];
      continue;
    }
    settings.push_back(arguments[at]);
    if (has_value) settings.push_back(arguments[++at]);
  }
  const std::vector<std::string> command(arguments.begin() + static_cast<std::ptrdiff_t>(at),
                                         arguments.end());
  const BedOptions options = bed::parse_options(settings);
  if (!settings.empty()) throw std::runtime_error("unknown word " + settings.front());
  if (command.empty()) throw std::runtime_error("no command to run");
  HostBed bed(options);
  std::vector<std::string> names;
  for (int number = 1; number <= bed.size(); ++number) {
    names.push_back(bed.host(number).name());
    for (const auto& file : placed) bed.host(number).place(file);
    if (!rate.empty()) bed.shape(bed.host(number), {.rate = rate});
  }
  return bed.head().run_attached(command, {.environment = {{"HVD_HOSTS", join(names, " ")}},
                                           .working_directory = std::filesystem::current_path()});
}

// hvd-hosts serve CONTROL MAKER options...
int serve(std::vector<std::string> arguments) {
  const auto control = parse_number<int>(arguments.at(0));
  const auto maker = parse_number<pid_t>(arguments.at(1));
  if (!control || !maker) throw std::runtime_error("serve: CONTROL and MAKER must be numbers");
  // Descriptors that the maker left open by mistake must not outlive it here.
  bed::close_others(*control);
  ::fcntl(*control, F_SETFD, FD_CLOEXEC);
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  bed::Plan plan;
  plan.options = bed::parse_options(arguments);
  plan.source = HVD_SOURCE_DIR;
  plan.build = std::filesystem::path(HVD_BIN_DIR).parent_path();
  return bed::serve_bed(std::move(plan), *control, *maker);
}

// hvd-hosts enter NAME DIRECTORY COMMAND...: born among the host's processes, it goes there with
// the rest, too.
int enter(std::vector<std::string> arguments) {
  const std::string name = arguments.at(0);
  bed::give_up_the_clock();
  bed::enter_namespaces(bed::open_pidfd(1).get(),
                        CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC, name);
  if (::chdir(arguments.at(1).c_str()) != 0) {
    bed::throw_errno(cat(name, ": change to the directory ", arguments.at(1)));
  }
  arguments.erase(arguments.begin(), arguments.begin() + 2);
  ::execvp(arguments.front().c_str(), exec_arguments(arguments).data());
  std::cerr << name << ": cannot run " << arguments.front() << ": " << std::strerror(errno) << "\n";
  return 127;
}

int main_of(std::vector<std::string> arguments) {
  const std::string verb = arguments.empty() ? "" : arguments.front();
  if (!arguments.empty()) arguments.erase(arguments.begin());
  if (verb == "run") return run_command(std::move(arguments));
  if (verb == "serve" && arguments.size() >= 2) return serve(std::move(arguments));
  if (verb == "enter" && arguments.size() >= 3) return enter(std::move(arguments));
  const bool asked = verb == "--help" || verb == "-h";
  (asked ? std::cout : std::cerr) << kUsage;
  return asked ? 0 : 2;
}

}  // namespace
}  // namespace hvd::test

int main(int argc, char** argv) {
  try {
    return hvd::test::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "hvd-hosts: " << error.what() << "\n";
    return 1;
  }
}
