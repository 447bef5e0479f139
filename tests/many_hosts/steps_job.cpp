#include "tests/many_hosts/steps_job.h"

#include <array>
#include <csignal>
#include <fstream>

#include "base/text.h"

namespace hvd::test {
namespace {

namespace fs = std::filesystem;

std::vector<Host*> all_of(HostBed& bed) {
  std::vector<Host*> all{&bed.head()};
  for (int number = 1; number <= bed.size(); ++number) all.push_back(&bed.host(number));
  return all;
}

fs::path root_of(const Host& host) { return host.files() / "root"; }

// The text that train learns from: this repository's licence, which changes less than its docs do.
constexpr const char* kText = HVD_SOURCE_DIR "/LICENSE";
constexpr int kContext = 12;

// The files by which a job is told something, and what it leaves.
constexpr std::array<const char*, 10> kFilesOfAJob{"step_logs",     "orders",    "enough",  "fail",
                                                   "checkpoint",    "broken",    kObserved, kSaved,
                                                   "observed.mode", "saved.mode"};

constexpr std::array<const char*, 5> kObservers{"events", "output", "timeline", "autotune",
                                                "flight"};

// What a job that is observed is started with, before hvdrun and behind it.
const std::vector<std::string> kBadFiles{"env", "LD_PRELOAD=/root/libhvd_bad_files.so",
                                         "BAD_FILES=/root/observed:/root/saved"};
const std::vector<std::string> kObserving{"--events",
                                          "/root/observed/events/events",
                                          "--output-filename",
                                          "/root/observed/output",
                                          "--output-stall-timeout",
                                          "2",
                                          "--timeline-filename",
                                          "/root/observed/timeline/t.json",
                                          "--autotune",
                                          "--autotune-log-file",
                                          "/root/observed/autotune/log.csv",
                                          "--flight-recorder",
                                          "/root/observed/flight",
                                          "--state-file",
                                          "/root/saved/state"};

// The program itself, or a script that first looks whether its slot is broken.
void place_program(Host& host, const StepsJobOptions& options) {
  const std::string name = name_of(options.program);
  if (!options.breakable) return host.place(binary(name));
  host.place(binary(name), cat("/root/", name, ".whole"));
  const fs::path script = root_of(host) / name;
  std::ofstream(script) << "#!/bin/sh\n[ -e \"broken/${HVD_WORKER##*#}\" ] && exit 7\nexec ./"
                        << name << ".whole \"$@\"\n";
  fs::permissions(script, fs::perms::owner_all);
}

std::vector<fs::path> shelves_of(HostBed& bed, const StepsJobOptions& options) {
  std::vector<fs::path> directories;
  for (Host* const host : all_of(bed)) {
    for (const char* const paper : kFilesOfAJob) fs::remove_all(root_of(*host) / paper);
    fs::create_directories(root_of(*host) / "orders");
    fs::create_directories(root_of(*host) / "broken");
    if (options.observed) fs::create_directories(root_of(*host) / kSaved);
    if (options.observed && host->is_up()) host->place(HVD_BAD_FILES);
    if (host->is_up()) place_program(*host, options);
    if (host->is_up() && options.program == StepsProgram::train) host->place(kText, "/root/text");
    directories.push_back(root_of(*host) / "step_logs");
  }
  return directories;
}

// A reader sees either the old content or the new one.
void replace(const fs::path& file, const std::string& content) {
  const fs::path made = file.parent_path() / "made";
  std::ofstream(made) << content;
  fs::rename(made, file);
}

void place_token(const Host& host) {
  const fs::path file = root_of(host) / "token";
  std::ofstream(file) << std::string(64, 'a') << "\n";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

std::string joining_address(HostBed& bed) { return cat(bed.head().ipv4(), ":4000"); }

std::vector<std::string> command_of(StepsProgram program) {
  if (program == StepsProgram::elastic_steps) {
    return {"./elastic_steps", "--log", "step_logs", "--orders", "orders", "--until", "enough"};
  }
  return {"./train",  "--text",    "text",    "--context", cat(kContext), "--steps", "1000000000",
          "--ledger", "step_logs", "--until", "enough",    "--fail-on",   "fail"};
}

}  // namespace

const char* name_of(StepsProgram program) {
  return program == StepsProgram::train ? "train" : "elastic_steps";
}

StepsJob::StepsJob(HostBed& bed, const StepsJobOptions& options)
    : bed_(bed),
      joining_(options.joining),
      program_(options.program),
      step_logs_(shelves_of(bed, options)) {
  std::vector<std::string>& words = command_;
  if (options.observed) {
    make_observed();
    words = kBadFiles;
  }
  words.push_back(binary("hvdrun"));
  if (options.joining) {
    for (Host* const host : places()) place_token(*host);
    words.insert(words.end(), {"--join-bind", joining_address(bed), "--token-file", "/root/token"});
  } else if (options.discovery) {
    const fs::path script = root_of(bed.head()) / "discover.sh";
    std::ofstream(script) << "#!/bin/sh\ncat /root/hosts\n";
    fs::permissions(script, fs::perms::owner_all);
    discover(options.hosts);
    words.insert(words.end(),
                 {"--host-discovery-script", "/root/discover.sh", "--discovery-interval", "0.1"});
  } else {
    words.insert(words.end(), {"-H", options.hosts});
  }
  if (options.observed) words.insert(words.end(), kObserving.begin(), kObserving.end());
  words.insert(words.end(), options.flags.begin(), options.flags.end());
  const auto command = command_of(program_);
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), options.program_flags.begin(), options.program_flags.end());
  start();
  if (!joining_) return;
  discover(options.hosts);
  for (int number = 1; number <= bed.size(); ++number) {
    bed.host(number).place(binary("hvdrun"));
    bed.host(number).place(binary("hvd-agent"));
    host_is_back(bed.host(number));
  }
}

