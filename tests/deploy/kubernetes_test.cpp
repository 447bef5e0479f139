// The pods of deploy/kubernetes, by the commands of the manifests, on pretend nodes: they come and
// go as the controllers of a cluster would have it. No API server takes part.
#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "tests/deploy/manifests.h"
#include "tests/deploy/pods.h"
#include "tests/e2e/step_logs.h"
#include "tests/testbed/bed_test.h"

namespace hvd::test {
namespace {

constexpr int kNodes = 6;  // the driver's, four for workers, and the next one of the driver

class KubernetesTest : public BedTest {
 protected:
  void SetUp() override {
    BedTest::SetUp();
    if (IsSkipped()) return;
    bed_ = std::make_unique<HostBed>(BedOptions{.hosts = kNodes, .ipv6 = false});
    std::vector<std::filesystem::path> logs;
    for (int number = 1; number <= kNodes; ++number) {
      prepare_for_pods(bed_->host(number), {"elastic_steps", "large_sum"});
      logs.push_back(data_of(bed_->host(number)) / "step_logs");
    }
    logs_ = std::make_unique<StepLogs>(logs);
  }

  void start_driver(const PodSpec& spec) {
    spec_ = spec;
    Host& node = bed_->host(driver_node_);
    driver_ = std::make_unique<Pod>(node, spec, cat("hvd-driver-x7k", driver_node_));
    for (int number = 1; number <= kNodes; ++number) {
      publish_name(bed_->host(number), node.ipv4(), "hvd-driver");
    }
  }
  // As the controller of a Job makes a pod in the place of the one that has ended.
  void start_driver_elsewhere() {
    const int before = std::exchange(driver_node_, driver_node_ == 1 ? kNodes : 1);
    move_volume(bed_->host(before), bed_->host(driver_node_));
    start_driver(spec_);
  }
  // The workers of the newest world. A pid means little by itself: it is that of a container.
  std::set<std::tuple<std::string, pid_t, std::int64_t>> members() {
    std::set<std::tuple<std::string, pid_t, std::int64_t>> found;
    logs_->read();
    for (const StepLog* const member : logs_->members()) {
      found.emplace(member->worker, member->pid, member->started);
    }
    return found;
  }
  // Worker N, under its stable name, on node N + 2.
  Pod& start_worker(int number, const PodSpec& spec) {
    workers_[number] =
        std::make_unique<Pod>(bed_->host(number + 2), spec, cat("hvd-workers-", number));
    return *workers_[number];
  }
  // As `kubectl scale statefulset`: the highest numbers go first.
  void scale(int replicas, const PodSpec& spec) {
    for (int number = 0; number < replicas; ++number) {
      if (!workers_.contains(number)) start_worker(number, spec);
    }
    while (static_cast<int>(workers_.size()) > replicas) {
      const auto last = std::prev(workers_.end());
      const auto end = last->second->remove();
      EXPECT_EQ(end.code, 0) << end.err << driver_->said();
      workers_.erase(last);
    }
  }

  // As a kubelet asks, from outside of the pod.
  std::string probe() {
    const auto request = cat("GET ", spec_.probe_path, " HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n");
    return bed_->head()
        .run({"timeout", "5", "bash", "-c",
              cat("exec 3<>/dev/tcp/", bed_->host(driver_node_).ipv4(), "/", spec_.probe_port,
                  " && printf '", request, "' >&3 && cat <&3")})
        .out;
  }

  // A world of so many, newer than `after`.
  std::int64_t expect_world(int size, std::int64_t after = 0) {
    const auto world = logs_->wait_for_world(size, after);
    EXPECT_GT(world, after) << "no world of " << size << "\n"
                            << logs_->summary() << driver_->said();
    return world;
  }
  void say_enough() {
    for (int number = 1; number <= kNodes; ++number) {
      std::ofstream(data_of(bed_->host(number)) / "enough") << "yes\n";
    }
  }
  void expect_all_end_with(int code) {
    const auto end = driver_->wait();
    EXPECT_EQ(end.code, code) << end.err;
    EXPECT_EQ(end.err.find("refused a connection"), std::string::npos) << end.err;
    for (auto& [number, worker] : workers_) {
      const auto its = worker->wait();
      EXPECT_EQ(its.code, code) << "worker " << number << ": " << its.err;
    }
  }

