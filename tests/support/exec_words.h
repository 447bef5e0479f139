// Texts as exec and posix_spawn want them.
#pragma once

#include <string>
#include <vector>

namespace hvd::test {

// Pointers to the texts, and a null at the end. Good for as long as the texts are.
inline std::vector<char*> exec_words(std::vector<std::string>& texts) {
  std::vector<char*> words;
  words.reserve(texts.size() + 1);
  for (auto& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  return words;
}

}  // namespace hvd::test
