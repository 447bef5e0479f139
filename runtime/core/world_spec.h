// What a world is made of: its members and what they were told. Plain values; all members have the
// same but for `rank` and the callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/security/crypto.h"
#include "runtime/core/config.h"
#include "runtime/core/interrupt.h"

namespace hvd::runtime {

struct Member {
  std::string worker;   // "host#slot", named in errors
  std::string host;     // named in errors
  std::string address;  // an IP address where the others reach it
};

struct WorldSpec {
  WorldSpec(int own_rank, std::vector<Member> all, std::uint64_t number, const Token& job_token)
      : rank(own_rank), members(std::move(all)), generation(number), token(job_token) {}

  int rank;
  std::vector<Member> members;  // members[r] is rank r
  std::uint64_t generation;     // peers of another one are refused
  Token token;
  Config config;
  // The ranks of each process set that there is from the start, and whether there may be others
  // later: the ranks must agree about it.
  std::vector<std::vector<int>> process_sets;
  bool dynamic_process_sets = true;
  // Instead of `process_sets`, if next_process_set is not 0: those of an earlier world, by number.
  std::map<int, std::vector<int>> restored_sets;
  int next_process_set = 0;
  // Ends it while it is formed, too; null: nobody wants to. Stock Gloo hears of it late.
  std::shared_ptr<Interrupt> interrupt;
  // Called at most once, on a thread of the world, when it fails because this rank did not call in
  // time what others wait for, or did not reach the one that it joins them by. `why` goes on where
  // a sentence begins with the rank.
  std::function<void(const std::string& why)> on_own_stall = {};
  // Called on a thread of the world when a signal has asked for the flight recorder.
  std::function<void()> on_dump_signal = {};

  int size() const { return static_cast<int>(members.size()); }
  // Several hosts, and several ranks on one of them: going by hosts is something else than not.
  bool has_hosts_of_several() const;
};

}  // namespace hvd::runtime
