// The files of deploy/kubernetes are what Kubernetes accepts, and agree with what hvd needs.
#include "tests/deploy/manifests.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <memory>
#include <yaml-cpp/yaml.h>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

// scripts/setup --lint fetches it.
constexpr const char* kValidator = HVD_SOURCE_DIR "/build/manifest-tools/bin/kubernetes-validate";
constexpr const char* kNoKubectl = "no kubectl here: Debian's package kubernetes-client has it";
// The oldest version that this validator knows, and a new one.
constexpr const char* kVersions[] = {"1.25", "1.37"};

void expect_valid(const std::vector<fs::path>& files) {
  for (const char* const version : kVersions) {
    std::vector<std::string> words{kValidator, "--strict", "-k", version};
    words.insert(words.end(), files.begin(), files.end());
    const auto end = run(words);
    EXPECT_EQ(end.code, 0) << end.out << end.err;
    for (const auto& file : files) {
      EXPECT_NE((end.out + end.err).find(file.string() + " passed"), std::string::npos) << file;
    }
  }
}

std::vector<fs::path> manifests() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kubernetes_folder())) {
    const auto& path = entry.path();
    const bool is_kustomizes = path.stem() == "kustomization" || path.stem() == "name-references";
    if (path.extension() == ".yaml" && !is_kustomizes) found.push_back(path);
  }
  return found;
}

bool has_kubectl() { return run({"sh", "-c", "command -v kubectl"}).code == 0; }

// All that finds pods of a job by their labels finds those of the job of this driver alone, and all
// agents look for it. Returns how many objects there were.
int expect_all_of_one_job(const std::vector<YAML::Node>& objects, const std::string& driver) {
  constexpr const char* kInstance = "app.kubernetes.io/instance";
  for (const YAML::Node& object : objects) {
    const auto name = object["metadata"]["name"].as<std::string>();
    const YAML::Node spec = object["spec"];
    if (const YAML::Node selector = spec["selector"]) {
      const YAML::Node labels = selector["matchLabels"] ? selector["matchLabels"] : selector;
      EXPECT_EQ(labels[kInstance].as<std::string>(""), driver) << name;
    }
    if (!spec["template"]) continue;
    const YAML::Node labels = spec["template"]["metadata"]["labels"];
    EXPECT_EQ(labels[kInstance].as<std::string>(""), driver) << name;
    for (const auto& variable : spec["template"]["spec"]["containers"][0]["env"]) {
      if (variable["name"].as<std::string>() != "DRIVER") continue;
      EXPECT_EQ(variable["value"].as<std::string>(), driver) << name;
    }
    for (const auto& volume : spec["template"]["spec"]["volumes"]) {
      const YAML::Node claim = volume["persistentVolumeClaim"];
      EXPECT_EQ(claim ? claim["claimName"].as<std::string>() : driver, driver) << name;
    }
  }
  return static_cast<int>(objects.size());
}

// Seconds that follow this option; `otherwise` if it is not there.
double seconds_of(const PodSpec& pod, const std::string& option, double otherwise) {
  for (std::size_t i = 0; i + 1 < pod.command.size(); ++i) {
    if (pod.command[i] == option) return std::stod(pod.command[i + 1]);
  }
  return otherwise;
}

TEST(Manifests, TheSchemasOfKubernetesAcceptThem) {
  if (!fs::exists(kValidator)) {
    GTEST_SKIP() << "no kubernetes-validate here: scripts/setup --lint fetches it";
  }
  ASSERT_GE(manifests().size(), 9U);
  expect_valid(manifests());

  const TemporaryDirectory directory;
  const auto wrong = directory.file("wrong.yaml",
                                    "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"
                                    "spec: {containers: [], grace: 3}\n");
  EXPECT_NE(run({kValidator, "--strict", "-k", kVersions[0], wrong}).code, 0);
}