  std::unique_ptr<HostBed> bed_;
  std::unique_ptr<StepLogs> logs_;
  PodSpec spec_;
  int driver_node_ = 1;
  std::unique_ptr<Pod> driver_;
  std::map<int, std::unique_ptr<Pod>> workers_;
};

const std::vector<std::string> kSteps{"elastic_steps", "--log", "/data/step_logs", "--until",
                                      "/data/enough"};

// The other tests prove little if their containers are not what a cluster makes.
TEST_F(KubernetesTest, ContainersAreAsAKubeletMakesThem) {
  PodSpec spec = read_pod("elastic/workers.yaml");
  spec.command = {"sh", "-c",
                  "echo \"$(id -u) $(id -G) $(hostname) $(whoami 2>&1 | head -c 20)\"; "
                  "grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat /proc/1/comm; "
                  "df --output=size /dev/shm | tail -1 | tr -d ' '; cat /etc/hvd/token | wc -c; "
                  "for d in / /etc /opt/hvd/bin /usr /root /etc/hvd /tmp /data; do "
                  "(echo x > $d/x) 2>/dev/null && echo writes $d; done; ls /proc >/tmp/x; grep -c "
                  "'^[0-9]' /tmp/x"};
  const auto end = Pod(bed_->host(2), spec, "hvd-workers-0").wait();
  EXPECT_EQ(end.out,
            "10001 10001 hvd-workers-0 whoami: cannot find \n"
            "CapEff:\t0000000000000000\nNoNewPrivs:\t1\nsh\n65536\n65\n"
            "writes /tmp\nwrites /data\n2\n")
      << end.err;
}

TEST_F(KubernetesTest, APodThatDoesNotEndIsKilledAfterItsGracePeriod) {
  PodSpec spec = read_pod("elastic/workers.yaml");
  spec.command = {"sh", "-c", "trap '' TERM; echo up >&2; while :; do sleep 1; done"};
  spec.grace = std::chrono::seconds(1);
  Pod pod(bed_->host(2), spec, "hvd-workers-0");
  ASSERT_TRUE(pod.wait_for_error("up")) << pod.said();
  EXPECT_EQ(pod.remove().code, 128 + SIGKILL);
}

TEST_F(KubernetesTest, AStatefulSetThatIsScaledChangesTheWorldAndALostPodComesBack) {
  const PodSpec worker = read_pod("elastic/workers.yaml");
  scale(worker.replicas, worker);
  ASSERT_TRUE(workers_[0]->wait_for_error("resolve hvd-driver")) << workers_[0]->said();
  start_driver(read_pod("elastic/driver.yaml").with_program(kSteps));
  auto world = expect_world(2);
  EXPECT_NE(probe().find("200 OK"), std::string::npos) << driver_->said();

  scale(4, worker);
  world = expect_world(4, world);
  scale(3, worker);
  world = expect_world(3, world);
  EXPECT_EQ(logs_->steps_done_again(), 0) << logs_->summary();

  // The controller makes it again under the same name.
  workers_[1]->kill();
  world = expect_world(2, world);
  start_worker(1, worker);
  expect_world(3, world);
  std::set<std::string> names;
  for (const auto* const member : logs_->members()) names.insert(member->worker);
  EXPECT_EQ(names,
            (std::set<std::string>{"hvd-workers-0#0", "hvd-workers-1#0", "hvd-workers-2#0"}));
  EXPECT_NE(probe().find("200 OK"), std::string::npos) << driver_->said();

  say_enough();
  expect_all_end_with(0);
  EXPECT_EQ(logs_->errors(), "") << logs_->summary();
}

TEST_F(KubernetesTest, AnIndexedJobEndsWithTheCodeOfTheJob) {
  for (const int code : {0, 7}) {
    const PodSpec worker = read_pod("static/workers.yaml");
    scale(worker.replicas, worker);
    start_driver(read_pod("static/driver.yaml")
                     .with_program({"sh", "-c",
                                    cat("[ $HVD_SIZE = 4 ] && [ $HVD_HOSTNAME = $HOSTNAME ] || "
                                        "exit 9; [ $HVD_RANK = 2 ] && exit ",
                                        code, "; exit 0")}));
    expect_all_end_with(code);
    workers_.clear();
  }
}

TEST_F(KubernetesTest, AStaticDriverThatIsDeletedEndsTheJobWithinItsGracePeriod) {
  const PodSpec worker = read_pod("static/workers.yaml");
  scale(worker.replicas, worker);
  start_driver(
      read_pod("static/driver.yaml").with_program({"sh", "-c", "echo up >&2; exec sleep 1000"}));
  ASSERT_TRUE(driver_->wait_for_error("up")) << driver_->said();
  EXPECT_EQ(driver_->remove().code, 143);
  for (auto& [number, pod] : workers_) EXPECT_EQ(pod->wait().code, 143) << pod->said();
}

TEST_F(KubernetesTest, AnElasticDriverThatGoesComesAgainElsewhereAndItsJobGoesOn) {
  const PodSpec worker = read_pod("elastic/workers.yaml");
  scale(2, worker);
  start_driver(read_pod("elastic/driver.yaml").with_program(kSteps));
  const auto world = expect_world(2);
  const auto workers = members();
  ASSERT_EQ(workers.size(), 2U) << logs_->summary();
  for (const bool is_deleted : {true, false}) {
    if (is_deleted) {
      EXPECT_EQ(driver_->remove().code, 137) << driver_->said();
    } else {
      driver_->kill();
    }
    ASSERT_TRUE(logs_->wait_for_steps_more(20)) << "a world that is whole needs no driver";
    start_driver_elsewhere();
    ASSERT_TRUE(driver_->wait_for_error("goes on with job")) << driver_->said();
    ASSERT_TRUE(logs_->wait_for_steps_more(20)) << driver_->said();
    EXPECT_EQ(members(), workers) << logs_->summary();
    EXPECT_NE(probe().find("200 OK"), std::string::npos) << driver_->said();
  }
  EXPECT_EQ(logs_->newest_world(), world) << logs_->summary();
  EXPECT_EQ(logs_->steps_done_again(), 0) << logs_->summary();
  // The new one drives.
  scale(3, worker);
  expect_world(3, world);

  say_enough();
  expect_all_end_with(0);
  EXPECT_EQ(logs_->errors(), "") << logs_->summary();
  start_driver_elsewhere();
  const auto end = driver_->wait();
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_NE(end.err.find("has ended, and does not begin anew"), std::string::npos) << end.err;
}

TEST_F(KubernetesTest, HvdrunStopInThePodOfAnElasticDriverEndsItsJob) {
  const PodSpec worker = read_pod("elastic/workers.yaml");
  scale(2, worker);
  start_driver(read_pod("elastic/driver.yaml").with_program(kSteps));
  expect_world(2);
  const auto stop = driver_->exec({"hvdrun", "stop"});
  EXPECT_EQ(stop.code, 0) << stop.err;
  expect_all_end_with(143);
}

// hvd's shared memory is no file there, so neither the size of /dev/shm nor what else fills it
// matters. A write to memory that is not there would be SIGBUS.
TEST_F(KubernetesTest, WorkersOfAPodShareMemoryAlsoIfDevShmIsSmallOrFull) {
  const std::string fill = "dd if=/dev/zero of=/dev/shm/full bs=1M 2>/dev/null; ";
  PodSpec spec = read_pod("elastic/workers.yaml");
  for (const auto& before : {std::string(), fill}) {
    spec.command = {"sh", "-c",
                    before + "df --output=avail /dev/shm | tail -1; exec hvdrun -np 2 large_sum"};
    const auto end = Pod(bed_->host(1), spec, "alone").wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(trim(end.out.substr(0, end.out.find('\n'))), before.empty() ? "65536" : "0");
    for (const char* const rank : {"[0]", "[1]"}) {
      EXPECT_NE(end.out.find(cat(rank, "<stdout>:the sum of 128 MB is right\n")), std::string::npos)
          << end.out;
    }
    EXPECT_EQ(end.err.find("do without shared memory"), std::string::npos) << end.err;
  }
}

}  // namespace
}  // namespace hvd::test
