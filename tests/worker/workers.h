// Real workers against a real rendezvous server. The test plays hvdrun and the agent: it hands out
// keys, and holds the other end of each worker's descriptor.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "base/protocol/credentials.h"
#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/socket.h"
#include "base/text.h"
#include "rendezvous/server.h"
#include "tests/support/process.h"

namespace hvd::test {

class Workers : public ::testing::Test {
 public:
  Workers() : server_(io_, job_key_, server_options()) {
    const Status started = server_.start();
    EXPECT_TRUE(started.ok()) << started.to_string();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Workers() override {
    processes_.clear();  // killed if still there
    boost::asio::post(io_, [this] {
      server_.stop();
      io_.stop();
    });
    thread_.join();
  }

 private:
  rendezvous::ServerOptions server_options() {
    rendezvous::ServerOptions options;
    options.find_worker =
        [this](rendezvous::Incarnation worker) -> std::optional<rendezvous::KnownWorker> {
      const auto found = workers_.find(worker);
      if (found == workers_.end()) return std::nullopt;
      return found->second;
    };
    return options;
  }

 protected:
  // The first of two hosts has one worker more than the second.
  static WorldDocument document_of(int size) {
    WorldDocument document;
    document.job_id = "job";
    document.generation = 1;
    const int on_first = (size + 1) / 2;
    for (int rank = 0; rank < size; ++rank) {
      WorldMember member;
      const bool first = rank < on_first;
      member.rank = rank;
      member.host = first ? "a" : "b";
      member.slot = first ? rank : rank - on_first;
      member.incarnation = 100U + static_cast<std::uint64_t>(rank);
      member.address = "127.0.0.1";
      member.local_rank = member.slot;
      member.local_size = first ? on_first : size - on_first;
      member.cross_rank = first ? 0 : 1;
      member.cross_size = member.local_rank < size - on_first ? 2 : 1;
      document.members.push_back(member);
    }
    return document;
  }

  // The world as this worker is told it, and from now on its members have their rights.
  std::string frame_of(const WorldDocument& document, std::uint64_t incarnation) {
    std::vector<rendezvous::Incarnation> members;
    for (const auto& member : document.members) members.push_back(member.incarnation);
    const bool is_in_force = document.state == WorldState::effective;
    boost::asio::post(io_, [this, generation = document.generation, members, is_in_force] {
      server_.set_members(generation, members, is_in_force);
    });
    const auto* const self = document.find(incarnation);
    const auto keys = sealed_keys(job_key_, document);
    const std::string key =
        self == nullptr ? "" : keys[static_cast<std::size_t>(self - document.members.data())];
    return worker_link::World{document.generation, is_in_force, document.encode(), key}.encode();
  }

  // The bytes that the agent writes before a worker starts: its Welcome, and the frame of the world
  // after it, if there is one.
  std::string greeting_of(const WorldMember& member, const std::string& world,
                          bool elastic = false) {
    boost::asio::post(io_, [this, incarnation = member.incarnation, name = member.worker()] {
      workers_[incarnation] = {name, false};
    });
    worker_link::Welcome welcome("job",
                                 worker_credential(job_key_, member.worker(), member.incarnation));
    welcome.worker = member.worker();
    welcome.incarnation = member.incarnation;
    welcome.rendezvous_host = "127.0.0.1";
    welcome.rendezvous_port = server_.address().port;
    welcome.advertise_address = member.address;
    welcome.world_follows = !world.empty();
    welcome.elastic = elastic;
    return welcome.encode() + world;
  }

  void start(const std::string& welcome, const std::string& scenario) {
    auto pair = socket_pair();
    ASSERT_TRUE(pair.ok());
    ASSERT_TRUE(send_all(pair->first.get(), welcome, kNever).ok());
    ::fcntl(pair->second.get(), F_SETFD, 0);  // the worker inherits it
    test::ProcessOptions options;
    options.environment = environment_;
    options.environment[worker_link::kDescriptorVariable] = cat(pair->second.get());
    processes_.push_back(std::make_unique<Process>(
        std::vector<std::string>{test::binary(program_), scenario}, options));
    links_.push_back(std::move(pair->first));
  }

  void start_all(int size, const std::string& scenario) {
    const auto document = document_of(size);
    for (const auto& member : document.members) {
      start(greeting_of(member, frame_of(document, member.incarnation)), scenario);
    }
  }

  std::vector<ExitStatus> wait_all() {
    std::vector<ExitStatus> all;
    for (auto& process : processes_) all.push_back(process->wait());
    return all;
  }

  // The messages of worker `index` to its agent until it ended, except reports on its work.
  std::vector<worker_link::Kind> told(std::size_t index) {
    std::vector<worker_link::Kind> kinds;
    FrameDecoder decoder;
    for (;;) {
      auto frame = receive_frame(links_[index].get(), decoder, Clock::now() + kGenerous);
      if (!frame.ok()) return kinds;
      const auto kind = static_cast<worker_link::Kind>(frame->kind);
      // Reports come as often as time passes, and a last one when a world fails.
      const bool is_of_work =
          kind == worker_link::Kind::work_report || kind == worker_link::Kind::activity;
      if (!is_of_work) kinds.push_back(kind);
    }
  }

  std::string program_ = "hvd_worker_program";
  Token job_key_ = Token::random();
  std::map<rendezvous::Incarnation, rendezvous::KnownWorker> workers_;  // on the server's thread
  boost::asio::io_context io_;
  rendezvous::Server server_;
  std::thread thread_;
  std::vector<UniqueFd> links_;
  std::map<std::string, std::string> environment_;  // of the workers
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace hvd::test