TEST(Manifests, KustomizeBuildsThem) {
  if (!has_kubectl()) GTEST_SKIP() << kNoKubectl;
  const TemporaryDirectory directory;
  for (const std::string overlay : {"static", "elastic"}) {
    const auto built = run({"kubectl", "kustomize", kubernetes_folder() / overlay});
    ASSERT_EQ(built.code, 0) << built.err;
    for (const char* const part : {"name: hvd-driver", "name: hvd-workers", "kind: Service",
                                   "kind: PodDisruptionBudget", "image: hvd-worker:latest"}) {
      EXPECT_NE(built.out.find(part), std::string::npos) << overlay << " has no " << part;
    }
    if (fs::exists(kValidator)) expect_valid({directory.file(overlay + ".yaml", built.out)});
  }
}

TEST(Manifests, ObjectsOfAJobNameItAsTheirInstance) {
  std::vector<YAML::Node> objects;
  for (const auto& file : manifests()) objects.push_back(YAML::LoadFile(file));
  EXPECT_GE(expect_all_of_one_job(objects, "hvd-driver"), 9);
}

TEST(Manifests, APrefixOfAllNamesSeparatesJobsOfANamespace) {
  if (!has_kubectl()) GTEST_SKIP() << kNoKubectl;
  const TemporaryDirectory directory;
  fs::copy(kubernetes_folder(), directory.path(), fs::copy_options::recursive);
  for (const std::string overlay : {"static", "elastic"}) {
    const auto job = directory.path() / ("exp1-" + overlay);
    fs::create_directory(job);
    std::ofstream(job / "kustomization.yaml")
        << "resources: [../" << overlay << "]\nnamePrefix: exp1-\n";
    const auto built = run({"kubectl", "kustomize", job});
    ASSERT_EQ(built.code, 0) << built.err;
    EXPECT_NE(built.out.find("\n  name: exp1-hvd-driver\n"), std::string::npos) << built.out;
    EXPECT_GE(expect_all_of_one_job(YAML::LoadAll(built.out), "exp1-hvd-driver"), 5);
  }
}

// Numbers of two files, or of a file and of hvdrun's defaults.
TEST(Manifests, GracePeriodsLeaveTimeToLeave) {
  constexpr double kAgentStop = 5;  // an agent gives its workers so long after SIGTERM
  const PodSpec driver = read_pod("elastic/driver.yaml");
  const PodSpec worker = read_pod("elastic/workers.yaml");
  EXPECT_GT(worker.grace.count(), seconds_of(driver, "--leave-grace", 30) + kAgentStop);
  EXPECT_GT(read_pod("static/driver.yaml").grace.count(), 5);
  EXPECT_GT(read_pod("static/workers.yaml").grace.count(), kAgentStop);
}

TEST(Manifests, AStaticJobHasAsManyWorkersAsItWaitsFor) {
  const PodSpec driver = read_pod("static/driver.yaml");
  const PodSpec worker = read_pod("static/workers.yaml");
  EXPECT_EQ(seconds_of(driver, "-np", 0), worker.replicas * seconds_of(worker, "--slots", 0));
}

// The first process of the elastic driver's pod, with a program in hvdrun's place.
class ElasticDriver {
 public:
  explicit ElasticDriver(const std::string& hvdrun) {
    auto words = read_pod("elastic/driver.yaml").command;
    const auto name = std::find(words.begin(), words.end(), "hvdrun");
    command_.assign(words.begin(), std::next(name));
    fs::permissions(directory_.file("hvdrun", cat("#!/bin/sh\n", hvdrun, "\n")),
                    fs::perms::owner_all);
    fs::create_directory(state());
  }
  fs::path state() const { return directory_.path() / "state"; }
  std::unique_ptr<Process> start() const {
    return std::make_unique<Process>(
        command_, ProcessOptions{.environment = {{"STATE", state()},
                                                 {"PATH", directory_.path().string() + ":/bin"}}});
  }

 private:
  TemporaryDirectory directory_;
  std::vector<std::string> command_;
};

