#include "tests/many_hosts/many_hosts_test.h"

#include <fstream>

#include "base/text.h"

namespace hvd::test {

void ManyHostsTest::SetUp() {
  if (const auto reason = HostBed::why_impossible()) GTEST_SKIP() << *reason;
}

void ManyHostsTest::TearDown() {
  if (!bed_) return;
  EXPECT_TRUE(nobody_left()) << "left after the test:" << names_of_strangers();
  started_.clear();
}

void ManyHostsTest::make_bed(BedOptions options) {
  bed_.emplace(std::move(options));
  for (const Host* one : everybody()) {
    for (const auto& seen : one->processes()) residents_.insert(seen.pid);
  }
}

void ManyHostsTest::place(const Words& programs) {
  for (int number = 1; number <= bed_->size(); ++number) {
    for (const auto& program : programs) host(number).place(binary(program));
  }
}

void ManyHostsTest::place_python_package(Host& host) {
  const std::filesystem::path package = HVD_BUILD_DIR "/python/hvd";
  for (const auto& file : std::filesystem::recursive_directory_iterator(package)) {
    if (!file.is_regular_file()) continue;
    const auto name = file.path().lexically_relative(package);
    host.place(file.path(), cat("/root/python/hvd/", name.string()));
  }
  host.place(HVD_BUILD_DIR "/lib/libhvd.so.0", "/root/python/libhvd.so.0");
}

void ManyHostsTest::place_discovery_script() {
  const auto script = head_file("discover.sh", "#!/bin/sh\ncat hosts\n");
  std::filesystem::permissions(script, std::filesystem::perms{0755});
}

std::filesystem::path ManyHostsTest::head_file(const std::string& name,
                                               const std::string& content) {
  auto path = bed().head().files() / "root" / name;
  std::ofstream(path.string() + ".new") << content;
  std::filesystem::rename(path.string() + ".new", path);
  return path;
}

Process& ManyHostsTest::start(const Words& words, const ProcessOptions& options) {
  Words command{binary("hvdrun")};
  command.insert(command.end(), words.begin(), words.end());
  started_.push_back(bed_->head().start(command, options));
  return *started_.back();
}

ExitStatus ManyHostsTest::run_job(const Words& words, const ProcessOptions& options) {
  return start(words, options).wait();
}

std::vector<const Host*> ManyHostsTest::everybody() const {
  std::vector<const Host*> all{&const_cast<HostBed&>(*bed_).head()};  // NOLINT: they are only read
  for (int number = 1; number <= bed_->size(); ++number) {
    all.push_back(&const_cast<HostBed&>(*bed_).host(number));  // NOLINT
  }
  return all;
}

std::vector<Host::Seen> ManyHostsTest::strangers(const Host& on) const {
  std::vector<Host::Seen> found;
  for (auto& seen : on.processes()) {
    // Processes that booted after a crash are residents, too.
    const bool resident = residents_.count(seen.pid) != 0 || seen.state == 'Z' ||
                          seen.command_line.find("hvd-hosts") != std::string::npos ||
                          seen.command_line.starts_with("sshd: /usr/sbin/sshd");
    if (!resident) found.push_back(std::move(seen));
  }
  return found;
}

bool ManyHostsTest::nobody_left(std::chrono::milliseconds limit) const {
  return eventually(
      [&] {
        for (const Host* one : everybody()) {
          if (!strangers(*one).empty()) return false;
        }
        return true;
      },
      limit);
}

std::string ManyHostsTest::names_of_strangers() const {
  std::string text;
  for (const Host* one : everybody()) {
    for (const auto& seen : strangers(*one)) {
      text += cat("\n  ", one->name(), " ", seen.pid, " ", seen.state, " ", seen.command_line);
    }
  }
  return text;
}

std::string ManyHostsTest::states(const Host& on, const std::string& program) {
  std::string text;
  for (const auto& seen : on.processes()) {
    const auto word = seen.command_line.substr(0, seen.command_line.find(' '));
    if (std::filesystem::path(word).filename() == program) text += seen.state;
  }
  return text;
}

std::vector<pid_t> ManyHostsTest::pids(const Host& on, const std::string& program) {
  std::vector<pid_t> found;
  for (const auto& seen : on.processes()) {
    const auto word = seen.command_line.substr(0, seen.command_line.find(' '));
    if (std::filesystem::path(word).filename() == program) found.push_back(seen.pid);
  }
  return found;
}

}  // namespace hvd::test
