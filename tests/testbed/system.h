// System calls of a bed. Each throws std::runtime_error that names the attempt, its object and the
// kernel's error. For one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/descriptors.h"

namespace hvd::test::bed {

[[noreturn]] void throw_errno(const std::string& what);

void mount_at(const std::string& source, const std::filesystem::path& target,
              const std::string& type, unsigned long flags = 0, const std::string& data = "");
// `target` shows what `source` does; both must exist. The rest of the machine cannot be written to
// through it if it is read-only.
void bind_mount(const std::filesystem::path& source, const std::filesystem::path& target,
                bool read_only = false);
// An empty directory of its own, which is made if it does not exist.
void mount_empty(const std::filesystem::path& target, const std::string& mode = "0755");

void write_file(const std::filesystem::path& path, std::string_view content, mode_t mode = 0644);

// Like fork(), into new namespaces: 0 in the child.
pid_t fork_into(unsigned long namespaces);
UniqueFd open_pidfd(pid_t pid);
void enter_namespaces(int pidfd, int namespaces, const std::string& whose);
// In a child that only looks like its parent: closes every descriptor from 3 on but this one (-1:
// all).
void close_others(int kept);
// The signals of a process that has just been started.
void reset_signals();
// No program that this process or its descendants execute from now on can set the clock, which is
// that of the whole machine.
void give_up_the_clock();

// The inode that names the pid namespace of a process; 0 if it has none any more.
ino_t pid_namespace_of(pid_t pid);
// Whether the process lives in this pid namespace or in one below it.
bool lives_in(pid_t pid, ino_t pid_namespace);
// Ends our child, which is the first process of this pid namespace, and waits until nothing there
// runs, holds a file or is on a network any more. That is sooner than the child can be reaped: not
// before the parents of all that died there have asked how they ended, and some are tests, that do
// so later. True if it was reaped.
bool end_namespace(pid_t first, ino_t pid_namespace);

struct Command {
  std::vector<std::string> arguments;
  std::string input = {};
  int network_of = -1;  // a pidfd: runs in the network of that process
};
// Returns the output, stderr included. Throws if the program fails.
std::string run_program(const Command& command);

// Records over a SOCK_SEQPACKET socket.
void send_record(int socket, const std::string& text);
void tell(int socket, const std::string& text) noexcept;  // an error is ignored
// False at the end, when the other side is gone. Throws when `limit_ms` is over (-1: never).
bool receive_record(int socket, std::string& text, int limit_ms = -1);

}  // namespace hvd::test::bed
