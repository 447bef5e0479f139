// Arguments in the form of exec and posix_spawn.
#pragma once

#include <string>
#include <vector>

namespace hvd::test {

// Pointers to the texts and a final null. They are valid as long as the texts are.
inline std::vector<char*> exec_arguments(std::vector<std::string>& texts) {
  std::vector<char*> arguments;
  arguments.reserve(texts.size() + 1);
  for (auto& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  return arguments;
}

}  // namespace hvd::test
