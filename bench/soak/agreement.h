// Whether a job says the same of itself wherever it is asked: `hvdrun status`, `hvdrun metrics`,
// its status page and its events are compared again and again while it runs. They are not asked at
// the same moment, so what only grows has to lie between what the events tell before and after.
//
// A hvdrun that is stopped does not answer: such a look is left out. Where the file of events lies
// on a bad disk, what `hvdrun status` tells before and after takes its place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <thread>

namespace hvd::soak {

// The numbers that one source reports. Each of them, except for the size, only grows.
struct Told {
  std::uint64_t generation = 0;  // of the world in force
  std::uint64_t worlds = 0;      // that have taken force
  std::uint64_t entered = 0;     // of which all members came to their first step
  std::uint64_t started = 0;     // workers
  std::size_t size = 0;          // of the world in force
};

// Follows a file of events while it grows.
class EventReader {
 public:
  explicit EventReader(const std::filesystem::path& file) : in_(file) {}
  // As of the last complete line.
  const Told& read();
  // Empty before the first line.
  const std::string& job_id() const { return job_id_; }

 private:
  void add(const std::string& line);

  std::ifstream in_;
  std::string incomplete_;
  std::string job_id_;
  Told told_;
};

// Compares `told` with what the events report before and after it. The result is the disagreement
// in words; empty: there is none.
std::string disagreement(const Told& before, const Told& told, const Told& after);

class Agreement {
 public:
  // Looks about twice a second, on a thread of its own, until stop().
  Agreement();
  ~Agreement() { stop(); }
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // From now on at `hvdrun`, which has a status page; its events are in `file`.
  void follow(const std::filesystem::path& file, pid_t hvdrun);
  // The file is late, or ends, from now on.
  void distrust_events();
  // Looks at nothing until follow().
  void pause();
  void stop();
  // After stop(): the first disagreement, or that the job hardly ever answered; empty: there is
  // none.
  std::string errors() const;
  std::size_t looks() const { return looks_; }

 private:
  void run();
  void look();
  // The answer that the others are compared with; empty: nobody answered.
  std::optional<Told> reference();
  void compare(const char* source, const Told& before, Told told, Told after);

  std::mutex mutex_;                   // held during a look
  std::optional<EventReader> events_;  // empty: there is nothing to look at
  bool trusts_events_ = true;
  pid_t hvdrun_ = -1;
  std::atomic<bool> ends_ = false;
  std::size_t tries_ = 0;
  std::size_t looks_ = 0;  // that were answered
  std::string error_;
  std::thread thread_;
};

}  // namespace hvd::soak
