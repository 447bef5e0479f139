// Programs that another launcher has started as several processes: they form one world through it,
// or each refuses to be a world of one. Real programs with the variables of each launcher, and the
// real Open MPI and MPICH where they are installed.
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <unistd.h>

#include "base/text.h"
#include "tests/e2e/job_test.h"
#include "tests/worker/launch/under_mpi.h"

namespace hvd::test {
namespace {

using Environment = std::map<std::string, std::string>;

struct LaunchCase {
  const char* name;
  Environment environment;
  std::string refused_with;  // a part of the message; empty: it is alone, and works
};

std::ostream& operator<<(std::ostream& out, const LaunchCase& one) { return out << one.name; }

const Environment kSlurmStep{
    {"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const std::vector<LaunchCase>& launch_cases() {
  static const std::vector<LaunchCase> cases{
      {"open_mpi",
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}},
       "rank 1 of 3 processes that Open MPI has started (OMPI_COMM_WORLD_RANK=1, "
       "OMPI_COMM_WORLD_SIZE=3)"},
      {"open_mpi_on_two_hosts",
       {{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "hvdrun -np 4 -H HOST:2,HOST:... "},
      {"open_mpi_one", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, ""},
      {"open_mpi_one_in_a_step_of_its_daemons",
       with(kSlurmStep, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), ""},
      {"mpich", {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}, "hvdrun -np 4 "},
      {"mpich_one", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, ""},
      {"mvapich2", {{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}}, "hvdrun -np 2 "},
      {"pmix", {{"PMIX_RANK", "2"}}, "rank 2 of several processes that PMIx has started"},
      {"pmix_first", {{"PMIX_RANK", "0"}}, ""},
      {"pmix_first_and_nobody_to_ask", {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}}, ""},
      {"pmix_and_nobody_to_ask",
       {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "x"}},
       "since they cannot meet: PMIx: begin: "},
      {"horovodrun", {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}}, "instead of horovodrun"},
      {"jsrun", {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "6"}}, "hvdrun -np 6 "},
      {"flux", {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}, "instead of flux run"},
      {"torchrun",
       {{"TORCHELASTIC_RUN_ID", "none"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}},
       "instead of torchrun"},
      {"torchrun_on_each_host_by_mpirun",
       {{"TORCHELASTIC_RUN_ID", "none"},
        {"RANK", "1"},
        {"WORLD_SIZE", "8"},
        {"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"PMIX_RANK", "0"},
        {"PMIX_NAMESPACE", "x"}},
       "rank 1 of 8 processes that torchrun has started"},
      {"ranks_by_hand_of_one", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, ""},
      {"ranks_by_hand_that_are_meant_so",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"HVD_ALLOW_SINGLE", "1"}},
       ""},
      {"slurm_step", kSlurmStep, "rank 3 of 8 processes that Slurm has started"},
      {"slurm_step_without_pmix", kSlurmStep,
       " ; or by srun --mpi=pmix or --mpi=pmi2, through which "},
      {"slurm_step_of_one", with(kSlurmStep, {{"SLURM_STEP_NUM_TASKS", "1"}}), ""},
      {"sbatch", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}, ""},
      {"sbatch_from_within_a_step", with(kSlurmStep, {{"SLURM_STEP_ID", "4294967291"}}), ""},
      {"salloc", {{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}}, ""},
      {"rubbish", {{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "-3"}}, ""},
      {"meant_so", with(kSlurmStep, {{"HVD_ALLOW_SINGLE", "1"}}), ""},
      {"not_meant_so", with(kSlurmStep, {{"HVD_ALLOW_SINGLE", "0"}}), "hvdrun -np 8 "},
      {"misspelt", {{"HVD_ALLOW_SINGLE", "yes"}}, "HVD_ALLOW_SINGLE=yes: must be 1 or 0"},
      {"started_by_a_worker_of_hvdrun", with(kSlurmStep, {{"HVD_JOB_ID", "0123"}}), ""},
  };
  return cases;
}

class OtherLauncherTest : public JobTest {
 protected:
  const std::string program_ = binary("hvd_worker_program");
};

class ByVariables : public OtherLauncherTest, public testing::WithParamInterface<LaunchCase> {};

TEST_P(ByVariables, RefusesToTrainAloneOrIsAlone) {
  const auto& one = GetParam();
  ProcessOptions options;
  options.environment = with({{"HVD_WORKER_FD", ""}, {"HVD_JOB_ID", ""}}, one.environment);
  const ExitStatus end = run({program_, "place"}, options);

  if (one.refused_with.empty()) {
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.out.find("rank 0 of 1, "), std::string::npos) << end.out;
    return;
  }
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find(one.refused_with), std::string::npos) << end.err;
}

