// Pretend hosts on one machine, for tests of what crosses a network: each has its own network,
// processes, host name, /tmp, /root, /dev/shm and a real sshd, and sees neither the repository nor
// the build tree. They are joined by a bridge. One more host, the *head*, is where hvdrun is
// started: it has a network, a name and a /root of its own too, but sees all files of this machine.
//
//     HostBed bed({.hosts = 2});               // h1 and h2; 10.77.0.1, 10.77.0.2; head 10.77.0.254
//     bed.host(1).place(binary("train"));      // into its /root
//     auto job = bed.head().start({binary("hvdrun"), "-H", "h1:4,h2:4", "./train"});
//     bed.cut_off(bed.host(2));
//
// Everything lives in namespaces whose first process dies with the one that made them, even if that
// is killed: nothing is left, whatever happens. Several beds may exist at a time, also of several
// processes; their addresses are alike and do not meet. Needs root; why_impossible() says what is
// missing. For one thread. By hand: `hvd-hosts run 2 -- bash` (build/*/bin).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace hvd::test {

struct BedOptions {
  int hosts = 2;
  bool ipv4 = true;                             // 10.77.0.N
  bool ipv6 = true;                             // fd77::N
  std::vector<std::string> sshd_settings = {};  // of every host: "MaxSessions 1"
  // The head's known_hosts holds every host's key, and its keys let it in everywhere.
  bool head_knows_hosts = true;
  bool head_may_log_in = true;
};

// Rate, delay and loss of the traffic of one host, both ways.
struct Shape {
  std::string rate = {};   // "1gbit"; empty: as it is
  std::string delay = {};  // "500us", of what the host receives
  double loss = 0;         // of packets, 0 to 1
};

class HostBed;

class Host {
 public:
  const std::string& name() const;  // "h1", which all hosts and the head resolve; "head"
  std::string ipv4() const;         // empty if the bed has none
  std::string ipv6() const;
  // Its files as this machine sees them: files() / "root" is its /root.
  const std::filesystem::path& files() const;
  // Copies a file there; `as` is a path on the host, by default /root/<its name>.
  void place(const std::filesystem::path& file, const std::string& as = {});

  // Runs inside the host, in /root, without SSH. A Process ends with the bed at the latest. Its pid
  // is that of a process of this machine which is as good as the command itself: it ends with its
  // status, and signals reach it.
  std::unique_ptr<Process> start(const std::vector<std::string>& command,
                                 const ProcessOptions& options = {});
  ExitStatus run(const std::vector<std::string>& command, const ProcessOptions& options = {});
  ExitStatus shell(const std::string& script) { return run({"bash", "-c", script}); }
  // The same with this process's own stdin, stdout and stderr; returns the exit code, 128 + signal
  // if it was killed.
  int run_attached(const std::vector<std::string>& command, const ProcessOptions& options = {});

  struct Seen {
    pid_t pid = 0;             // as this machine numbers it
    std::string command_line;  // arguments separated by blanks
    std::string environment;   // as in /proc/PID/environ
    char state = '?';          // as in /proc/PID/stat: T is stopped
  };
  // Every process on it, sshd and the like included.
  std::vector<Seen> processes() const;
  bool is_up() const;

 private:
  friend class HostBed;
  class Impl;
  std::shared_ptr<Impl> impl_;
};

class HostBed {
 public:
  // One line if hosts cannot be made here, for GTEST_SKIP; nothing if they can.
  static std::optional<std::string> why_impossible();

  explicit HostBed(BedOptions options = {});  // throws std::runtime_error
  ~HostBed();
  HostBed(const HostBed&) = delete;
  HostBed& operator=(const HostBed&) = delete;

  Host& host(int number);  // from 1 on
  Host& head();
  int size() const;
  // "h1:4,h2:4"
  std::string host_list(int slots) const;

  // No packet passes, and no error is sent.
  void cut_off(Host& host);
  void cut(Host& one, Host& other);
  void heal();  // every cut
  void shape(Host& host, const Shape& shape);
  void unshape(Host& host);
  // Off, as by a power cut: no FIN and no RST are sent. boot() starts it again, with the files
  // of its /root and nothing else.
  void crash(Host& host);
  void boot(Host& host);
  // Captures the traffic that crosses the bridge from now on with tcpdump, until the bed's end, or
  // until end_capture(): then all of it is in the file.
  void capture(const std::filesystem::path& file);
  void end_capture();
  // A private key that every host accepts, for root and for the ordinary user hvduser, which has
  // its own home. The head sees this file too, also if head_may_log_in is false.
  std::filesystem::path key() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::test
