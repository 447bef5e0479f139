#include "tests/many_hosts/steps_job.h"

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

std::vector<fs::path> shelves_of(HostBed& bed) {
  std::vector<fs::path> shelves;
  for (Host* const host : all_of(bed)) {
    fs::remove_all(root_of(*host) / "books");
    fs::remove_all(root_of(*host) / "orders");
    fs::remove(root_of(*host) / "enough");
    fs::remove(root_of(*host) / "checkpoint");
    fs::create_directories(root_of(*host) / "orders");
    if (host->is_up()) host->place(binary("elastic_steps"));
    shelves.push_back(root_of(*host) / "books");
  }
  return shelves;
}

// Whoever looks sees the old content or the new one.
void replace(const fs::path& file, const std::string& content) {
  const fs::path made = file.parent_path() / "made";
  std::ofstream(made) << content;
  fs::rename(made, file);
}

}  // namespace

StepsJob::StepsJob(HostBed& bed, const StepsJobOptions& options)
    : bed_(bed), books_(shelves_of(bed)) {
  std::vector<std::string> words{binary("hvdrun")};
  if (options.discovery) {
    const fs::path script = root_of(bed.head()) / "discover.sh";
    std::ofstream(script) << "#!/bin/sh\ncat /root/hosts\n";
    fs::permissions(script, fs::perms::owner_all);
    discover(options.hosts);
    words.insert(words.end(),
                 {"--host-discovery-script", "/root/discover.sh", "--discovery-interval", "0.1"});
  } else {
    words.insert(words.end(), {"-H", options.hosts});
  }
  words.insert(words.end(), options.flags.begin(), options.flags.end());
  words.insert(words.end(),
               {"./elastic_steps", "--log", "books", "--orders", "orders", "--until", "enough"});
  words.insert(words.end(), options.program_flags.begin(), options.program_flags.end());
  process_ = bed.head().start(words);
}

std::vector<Host*> StepsJob::places() const { return all_of(bed_); }

void StepsJob::discover(const std::string& answer) {
  replace(root_of(bed_.head()) / "hosts", answer);
}

void StepsJob::order(const std::string& worker, const std::string& point,
                     const std::string& action) {
  // One that is not of that host is never read there.
  for (const Host* const host : places()) {
    replace(root_of(*host) / cat("orders/", worker, ".", point), action + "\n");
  }
}

void StepsJob::say_enough() {
  for (const Host* const host : places()) std::ofstream(root_of(*host) / "enough") << "yes\n";
}

Host& StepsJob::host_of(const StepsBook& book) {
  const std::string name = book.worker.substr(0, book.worker.find('#'));
  for (Host* const host : places()) {
    if (host->name() == name) return *host;
  }
  return bed_.head();  // "localhost"
}

pid_t StepsJob::pid_of(const StepsBook& book) {
  for (const auto& seen : host_of(book).processes()) {
    for (const auto& line : split(read_file(cat("/proc/", seen.pid, "/status")), '\n')) {
      if (!line.starts_with("NSpid:")) continue;
      const auto inside = line.substr(line.find_last_of(" \t") + 1);
      if (inside == std::to_string(book.pid)) return seen.pid;
    }
  }
  return -1;
}

bool StepsJob::signal(const StepsBook& book, int number) {
  const pid_t pid = pid_of(book);
  return pid > 0 && ::kill(pid, number) == 0;
}

pid_t StepsJob::agent_of(Host& host) const {
  for (const auto& seen : host.processes()) {
    // Its keepers run the same program, but call themselves so.
    if (read_file(cat("/proc/", seen.pid, "/comm")).starts_with("hvd-agent")) return seen.pid;
  }
  return -1;
}

}  // namespace hvd::test
