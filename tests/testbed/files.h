// The files of a pretend host. Each function runs in the host's own mount namespace, as its first
// process, and throws std::runtime_error.
#pragma once

#include <filesystem>
#include <string>

#include "tests/testbed/plan.h"

namespace hvd::test::bed {

inline constexpr const char* kSshdPidFile = "/run/sshd.pid";

// A root of its own, that holds the programs and libraries of this machine (/usr and the like, read
// only) and its configuration, but nothing that was built or installed here by hand; everything
// else is empty, /root is what the bed's directory keeps for it.
void make_host_files(const Plan& plan, int number);
// All files of this machine, with a /root, a /dev/shm and a view of processes of its own.
void make_head_files(const Plan& plan);

// Before any host starts: the key that is accepted, each host's own, and the keys that each knows.
void make_keys(const Plan& plan);
// When the hosts have theirs: the head's .ssh.
void make_head_login(const Plan& plan);

std::string read_log(const std::filesystem::path& path);

}  // namespace hvd::test::bed