TEST_P(ByVariables, HvdrunIsRefusedWhereAProgramIs) {
  const auto& one = GetParam();
  ProcessOptions options;
  options.environment = with({{"HVD_WORKER_FD", ""}, {"HVD_JOB_ID", ""}}, one.environment);
  const ExitStatus end = run({binary("hvdrun"), "-np", "1", "echo", "begun"}, options);

  if (one.refused_with.empty()) {
    EXPECT_EQ(end.code, 0) << end.err;
    return;
  }
  EXPECT_EQ(end.code, 1) << end.out;
  EXPECT_EQ(end.out, "");
  const bool is_misspelt = one.refused_with.find("must be 1 or 0") != std::string::npos;
  EXPECT_NE(end.err.find(is_misspelt ? one.refused_with : "each of them would run the whole job"),
            std::string::npos)
      << end.err;
}

INSTANTIATE_TEST_SUITE_P(OtherLauncher, ByVariables, testing::ValuesIn(launch_cases()),
                         [](const auto& launch) { return launch.param.name; });

// In a pod with such variables hvdrun may be started once.
TEST_F(OtherLauncherTest, RanksByHandAreForProgramsAlone) {
  ProcessOptions options;
  options.environment = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const ExitStatus end = run({program_, "place"}, options);
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("rank 1 of 2 processes that another launcher has started (RANK=1, "
                         "WORLD_SIZE=2)"),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find(cat("hvdrun -np 2 ", program_, " place ;")), std::string::npos) << end.err;
  EXPECT_EQ(run({binary("hvdrun"), "-np", "1", "true"}, options).code, 0);
}

TEST_F(OtherLauncherTest, TheMessageIsALineThatCanBeTyped) {
  ProcessOptions options;
  options.environment = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
  const auto named = directory() / "it's mine";
  std::filesystem::create_symlink(program_, named);
  const ExitStatus end = run({named.string(), "place"}, options);
  const std::string line = cat("hvdrun -np 3 '", directory().string(), R"(/it'\''s mine' place ;)");
  EXPECT_NE(end.err.find(line), std::string::npos) << end.err;
}

// A process of a launcher that speaks PMI-1, sends these answers at once, and then closes its
// connection. The process's own messages follow on stdout, once it has ended.
class ByPmiAnswers : public OtherLauncherTest {
 protected:
  ExitStatus place_with(const std::string& answers) {
    ProcessOptions options;
    options.environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"PMI_FD", "0"}};
    return run({"/usr/bin/python3", "-c",
                "import socket, subprocess, sys\n"
                "ours, theirs = socket.socketpair()\n"
                "ours.sendall(sys.argv[1].encode())\n"
                "ours.shutdown(socket.SHUT_WR)\n"
                "code = subprocess.run(sys.argv[2:], stdin=theirs).returncode\n"
                "theirs.close()\n"
                "print(ours.makefile().read(), end='')\n"
                "sys.exit(code)\n",
                answers, program_, "place"},
               options);
  }
};

std::string answers_with(const std::string& vallen_max) {
  return cat("cmd=response_to_init rc=0\ncmd=maxes vallen_max=", vallen_max,
             "\ncmd=my_kvsname kvsname=job\n");
}

TEST_F(ByPmiAnswers, ALauncherThatSpeaksSomethingElseIsRefused) {
  const std::string no_room = "the launcher has no room for values";
  for (const auto& [answers, why] : {
           std::pair<std::string, std::string>("", "the launcher has closed the connection"),
           {"cmd=response_to_init rc=-1\n",
            "PMI: init: the launcher answered \"cmd=response_to_init rc=-1\""},
           {"    31cmd=fullinit-response;\n", "the launcher answered \"    31cmd="},
           {"cmd=response_to_init rc=0\ncmd=maxes vallen_max=1024\ncmd=my_kvsname\n", no_room},
           {answers_with("0"), no_room},
           {answers_with("3"), no_room},
           {answers_with("-1"), no_room},
       }) {
    const ExitStatus end = place_with(answers);
    EXPECT_NE(end.code, 0) << end.out;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
    EXPECT_NE(end.err.find("hvdrun -np 2 "), std::string::npos) << end.err;
  }
}

TEST_F(ByPmiAnswers, AValueGoesInOnePartWhateverRoomThereIs) {
  for (const std::string room : {"32768", "9223372036854775807", "18446744073709551615"}) {
    const ExitStatus end = place_with(answers_with(room));
    EXPECT_NE(end.out.find("cmd=put kvsname=job key=hvd-1-0 value=1\n"), std::string::npos)
        << room << ": " << end.out << end.err;
  }
}

