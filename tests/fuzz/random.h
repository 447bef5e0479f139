// Pseudo-random numbers from a seed, the same on every machine. A value, for one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace hvd::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t any() { return engine_(); }
  std::size_t below(std::size_t end) { return static_cast<std::size_t>(engine_() % end); }
  int between(int least, int most) {
    return least + static_cast<int>(below(static_cast<std::size_t>(most - least) + 1));
  }
  bool percent(int chance) { return between(1, 100) <= chance; }
  // Each power of two up to `most` is as likely as the others.
  std::size_t up_to(std::size_t most) {
    const double share = static_cast<double>(below(1'000'001)) / 1e6;
    return static_cast<std::size_t>(std::exp2(share * std::log2(static_cast<double>(most))));
  }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  template <typename T>
  void shuffle(std::vector<T>& all) {
    for (std::size_t left = all.size(); left > 1; --left) {
      std::swap(all[left - 1], all[below(left)]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// Mixes the bits of a number with a pattern into a pseudo-random one.
inline std::uint64_t mixed(std::uint64_t number) {
  number = (number ^ (number >> 30)) * 0xBF58'476D'1CE4'E5B9U;
  number = (number ^ (number >> 27)) * 0x94D0'49BB'1331'11EBU;
  return number ^ (number >> 31);
}

}  // namespace hvd::fuzz
