// Checks of the programs that try the public API: one failed check ends a rank with its name.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <hvd/hvd.h>

namespace check {

template <typename T>
std::string text(const T& value) {
  std::ostringstream out;
  if constexpr (
      requires { value.begin() != value.end(); } && !requires { out << value; }) {
    out << "[";
    for (const auto& item : value) out << " " << text(item);
    out << " ]";
  } else {
    out << value;
  }
  return std::move(out).str();
}

inline void that(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("not so: " + what);
}

template <typename A, typename B>
void same(const A& found, const B& expected, const std::string& what) {
  if (!(found == expected)) {
    throw std::runtime_error(what + ": " + text(found) + " is not " + text(expected));
  }
}

template <typename T>
std::vector<T> elements(const hvd::Tensor& tensor) {
  const auto span = tensor.as<T>();
  return {span.begin(), span.end()};
}

// The text of the error that `call` throws, which must be an Error, and have all these parts.
template <typename Error>
std::string throws(const std::string& what, const std::vector<std::string>& parts,
                   const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    std::string said = error.what();
    for (const auto& part : parts) {
      if (said.find(part) != std::string::npos) continue;
      std::ostringstream missing;
      missing << what << ": \"" << part << "\" is in: " << said;
      that(false, missing.str());
    }
    return said;
  } catch (const std::exception& error) {
    throw std::runtime_error(what + ": another error than was expected: " + error.what());
  }
  throw std::runtime_error(what + ": nothing was thrown");
}

using Scenarios = std::map<std::string, std::function<void()>>;

// Runs the scenario that the command line names, and says "ok RANK." at its end.
inline int run(int argc, char** argv, const Scenarios& scenarios) {
  const auto scenario = argc == 2 ? scenarios.find(argv[1]) : scenarios.end();
  if (scenario == scenarios.end()) {
    std::fprintf(stderr, "no such scenario\n");
    return 2;
  }
  try {
    scenario->second();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
  }
  return 1;
}

inline void say_ok() {
  std::printf("ok %d.\n", hvd::rank());
  std::fflush(stdout);
}

}  // namespace check