TEST_F(OtherLauncherTest, TheCApiRefusesLikewise) {
  ProcessOptions options;
  options.environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}};
  const ExitStatus end = run({binary("hvd_c_api_program"), "work"}, options);
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("hvdrun -np 3 "), std::string::npos) << end.err;
}

// Processes with these variables of a launcher, and a rendezvous service beside them.
class WithARendezvous : public OtherLauncherTest {
 protected:
  WithARendezvous() { start_service("127.0.0.1:0"); }
  void stop_service() { service_.reset(); }
  void start_service(const std::string& address) {
    service_ = std::make_unique<Process>(
        Words{binary("hvdrun"), "rendezvous", "--bind", address, "--token-file", token_});
    EXPECT_TRUE(service_->wait_for_output("\n")) << service_->err();
    const std::string said = service_->out();
    const auto at = said.find("http://");
    address_ = said.substr(at + 7, said.find('\n') - at - 7);
  }
  Environment variables_of(const Environment& of_launcher) const {
    return with({{"HVD_RENDEZVOUS", address_},
                 {"HVD_TOKEN_FILE", token_},
                 {"HVD_JOB_ID", ""},
                 {"HVD_INIT_TIMEOUT", "60"}},
                of_launcher);
  }
  std::unique_ptr<Process> start_rank(const Environment& environment, const std::string& scenario) {
    return std::make_unique<Process>(Words{program_, scenario},
                                     ProcessOptions{.environment = environment});
  }
  // Both ranks of two, with what the launcher tells each.
  void expect_a_world(const Environment& first, const Environment& second,
                      const std::string& scenario = "place") {
    const auto one = start_rank(variables_of(first), scenario);
    const auto other = start_rank(variables_of(second), scenario);
    EXPECT_EQ(one->wait().code, 0) << one->err();
    EXPECT_EQ(other->wait().code, 0) << other->err();
    EXPECT_NE(one->out().find("rank 0 of 2, local 0 of 2, "), std::string::npos) << one->out();
    EXPECT_NE(other->out().find("rank 1 of 2, local 1 of 2, "), std::string::npos) << other->out();
  }
  void expect_refused(const Environment& environment, const std::string& why) {
    const ExitStatus end = run({program_, "place"}, {.environment = environment});
    EXPECT_NE(end.code, 0) << end.out;
    EXPECT_NE(end.err.find(why), std::string::npos) << end.err;
  }

  const std::string token_ = (directory() / "token").string();
  std::string address_;

 private:
  std::unique_ptr<Process> service_;
};

