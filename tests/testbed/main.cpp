// hvd-hosts: pretend hosts for benchmarks and for trying things by hand. Also what the test bed
// itself runs on, by the words `keep` and `enter`, which are not for people.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <sched.h>
#include <stdexcept>
#include <unistd.h>

#include "base/text.h"
#include "tests/testbed/hosts.h"
#include "tests/testbed/keeper.h"
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

int run_command(std::vector<std::string> words) {
  if (words.empty() || words.front() == "--help" || words.front() == "-h") {
    std::cout << kUsage;
    return words.empty() ? 2 : 0;
  }
  words.insert(words.begin(), "--hosts");
  std::vector<std::string> placed;
  std::string rate;
  std::vector<std::string> settings{words[0], words[1]};
  std::size_t at = 2;
  for (; at < words.size() && words[at].starts_with("--"); ++at) {
    if (words[at] == "--") {
      ++at;
      break;
    }
    const bool has_value =
        words[at] == "--place" || words[at] == "--rate" || words[at] == "--sshd-setting";
    if (has_value && at + 1 == words.size()) throw std::runtime_error(words[at] + " needs a value");
    if (words[at] == "--place") {
      placed.push_back(words[++at]);
      continue;
    }
    if (words[at] == "--rate") {
      rate = words[++at];
      continue;
    }
    settings.push_back(words[at]);
    if (has_value) settings.push_back(words[++at]);
  }
  const std::vector<std::string> command(words.begin() + static_cast<std::ptrdiff_t>(at),
                                         words.end());
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

// hvd-hosts keep CONTROL MAKER options...
int keep(std::vector<std::string> words) {
  const auto control = parse_number<int>(words.at(0));
  const auto maker = parse_number<pid_t>(words.at(1));
  if (!control || !maker) throw std::runtime_error("keep: no numbers");
  // What the maker left open by mistake must not outlive it here.
  bed::close_others(*control);
  ::fcntl(*control, F_SETFD, FD_CLOEXEC);
  words.erase(words.begin(), words.begin() + 2);
  bed::Plan plan;
  plan.options = bed::parse_options(words);
  plan.source = HVD_SOURCE_DIR;
  plan.build = std::filesystem::path(HVD_BIN_DIR).parent_path();
  return bed::keep_bed(std::move(plan), *control, *maker);
}

// hvd-hosts enter NAME DIRECTORY COMMAND...: born among the host's processes, it goes there with
// the rest, too.
int enter(std::vector<std::string> words) {
  const std::string name = words.at(0);
  bed::enter_namespaces(bed::open_pidfd(1).get(),
                        CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC, name);
  if (::chdir(words.at(1).c_str()) != 0) {
    bed::throw_errno(cat(name, ": change to the directory ", words.at(1)));
  }
  words.erase(words.begin(), words.begin() + 2);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(arguments.front(), arguments.data());
  std::cerr << name << ": cannot run " << words.front() << ": " << std::strerror(errno) << "\n";
  return 127;
}

int main_of(std::vector<std::string> words) {
  const std::string verb = words.empty() ? "" : words.front();
  if (!words.empty()) words.erase(words.begin());
  if (verb == "run") return run_command(std::move(words));
  if (verb == "keep" && words.size() >= 2) return keep(std::move(words));
  if (verb == "enter" && words.size() >= 3) return enter(std::move(words));
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
