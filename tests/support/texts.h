// Searches of tests in the output of programs.
#pragma once

#include <string>

namespace hvd::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hvd::test
