// Fixture of all tests of jobs on many hosts: a bed, hvdrun on its head, and a check that at the
// end no host holds anything of a job. The hosts hold only the files that a test places there.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/job_test.h"
#include "tests/testbed/hosts.h"

namespace hvd::test {

class ManyHostsTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;  // fails the test if something of a job is left on any host

  void make_bed(BedOptions options);
  HostBed& bed() { return *bed_; }
  Host& host(int number) { return bed_->host(number); }
  // Places programs of this build in every host's /root.
  void place(const Words& programs);
  // The package of this build in /root/python of a host, and the library that it needs beside it.
  static void place_python_package(Host& host);

  // ./discover.sh in the head's /root, which prints what hosts_are() was told last.
  void place_discovery_script();
  void hosts_are(const std::string& lines) { head_file("hosts", lines); }
  // A file in the head's /root, in place of one that is there.
  std::filesystem::path head_file(const std::string& name, const std::string& content);

  // Starts hvdrun with these arguments on the head, in its /root.
  Process& start(const Words& words, const ProcessOptions& options = {});
  ExitStatus run_job(const Words& words, const ProcessOptions& options = {});

  // Processes on a host that did not run when the bed was made: agents and workers and the sshd of
  // their connection; of all hosts that are up and of the head.
  std::vector<Host::Seen> strangers(const Host& on) const;
  bool nobody_left(std::chrono::milliseconds limit = std::chrono::seconds(20)) const;
  std::string names_of_strangers() const;
  // The workers on a host that run this program: their states, "SS", "TT".
  static std::string states(const Host& on, const std::string& program);
  // Their pids, as this machine counts.
  static std::vector<pid_t> pids(const Host& on, const std::string& program);

 private:
  std::vector<const Host*> everybody() const;

  std::optional<HostBed> bed_;
  std::set<pid_t> residents_;
  std::vector<std::unique_ptr<Process>> started_;
};

}  // namespace hvd::test
