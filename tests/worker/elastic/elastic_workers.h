// Real elastic workers against a real rendezvous server. The test plays their agents and the
// driver: it says which worlds there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/socket.h"
#include "base/text.h"
#include "tests/support/process.h"
#include "tests/worker/workers.h"

namespace hvd::test {

class ElasticWorkers : public Workers {
 protected:
  using Kind = worker_link::Kind;

  ElasticWorkers() { program_ = "hvd_elastic_program"; }

  // Worker i is on host a in slot i, with incarnation 100 + i, wherever it stands in the world.
  static WorldDocument world_of(std::uint64_t generation, const std::vector<int>& workers,
                                WorldState state = WorldState::effective) {
    WorldDocument document;
    document.job_id = "job";
    document.generation = generation;
    document.state = state;
    const int size = static_cast<int>(workers.size());
    for (int rank = 0; rank < size; ++rank) {
      const int worker = workers[static_cast<std::size_t>(rank)];
      document.members.push_back({rank, "a", worker, 100U + static_cast<std::uint64_t>(worker),
                                  "127.0.0.1", rank, size, 0, 1});
    }
    return document;
  }

  // The next worker, in this world or to join it later.
  void start_in(const WorldDocument& world, const std::string& scenario) {
    const auto self = world_of(1, {static_cast<int>(processes_.size())}).members.front();
    start(greeting_of(self, frame_of(world, self.incarnation), true), scenario);
    decoders_.emplace_back();
  }
  void start_world(int size, const std::string& scenario) {
    std::vector<int> workers;
    for (int i = 0; i < size; ++i) workers.push_back(i);
    for (int i = 0; i < size; ++i) start_in(world_of(1, workers), scenario);
  }

  void publish(const WorldDocument& document) {
    for (std::size_t worker = 0; worker < links_.size(); ++worker) {
      const auto frame = frame_of(document, 100U + worker);
      (void)send_all(links_[worker].get(), frame, Clock::now() + kGenerous);
    }
  }

  // The next thing that a worker tells its agent, but for its reports on its work.
  std::optional<Kind> next_word(std::size_t worker) {
    for (;;) {
      auto frame = receive_frame(links_[worker].get(), decoders_[worker], Clock::now() + kGenerous);
      if (!frame.ok()) return std::nullopt;
      const auto kind = static_cast<Kind>(frame->kind);
      if (kind != Kind::work_report && kind != Kind::activity) return kind;
    }
  }
  bool hears(std::size_t worker, Kind kind) {
    for (;;) {
      const auto word = next_word(worker);
      if (!word) return false;
      if (*word == kind) return true;
    }
  }
  std::vector<Kind> rest_of_words(std::size_t worker) {
    std::vector<Kind> words;
    while (const auto word = next_word(worker)) words.push_back(*word);
    return words;
  }
  Process& worker(std::size_t index) { return *processes_[index]; }

  // A world is proposed, and the test waits until the workers have gone over to it at a commit.
  void change_to(std::uint64_t generation, const std::vector<int>& members,
                 const std::vector<std::size_t>& deciding) {
    publish(world_of(generation, members, WorldState::proposed));
    for (const auto index : deciding) EXPECT_TRUE(hears(index, Kind::committed)) << index;
    publish(world_of(generation, members));
  }

  // The step at which a worker's function was called in this generation; -1: it was not.
  static int step_at_entry(const ExitStatus& status, int generation) {
    std::smatch match;
    const std::regex line(cat("generation ", generation, ", rank \\d+ of \\d+, step (\\d+)"));
    return std::regex_search(status.out, match, line) ? std::stoi(match[1]) : -1;
  }
  // The newest commit that it saw before its function was called in this generation.
  static int commit_before(const ExitStatus& status, int generation) {
    const auto end = status.out.find(cat("generation ", generation, ","));
    const auto at = status.out.rfind("commit ", end);
    return at == std::string::npos ? -1 : std::stoi(status.out.substr(at + 7));
  }

  void expect_all_done(const std::vector<ExitStatus>& ended,
                       const std::vector<std::size_t>& indices) {
    std::string last;
    for (const auto index : indices) {
      EXPECT_EQ(ended[index].code, 0) << index << ": " << ended[index].out << ended[index].err;
      const auto at = ended[index].out.find("done at step");
      ASSERT_NE(at, std::string::npos) << index << ": " << ended[index].out << ended[index].err;
      const auto line = ended[index].out.substr(at);
      EXPECT_EQ(line, last.empty() ? line : last);
      last = line;
    }
  }

  std::vector<FrameDecoder> decoders_;
};

}  // namespace hvd::test
