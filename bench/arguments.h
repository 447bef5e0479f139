// Command lines of benchmarks that are a few numbers, all of which may be left out.
#pragma once

#include <cstdlib>

namespace hvd::bench {

// Word `i`, of which the first is the program's name.
inline int number_argument(int argc, char** argv, int i, int otherwise) {
  return argc > i ? std::atoi(argv[i]) : otherwise;
}

}  // namespace hvd::bench
