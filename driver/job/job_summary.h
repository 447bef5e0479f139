// The summary of a job that has ended, in numbers for a person. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace hvd::driver {

struct JobSummary {
  Duration time{};         // from the beginning to the end
  std::size_t worlds = 0;  // that were in force
  std::size_t size = 0;    // of the last one
  std::size_t lost = 0;    // workers that ended against their will, or failed
  std::size_t joined = 0;  // workers that came into a world after the first
  // Steps of the program that were done again since a world ended without a commit, as far as the
  // program's names of tensors tell.
  std::uint64_t redone = 0;
  Duration held_up{};  // of the time, in which hvdrun was stopped or could not run
  // The share of the time since the first world in which no loss was left to be replaced by a new
  // world, without the time in which hvdrun was held up. Workers need a moment more to meet in
  // that, of which nobody tells hvdrun. Nothing: there was no world.
  std::optional<double> outside_recovery;
};

}  // namespace hvd::driver
