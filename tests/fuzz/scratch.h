// A folder of this process, for targets whose input is a file. It goes with the process.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/fuzz/input.h"

namespace hvd::fuzz {

class Scratch {
 public:
  Scratch() {
    path_ = (std::filesystem::temp_directory_path() / "hvd_fuzz_XXXXXX").string();
    must(::mkdtemp(path_.data()) != nullptr, "there is room for files");
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hvd::fuzz
