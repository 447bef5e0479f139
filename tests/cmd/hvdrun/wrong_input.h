// Mistakes that a person can make, a row each; wrong_input_test.cpp tries them.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace hvd::test {

using Arguments = std::vector<std::string>;

struct WrongInput {
  const char* name;
  Arguments arguments;                            // for hvdrun; {dir} is the test's own folder
  int code;                                       // expected
  Arguments expected;                             // each stands in stderr
  std::map<std::string, std::string> files = {};  // made in the test's folder
  std::map<std::string, std::string> variables = {};
  bool close_stdin = false;
};

inline std::ostream& operator<<(std::ostream& out, const WrongInput& row) {
  return out << row.name;
}

// A file with this in it is made executable.
inline constexpr const char* kScript = "#!/bin/sh\necho started >> {dir}/started\n";

std::vector<WrongInput> wrong_settings();
std::vector<WrongInput> wrong_hosts_and_programs();

}  // namespace hvd::test