// By the exit code of its pod, Kubernetes tells a driver that has died from a job that has ended.
TEST(Manifests, APodOfADriverThatHasDiedEndsWith137) {
  const YAML::Node job = YAML::LoadFile(kubernetes_folder() / "elastic/driver.yaml")["spec"];
  EXPECT_EQ(job["template"]["spec"]["restartPolicy"].as<std::string>(), "Never");
  EXPECT_GT(job["backoffLimit"].as<int>(), 1);
  const YAML::Node rule = job["podFailurePolicy"]["rules"][0];
  EXPECT_EQ(rule["action"].as<std::string>(), "FailJob");
  EXPECT_EQ(rule["onExitCodes"]["operator"].as<std::string>(), "NotIn");
  EXPECT_EQ(rule["onExitCodes"]["values"].as<std::vector<int>>(), std::vector<int>{137});

  const std::string keep = "touch \"$STATE/job.json\"; ";
  for (const auto& [hvdrun, code] : std::map<std::string, int>{{"exit 0", 0},
                                                               {"exit 7", 7},
                                                               {"exit 75", 75},
                                                               {"exit 139", 139},
                                                               {keep + "exit 1", 1},
                                                               {keep + "kill -s SEGV $$", 137},
                                                               {keep + "kill -s KILL $$", 137}}) {
    EXPECT_EQ(ElasticDriver(hvdrun).start()->wait().code, code) << hvdrun;
  }
}

TEST(Manifests, APodThatIsDeletedKillsItsDriver) {
  const ElasticDriver driver(
      "trap 'echo stopped' TERM; echo $$; while kill -0 $PPID; do sleep 1; done");
  const auto pod = driver.start();
  ASSERT_TRUE(pod->wait_for_output("\n"));
  const auto hvdrun = parse_number<pid_t>(trim(pod->out()));
  ASSERT_TRUE(hvdrun);
  pod->signal(SIGTERM);
  const auto end = pod->wait();
  EXPECT_EQ(end.code, 137);
  EXPECT_EQ(end.out.find("stopped"), std::string::npos);
  EXPECT_EQ(::kill(*hvdrun, 0), -1);
}

TEST(Manifests, AJobThatHasEndedIsNotBegunAnew) {
  const ElasticDriver driver("echo begins; exit 0");
  // An hvdrun that died before its job began.
  std::ofstream(driver.state() / "journal.jsonl") << "";
  EXPECT_EQ(driver.start()->wait().code, 0);
  std::ofstream(driver.state() / "journal.jsonl") << "{}\n";
  const auto end = driver.start()->wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.out, "");
  std::ofstream(driver.state() / "job.json") << "{}\n";
  EXPECT_EQ(driver.start()->wait().out, "begins\n");
}

// hvdrun reads the whole command, so a flag that it does not know is found here.
TEST(Manifests, HvdrunUnderstandsItsCommands) {
  for (const char* const file : {"static/driver.yaml", "elastic/driver.yaml"}) {
    auto words = read_pod(file).command;
    const auto name = std::find(words.begin(), words.end(), "hvdrun");
    ASSERT_NE(name, words.end()) << file;
    *name = binary("hvdrun");
    words.insert(std::next(name), "--print-env");
    const auto end = run({name, words.end()});
    EXPECT_EQ(end.code, 0) << file << ": " << end.err;
  }
  for (const char* const file : {"static/workers.yaml", "elastic/workers.yaml"}) {
    auto words = read_pod(file).command;
    words.at(0) = binary("hvdrun");
    const auto join = std::find(words.begin(), words.end(), "--join");
    ASSERT_LT(join - words.begin() + 1, std::ssize(words)) << file;
    EXPECT_EQ(*std::next(join), "tls://hvd-driver:4000") << file;
    words.emplace_back("--help");
    EXPECT_EQ(run(words).code, 0) << file;
  }
}

}  // namespace
}  // namespace hvd::test