void StepsJob::start() { process_ = bed_.head().start(command_); }

void StepsJob::host_is_back(Host& host) {
  if (!joining_) return;
  joiners_[host.name()] =
      host.start({"sh", "-c",
                  cat("exec >/dev/null 2>&1\n"
                      "while [ ! -e enough ]; do\n"
                      "  slots=$(cat slots)\n"
                      "  [ \"$slots\" = 0 ] || ./hvdrun agent --join tls://",
                      joining_address(bed_), " --token-file token --host ", host.name(),
                      " --slots \"$slots\" --join-timeout 10\n"
                      "  sleep 0.1\n"
                      "done")});
}

void StepsJob::hand_out_slots(const std::string& answer) {
  std::map<std::string, std::string> slots;
  for (const auto& line : split(answer, '\n')) {
    if (line.find(':') != std::string::npos) {
      slots[line.substr(0, line.find(':'))] = line.substr(line.find(':') + 1);
    }
  }
  std::vector<pid_t> leaving;
  for (int number = 1; number <= bed_.size(); ++number) {
    Host& host = bed_.host(number);
    const fs::path file = root_of(host) / "slots";
    const std::string wanted = cat(slots.contains(host.name()) ? slots[host.name()] : "0", "\n");
    if (fs::exists(file) && read_file(file.string()) == wanted) continue;
    replace(file, wanted);
    if (!host.is_up()) continue;
    for (const auto& seen : host.processes()) {
      if (seen.command_line.find("hvdrun agent --join") != std::string::npos &&
          !seen.command_line.starts_with("sh ")) {
        kill_one(seen.pid, SIGTERM);
        leaving.push_back(seen.pid);
      }
    }
  }
  // They leave at a commit, and come again. Until then the world looks as if nothing had been
  // asked.
  eventually([&] {
    return std::none_of(leaving.begin(), leaving.end(),
                        [](const pid_t pid) { return kill_one(pid, 0) == 0; });
  });
}

std::vector<Host*> StepsJob::places() const { return all_of(bed_); }

void StepsJob::discover(const std::string& answer) {
  if (joining_) return hand_out_slots(answer);
  replace(root_of(bed_.head()) / "hosts", answer);
}

void StepsJob::order(const std::string& worker, const std::string& point,
                     const std::string& action) {
  // One that is not of that host is never read there.
  for (const Host* const host : places()) {
    replace(root_of(*host) / cat("orders/", worker, ".", point), action + "\n");
  }
}

void StepsJob::fail(const StepLog& step_log) {
  if (program_ == StepsProgram::elastic_steps) return order(step_log.worker, "step", "exit 1");
  std::ofstream(root_of(host_of(step_log)) / "fail") << "yes\n";
}

void StepsJob::end_well(const StepLog& step_log) {
  if (program_ == StepsProgram::elastic_steps) return order(step_log.worker, "step", "exit 0");
  replace(root_of(host_of(step_log)) / "fail", "exit 0\n");
}

void StepsJob::break_slot(const StepLog& step_log) {
  const std::string slot = step_log.worker.substr(step_log.worker.find('#') + 1);
  std::ofstream(root_of(host_of(step_log)) / "broken" / slot) << "yes\n";
}

