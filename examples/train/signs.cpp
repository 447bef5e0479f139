// SPDX-License-Identifier: Apache-2.0
#include "signs.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>

namespace train {

bool is_there(const std::filesystem::path& file) {
  std::error_code ignored;
  return !file.empty() && std::filesystem::exists(file, ignored);
}

void fail_if_there(const std::filesystem::path& file) {
  if (!is_there(file)) return;
  std::string words;
  std::getline(std::ifstream(file), words);
  std::error_code ignored;
  if (!std::filesystem::remove(file, ignored)) return;
  if (words == "exit 0") std::exit(0);
  std::fprintf(stderr, "train: %s tells this worker to fail\n", file.c_str());
  std::fflush(stderr);
  std::_Exit(1);
}

}  // namespace train
