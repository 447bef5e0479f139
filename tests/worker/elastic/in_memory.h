// Whether memory has pages already, or gets them when it is written to.
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "worker/elastic/store.h"

namespace hvd::test {

// Of a large one, which begins with a page.
inline bool is_in_memory(worker::Buffer& buffer) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((buffer.size() + page - 1) / page);
  EXPECT_EQ(::mincore(buffer.bytes().data(), buffer.size(), pages.data()), 0);
  return std::all_of(pages.begin(), pages.end(), [](unsigned char one) { return one & 1U; });
}

}  // namespace hvd::test