StepLogRules StepsJob::rules() const {
  if (program_ == StepsProgram::elastic_steps) return {};
  return {.samples = static_cast<std::int64_t>(fs::file_size(kText)) - kContext};
}

void StepsJob::say_enough() {
  for (const Host* const host : places()) std::ofstream(root_of(*host) / "enough") << "yes\n";
}

void StepsJob::set_disk(const char* directory, const std::string& mode) {
  for (const Host* const host : places()) {
    replace(root_of(*host) / cat(directory, ".mode"), mode + "\n");
  }
}

void StepsJob::remove_observed() {
  // What the job makes meanwhile would be an obstacle.
  for (const Host* const host : places()) {
    eventually([&] {
      std::error_code error;
      fs::remove_all(root_of(*host) / kObserved, error);
      return !error;
    });
  }
}

void StepsJob::make_observed() {
  for (const Host* const host : places()) {
    for (const char* const name : kObservers) {
      fs::create_directories(root_of(*host) / kObserved / name);
    }
  }
}

fs::path StepsJob::events_file() const {
  return root_of(bed_.head()) / kObserved / "events" / "events";
}

ExitStatus StepsJob::suspend() {
  for (const fs::path& state : state_files()) fs::remove(state);  // those of an earlier time
  process_->signal(SIGTERM);
  return process_->wait(2 * kGenerous);
}

ExitStatus StepsJob::crash_driver() {
  for (const auto& seen : bed_.head().processes()) {
    const bool is_driver = seen.command_line.find("hvdrun") != std::string::npos &&
                           seen.command_line.find("--state ") != std::string::npos;
    if (is_driver) ::kill(seen.pid, SIGKILL);
  }
  return process_->wait(2 * kGenerous);
}

std::vector<fs::path> StepsJob::state_files() const {
  std::vector<fs::path> found;
  for (const Host* const host : places()) {
    const fs::path file = root_of(*host) / kSaved / "state";
    if (fs::exists(file)) found.push_back(file);
  }
  return found;
}

void StepsJob::take_up() {
  const auto states = state_files();
  for (const Host* const host : places()) {
    const fs::path file = root_of(*host) / kSaved / "state";
    if (!states.empty() && file != states.front()) fs::copy_file(states.front(), file);
  }
  start();
}

Host& StepsJob::host_of(const StepLog& step_log) {
  const std::string name = step_log.worker.substr(0, step_log.worker.find('#'));
  for (Host* const host : places()) {
    if (host->name() == name) return *host;
  }
  return bed_.head();  // "localhost"
}

pid_t StepsJob::pid_of(const StepLog& step_log) {
  for (const auto& seen : host_of(step_log).processes()) {
    for (const auto& line : split(read_file(cat("/proc/", seen.pid, "/status")), '\n')) {
      if (!line.starts_with("NSpid:")) continue;
      const auto inside = line.substr(line.find_last_of(" \t") + 1);
      if (inside == std::to_string(step_log.pid)) return seen.pid;
    }
  }
  return -1;
}

bool StepsJob::signal(const StepLog& step_log, int number) {
  const pid_t pid = pid_of(step_log);
  return pid > 0 && kill_one(pid, number) == 0;
}

pid_t StepsJob::agent_of(Host& host) const {
  for (const auto& seen : host.processes()) {
    // Its reapers run the same program, but call themselves so.
    if (read_file(cat("/proc/", seen.pid, "/comm")).starts_with("hvd-agent")) return seen.pid;
  }
  return -1;
}

bool StepsJob::has_ended() const {
  const std::string stat = read_file(cat("/proc/", process_->pid(), "/stat"));
  const auto name_ends = stat.rfind(") ");
  return name_ends == std::string::npos || stat.substr(name_ends + 2).starts_with("Z");
}

std::vector<pid_t> StepsJob::processes() const {
  std::vector<pid_t> found{process_->pid()};
  std::vector<pid_t> workers;
  const std::string program = cat("./", name_of(program_));
  for (Host* const host : places()) {
    if (!host->is_up()) continue;
    for (const auto& seen : host->processes()) {
      if (seen.command_line.find("hvd-agent") != std::string::npos) found.push_back(seen.pid);
      if (seen.command_line.starts_with(program)) workers.push_back(seen.pid);
    }
  }
  found.insert(found.end(), workers.begin(), workers.end());
  return found;
}

}  // namespace hvd::test
