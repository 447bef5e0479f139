// What tests look for in what programs print.
#pragma once

#include <string>

namespace hvd::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace hvd::test