TEST_F(WithARendezvous, TheProcessesOfALauncherAreOneWorld) {
  const auto slurm = [](const std::string& rank, const std::string& job) {
    return Environment{{"SLURM_PROCID", rank},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_JOB_ID", job}};
  };
  expect_a_world(slurm("0", "7"), slurm("1", "7"));
  expect_a_world(slurm("0", "8"), slurm("1", "8"), "again");
  const auto torchrun = [](const std::string& rank) {
    return Environment{{"TORCHELASTIC_RUN_ID", "mine"}, {"RANK", rank}, {"WORLD_SIZE", "2"}};
  };
  expect_a_world(torchrun("0"), torchrun("1"));
  const auto own = [](const std::string& rank, const std::string& run) {
    return Environment{{"HVD_RANK", rank}, {"HVD_SIZE", "2"}, {"HVD_RUN_ID", run}};
  };
  expect_a_world(own("0", "first"), own("1", "first"));
  expect_a_world(own("0", "second"), own("1", "second"));
}

// It is tried again until --init-timeout.
TEST_F(WithARendezvous, TheServiceMayBeLate) {
  stop_service();
  const Environment own{{"HVD_RANK", "0"}, {"HVD_SIZE", "2"}, {"HVD_RUN_ID", "late"}};
  const auto one = start_rank(variables_of(own), "place");
  const auto other = start_rank(with(variables_of(own), {{"HVD_RANK", "1"}}), "place");
  start_service(address_);
  EXPECT_EQ(one->wait().code, 0) << one->err();
  EXPECT_EQ(other->wait().code, 0) << other->err();
}

TEST_F(WithARendezvous, MissingAndWrongSettingsAreNamed) {
  const Environment own{{"HVD_RANK", "1"}, {"HVD_SIZE", "2"}};
  expect_refused(variables_of(own), "HVD_RUN_ID is not set");
  const auto run = variables_of(with(own, {{"HVD_RUN_ID", "run"}}));
  expect_refused(with(run, {{"HVD_RENDEZVOUS", "somewhere"}}),
                 "HVD_RENDEZVOUS: \"somewhere\" is not ADDRESS:PORT");
  expect_refused(with(run, {{"HVD_TOKEN_FILE", "/nothing"}}),
                 "HVD_TOKEN_FILE: open token file /nothing");
  const Environment soon{{"HVD_INIT_TIMEOUT", "1"}};
  expect_refused(with(run, soon), "not there in time (--init-timeout): rank-0");
  expect_refused(with(with(run, soon), {{"HVD_RENDEZVOUS", "127.0.0.1:9"}}), "127.0.0.1:9");
  const auto another = directory() / "another";
  std::ofstream(another) << std::string(64, 'b') << "\n";
  std::filesystem::permissions(another, std::filesystem::perms::owner_read);
  expect_refused(with(run, {{"HVD_TOKEN_FILE", another.string()}}), "signature");
}

// None of them is a world of one, and none waits.
TEST_F(WithARendezvous, ARankOrASizeThatCannotBeIsNamed) {
  const Environment run{{"HVD_RUN_ID", "run"}};
  const auto with_own = [&](const Environment& own) { return variables_of(with(run, own)); };
  expect_refused(with_own({}), "HVD_RENDEZVOUS is set, and nothing says which process this is");
  expect_refused(with_own({{"HVD_SIZE", "2"}}), "HVD_RANK is not set, and HVD_SIZE is");
  expect_refused(with_own({{"HVD_RANK", "0"}}), "HVD_SIZE is not set, and HVD_RANK is");
  expect_refused(with_own({{"HVD_RANK", "0"}, {"HVD_SIZE", "2abc"}}), "HVD_SIZE=2abc: must be");
  expect_refused(with_own({{"HVD_RANK", "x"}, {"HVD_SIZE", "2"}}), "HVD_RANK=x: must be");
  expect_refused(with_own({{"HVD_RANK", "-1"}, {"HVD_SIZE", "2"}}), "HVD_RANK=-1: must be");
  expect_refused(with_own({{"HVD_RANK", "5"}, {"HVD_SIZE", "2"}}),
                 "HVD_RANK=5: must be below HVD_SIZE=2");
  expect_refused(with_own({{"HVD_RANK", "1"}, {"HVD_SIZE", "1"}}),
                 "HVD_RANK=1: must be below HVD_SIZE=1");
  expect_refused(with_own({{"TORCHELASTIC_RUN_ID", "mine"}, {"RANK", "3"}, {"WORLD_SIZE", "2"}}),
                 "rank 3 must be below the size 2");
}

// Either of the two may be the one that is refused, and the other one forms the world.
TEST_F(WithARendezvous, ARankThatIsTakenIsRefused) {
  const auto own = variables_of({{"HVD_RANK", "0"}, {"HVD_SIZE", "2"}, {"HVD_RUN_ID", "run"}});
  const auto one = start_rank(own, "place");
  const auto other = start_rank(own, "place");
  const auto last = start_rank(with(own, {{"HVD_RANK", "1"}}), "place");
  EXPECT_EQ(last->wait().code, 0) << last->err();
  const bool first_is_in = one->wait().code == 0;
  const ExitStatus refused = (first_is_in ? other : one)->wait();
  EXPECT_EQ((first_is_in ? one : other)->wait().code, 0);
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("rank 0 is taken in run \"run\""), std::string::npos) << refused.err;
}

class UnderMpi : public UnderMpiTest {
 protected:
  const std::string program_ = binary("hvd_worker_program");
};

TEST_P(UnderMpi, SeveralProcessesAreOneWorld) {
  for (const char* const scenario : {"place", "again", "no-shutdown"}) {
    const ExitStatus end = launch(3, {program_, scenario});
    EXPECT_EQ(end.code, 0) << end.err;
    for (const int rank : {0, 1, 2}) {
      const std::string place =
          cat("rank ", rank, " of 3, local ", rank, " of 3, cross 0 of 1, homogeneous, sum 6\n");
      EXPECT_NE(end.out.find(place), std::string::npos) << scenario << ": " << end.out;
    }
  }
}

TEST_P(UnderMpi, RanksMayGoRoundTheHosts) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a process another name of its machine";
  const ExitStatus end =
      launch(3, {"unshare", "--uts", "sh", "-c",
                 cat("hostname h$((", rank_variable(), " % 2)) && exec ", program_, " place")});
  EXPECT_EQ(end.code, 0) << end.err;
  for (const char* const place :
       {"rank 0 of 3, local 0 of 2, cross 0 of 2, ", "rank 1 of 3, local 0 of 1, cross 1 of 2, ",
        "rank 2 of 3, local 1 of 2, cross 0 of 1, "}) {
    EXPECT_NE(end.out.find(place), std::string::npos) << end.out;
  }
}

