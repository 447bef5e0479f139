// Fixture of all tests of the test bed.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "tests/testbed/hosts.h"

namespace hvd::test {

class BedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = HostBed::why_impossible()) GTEST_SKIP() << *reason;
  }
};

// Options of ssh that prevent all questions to a person.
inline std::vector<std::string> ssh(const std::string& where, const std::string& command) {
  return {"ssh", "-o", "BatchMode=yes", where, command};
}

enum class Answer { connected, refused, silence };

// The banner of port 22 there.
inline Answer connect_from(Host& from, const std::string& to) {
  const auto status =
      from.run({"timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/" + to + "/22 && read -u 3 line"});
  if (status.code == 0) return Answer::connected;
  return status.code == 124 ? Answer::silence : Answer::refused;
}

}  // namespace hvd::test
