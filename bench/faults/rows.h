// The faults that are measured, and how one is.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/times.h"
#include "tests/many_hosts/steps_job.h"

namespace hvd::bench {

struct BenchOptions {
  int rounds = 20;
  long state = 100'000'000;
  long frozen = 0;
  std::string rate = {};
  long step_us = 10'000;
};

// In milliseconds.
struct Times {
  std::vector<double> noticed;
  std::vector<double> recovered;
  std::vector<std::pair<std::string, std::vector<double>>> phases;
  double step = 0;  // the median step when nothing happens
};

// The parts of a job that a round hands on.
struct Scene {
  test::HostBed& bed;
  test::StepsJob& job;
  std::vector<const test::StepLog*> members;  // by rank, before the fault
};

struct Row {
  std::string name;
  std::string noticed_by;
  int hosts = 0;  // 0: all workers run on the head
  int size = 4;
  test::StepsJobOptions options;
  // Does it, and returns when, in microseconds of the monotonic clock.
  std::function<std::int64_t(Scene&)> inject;
  // The message of hvdrun when it notices the fault; empty: there is none.
  std::string words = {};
  // Undone after a round, so that the world becomes whole again.
  std::function<void(Scene&)> undo = {};
  int size_after = 0;  // of the world that the fault leads to; 0: any
  // Between rounds: workers that fail by themselves, one after the other and all alike, look like a
  // fault of the program.
  std::chrono::milliseconds pause{0};
  bool ends_the_job = false;  // then `recovered` is the time until nothing of it is left
};

std::vector<Row> rows(const BenchOptions& options);
// Throws std::runtime_error if the job does not do what it should.
Times measure(const Row& row, const BenchOptions& options);

std::int64_t now_us();

}  // namespace hvd::bench