// MPICH ends the job when the connection of its lost process closes or when that process ends. Only
// in the second case does it pass the exit code on, and it may fail itself while it kills the rest.
TEST_P(UnderMpi, ALostProcessFailsTheJob) {
  const ExitStatus end = launch(3, {program_, "loss"});
  if (is_open_mpi()) {
    EXPECT_EQ(end.code, 9) << end.err;
  } else {
    EXPECT_NE(end.code, 0) << end.out;
  }
}

TEST_P(UnderMpi, AProcessThatDoesNotComeIsReported) {
  options_.environment["HVD_INIT_TIMEOUT"] = "1";
  const ExitStatus end = launch(
      2, {"sh", "-c",
          cat("[ $", rank_variable(), " = 1 ] && exec sleep 1000; exec ", program_, " place")});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("some of the 2 processes that the launcher has started did not call "
                         "init() in time (--init-timeout)"),
            std::string::npos)
      << end.err;
}

TEST_P(UnderMpi, AnInterfaceThatIsNotThereIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a process another name of its machine";
  options_.environment["HVD_NETWORK_INTERFACE"] = "nothing0";
  const ExitStatus end =
      launch(2, {"unshare", "--uts", "sh", "-c",
                 cat("hostname h$", rank_variable(), " && exec ", program_, " place")});
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_NE(end.err.find("rank 0 on h0 has no interface nothing0 (HVD_NETWORK_INTERFACE)"),
            std::string::npos)
      << end.err;
}

TEST_P(UnderMpi, WithoutPmixTheErrorSaysWhatToType) {
  if (!is_open_mpi()) GTEST_SKIP() << "it does not speak PMIx";
  options_.environment["HVD_PMIX_LIBRARY"] = "libnothing.so";
  const ExitStatus end = launch(3, {program_, "place"});
  EXPECT_NE(end.err.find("since they cannot meet: libnothing.so"), std::string::npos) << end.err;
  EXPECT_NE(end.code, 0) << end.out;
  EXPECT_EQ(end.out.find("rank 0 of 1"), std::string::npos) << end.out;
  EXPECT_NE(end.err.find(cat("hvdrun -np 3 ", program_, " place")), std::string::npos) << end.err;
}

TEST_P(UnderMpi, OneProcessIsAlone) {
  const ExitStatus end = launch(1, {program_, "place"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("rank 0 of 1, "), std::string::npos) << end.out;
}

TEST_P(UnderMpi, HvdrunBelowItWorks) {
  const ExitStatus end = launch(1, {binary("hvdrun"), "-np", "2", program_, "place"});
  EXPECT_EQ(end.code, 0) << end.err;
  for (const int rank : {0, 1}) {
    EXPECT_NE(end.out.find(cat("rank ", rank, " of 2, ")), std::string::npos) << end.out;
  }
}

TEST_P(UnderMpi, OfItsVariablesTheWorkersOfHvdrunGetSettingsOnly) {
  const ExitStatus end = launch(1, {binary("hvdrun"), "--tag-output=none", "-np", "1", "env"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("OMPI_MCA_rmaps_base_oversubscribe=1\n"), std::string::npos) << end.out;
  for (const char* const name : {"PMI_", "PMIX_RANK", "PMIX_SERVER", "OMPI_COMM_WORLD",
                                 "OMPI_MCA_ess", "OMPI_MCA_orte", "MPI_LOCAL"}) {
    EXPECT_EQ(end.out.find(name), std::string::npos) << end.out;
  }
}

TEST_P(UnderMpi, SeveralHvdrunsAreRefusedUnlessEachIsMeant) {
  const Words job{binary("hvdrun"), "-np", "2", program_, "place"};
  const ExitStatus refused = launch(2, job);
  EXPECT_NE(refused.code, 0);
  EXPECT_EQ(refused.out.find("rank 0 of 2"), std::string::npos) << refused.out;
  EXPECT_NE(refused.err.find("start hvdrun once, without mpi"), std::string::npos) << refused.err;

  options_.environment["HVD_ALLOW_SINGLE"] = "1";
  const ExitStatus allowed = launch(2, job);
  EXPECT_EQ(allowed.code, 0) << allowed.err;
}

INSTANTIATE_TEST_SUITE_P(OtherLauncher, UnderMpi, testing::ValuesIn(mpi_launchers()),
                         name_of_launcher);

}  // namespace
}  // namespace hvd::test
