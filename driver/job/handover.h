// Which of the workers that are to leave stay in the next planned world all the same. Pure.
//
//   - As many as that world lacks to its least size.
//   - One of each world that may be in force when the next one takes effect, unless another member
//     of it goes on: the members of a world have the state at the commit that ends it, and
//     the new members of the next one get it from them. Without one of them it would be lost.
//
// The workers with the most time left stay.
#pragma once

#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

struct Leaver {
  Incarnation incarnation = 0;
  TimePoint leave_by = kNever;
};

// `leavers` by rank; `missing`: to the least size; `going_on`: members of the next world anyway;
// `worlds`: the members of each world that may be in force by then.
std::vector<Incarnation> who_stays_on(std::vector<Leaver> leavers, std::size_t missing,
                                      const std::vector<Incarnation>& going_on,
                                      const std::vector<std::vector<Incarnation>>& worlds);

}  // namespace hvd::driver
