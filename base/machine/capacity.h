// The resources of a machine for workers, and how many workers it has room for if nobody says so.
#pragma once

#include <string>

namespace hvd {

inline constexpr int kMaxSlots = 65'536;  // of one host; more is a slip of the finger, or a lie

struct Capacity {
  int gpus = 0;   // that may be used
  int cores = 1;  // likewise
  friend bool operator==(const Capacity&, const Capacity&) = default;
};

// One for each GPU; without any, one for each core.
int slots_by(const Capacity& capacity);
// "4 slots, one for each GPU"
std::string slots_text(const Capacity& capacity);

// As this process sees it, with what CUDA_VISIBLE_DEVICES leaves it. Asks the system each time; any
// thread may call.
Capacity capacity_of_this_machine();

}  // namespace hvd
