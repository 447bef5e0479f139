// Programs under the launchers of the MPIs that are installed: Open MPI's mpirun and MPICH's
// mpiexec. A test is skipped where its launcher is not there.
#pragma once

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <ostream>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {

struct MpiLauncher {
  const char* name;
  std::string program;
  Words flags;
  std::string rank;  // the variable that says it
};

inline std::ostream& operator<<(std::ostream& out, const MpiLauncher& one) {
  return out << one.name;
}

inline std::vector<MpiLauncher> mpi_launchers() {
  return {{"open_mpi", "/usr/bin/mpirun.openmpi", {"--allow-run-as-root"}, "OMPI_COMM_WORLD_RANK"},
          {"mpich", "/usr/bin/mpiexec.hydra", {}, "PMI_RANK"}};
}

inline std::string name_of_launcher(const testing::TestParamInfo<MpiLauncher>& launcher) {
  return launcher.param.name;
}

class UnderMpiTest : public JobTest, public testing::WithParamInterface<MpiLauncher> {
 protected:
  void SetUp() override {
    const std::string& program = GetParam().program;
    if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not installed";
    // Open MPI makes its session directory below HOME and TMPDIR.
    options_.environment = {{"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                            {"OMPI_MCA_plm", "isolated"},
                            {"TMPDIR", directory().string()}};
  }
  ExitStatus launch(int processes, const Words& command,
                    std::chrono::milliseconds limit = kGenerous) {
    Words words{GetParam().program};
    words.insert(words.end(), GetParam().flags.begin(), GetParam().flags.end());
    words.insert(words.end(), {"-np", cat(processes)});
    words.insert(words.end(), command.begin(), command.end());
    return run(words, options_, limit);
  }
  const std::string& rank_variable() const { return GetParam().rank; }
  bool is_open_mpi() const { return GetParam().name == std::string("open_mpi"); }

  ProcessOptions options_;
};

}  // namespace hvd::test
