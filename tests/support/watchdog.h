// A limit of time for each test of a program that has tests/support/watchdog.cpp among its sources:
// one that hangs ends the program with 1 and is named, where it would else stand there until
// somebody ends it. For tests of what reads and waits by itself; sockets, frames, wire.
#pragma once

#include <chrono>
#include <string>

namespace hvd::test {

// The test of this name is to end within so long; the one before has.
void begin_watch(const std::string& name, std::chrono::milliseconds limit);
void end_watch();

}  // namespace hvd::test
