// One step of a Slurm allocation: a child process `srun` that runs one command on one node, with a
// short text on its standard input.
//
// Owned by the driver; every call and callback on the thread that runs `io`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/status.h"

namespace hvd::driver::slurm {

class SrunStep {
 public:
  // `command` and `environment` are those of srun. `on_end` is called once, later, when srun has
  // ended and was reaped, unless this object is destroyed before.
  static Result<std::unique_ptr<SrunStep>> start(boost::asio::io_context& io,
                                                 const std::vector<std::string>& command,
                                                 const std::vector<std::string>& environment,
                                                 std::string_view input,
                                                 std::function<void()> on_end);
  ~SrunStep();  // kills srun, if it still runs
  SrunStep(const SrunStep&) = delete;
  SrunStep& operator=(const SrunStep&) = delete;

  bool runs() const;
  // Asks srun to end the step: SIGTERM.
  void stop();
  // Waits until srun has ended, at most so long.
  void wait_until(TimePoint deadline);
  // How srun has ended, with the last lines that it and the command have printed: "exited with code
  // 1: srun: error: Unable to create step for job 7: Invalid job id specified". Of a step that
  // runs, only what was printed.
  std::string text() const;

 private:
  class Impl;
  explicit SrunStep(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver::slurm
