#include "base/wrapper.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hvd {
namespace {

constexpr std::string_view kConda =
    "activate the environment before hvdrun, or name its own program (ENVIRONMENT/bin/python)";

constexpr std::array kWrappers{
    Wrapper{"sudo", "", false, "run hvdrun itself by sudo, or the workers without it"},
    Wrapper{"conda", "run", false, kConda},
    Wrapper{"mamba", "run", false, kConda},
    Wrapper{"micromamba", "run", false, kConda},
    Wrapper{"docker", "", true, kContainerRemedy},
    Wrapper{"podman", "", true, kContainerRemedy},
    Wrapper{"nerdctl", "", true, kContainerRemedy},
    Wrapper{"kubectl", "", true, kContainerRemedy},
    Wrapper{"ssh", "", true, "hvdrun itself starts workers on other hosts (-H HOST:SLOTS)"},
};

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string Wrapper::name() const { return cat(program, word.empty() ? "" : " ", word); }

const Wrapper* find_wrapper(const std::vector<std::string>& command) {
  for (const auto& wrapper : kWrappers) {
    const auto end = command.begin() + std::min<std::ptrdiff_t>(2, std::ssize(command));
    const auto program = std::find_if(command.begin(), end, [&](const std::string& word) {
      return file_name(word) == wrapper.program;
    });
    if (program == end) continue;
    const bool is_one =
        wrapper.word.empty() || std::find(program, command.end(), wrapper.word) != command.end();
    if (is_one) return &wrapper;
  }
  return nullptr;
}

}  // namespace hvd
