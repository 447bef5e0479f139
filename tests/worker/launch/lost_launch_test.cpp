// Programs between hvdrun and its workers that clear their environment or close their descriptors.
#include <filesystem>
#include <string>

#include "base/text.h"
#include "tests/e2e/job_test.h"

namespace hvd::test {
namespace {

class LostLaunchTest : public JobTest {
 protected:
  // A wrapper of this name, written in Python, which waits for the program as the real one does.
  std::string wrapper(const std::string& name, const std::string& body) {
    const std::string path = directory_file(
        name, cat("#!/usr/bin/python3\nimport os, subprocess, sys\nsys.exit(", body, ")\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  ExitStatus run_wrapped(const Words& wrapper) {
    Words words{"-np", "2"};
    words.insert(words.end(), wrapper.begin(), wrapper.end());
    words.insert(words.end(), {program_, "place"});
    return run_job(words);
  }
  void expect_refused(const Words& wrapper, const std::string& said) {
    const ExitStatus end = run_wrapped(wrapper);
    EXPECT_NE(end.code, 0) << end.out;
    EXPECT_EQ(end.out.find("rank 0 of 1"), std::string::npos) << end.out;
    EXPECT_NE(end.err.find(said), std::string::npos) << end.err;
  }

  const std::string program_ = binary("hvd_worker_program");
};

TEST_F(LostLaunchTest, AWorkerWithoutItsEnvironmentIsNoWorldOfOne) {
  expect_refused({"env", "-i"},
                 "hvdrun has started this process as a worker, but a program in between has "
                 "cleared its environment (HVD_WORKER_FD is not set): it would train alone");
}

// The processes above it cannot be seen there, and its descriptors are those of a worker.
TEST_F(LostLaunchTest, NorInANamespaceOfItsOwn) {
  const Words isolated{"unshare", "--user",  "--map-root-user", "--pid",
                       "--fork",  "--mount", "--mount-proc",    "env"};
  Words check = isolated;
  check.emplace_back("true");
  if (run(check).code != 0) GTEST_SKIP() << "no namespaces can be made here";
  Words clearing = isolated;
  clearing.emplace_back("-i");
  expect_refused(clearing, "has cleared its environment");
}

TEST_F(LostLaunchTest, AWorkerThatIsMeantToBeAloneIsOne) {
  const ExitStatus end = run_wrapped({"env", "-i", "HVD_ALLOW_SINGLE=1"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(lines_of_rank(end.out, 1),
            Words{"rank 0 of 1, local 0 of 1, cross 0 of 1, homogeneous, sum 1"});
}

TEST_F(LostLaunchTest, SudoIsNamedWithWhatToDo) {
  const std::string sudo = wrapper("sudo", "subprocess.run(sys.argv[1:], env={}).returncode");
  expect_refused({sudo},
                 "but sudo has cleared its environment (HVD_WORKER_FD is not set): it would train "
                 "alone, in a world of one. To be a worker: run hvdrun itself by sudo");
  const std::string keeping = wrapper("sudo", "subprocess.run(sys.argv[2:]).returncode");
  expect_refused({keeping, "-E"},
                 "the link to hvdrun is closed in this process. sudo has closed it: run hvdrun");
}

TEST_F(LostLaunchTest, CondaRunIsNamedWithWhatToDo) {
  const std::string conda = wrapper("conda", "subprocess.run(sys.argv[2:]).returncode");
  expect_refused({conda, "run"},
                 "the link to hvdrun is closed in this process. conda run has closed it: activate "
                 "the environment before hvdrun");
}

TEST_F(LostLaunchTest, OthersAreNamedByTheirPrograms) {
  const std::string own = wrapper("own", "subprocess.run(sys.argv[1:]).returncode");
  expect_refused({own},
                 "Either a program between hvdrun and this one has closed it (between "
                 "hvdrun and this one: python3)");
}

}  // namespace
}  // namespace hvd::test
