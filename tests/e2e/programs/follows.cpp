// A worker that only follows the world, with the messages of base/protocol/worker_link.h:
// it gets ready, enters worlds, goes over to proposed ones, leaves, ends.
//
//     e2e_follows [--until FILE] [--no-commits] [--never-ready]
//
// It prints a line for each step: "PID joins.", "PID in GENERATION RANK/SIZE.", "PID out.",
// "PID told: REASON." Once FILE is there the members say that the work is done. Rank 0 says
// Committed as soon as something is proposed, unless it makes no commits.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/socket.h"
#include "base/text.h"

namespace {

using namespace hvd;  // NOLINT(google-build-using-namespace)

class Follower {
 public:
  Follower(int descriptor, int signals) : fd_(descriptor), signals_(signals) {}

  std::string until;
  bool commits = true;
  bool gets_ready = true;

  int run() {
    auto frame = receive_frame(fd_, decoder_, Clock::now() + std::chrono::seconds(30));
    if (!frame.ok()) return 9;
    auto welcome = worker_link::Welcome::decode(frame->payload);
    if (!welcome.ok() || !welcome->elastic) return 8;
    incarnation_ = welcome->incarnation;
    if (!welcome->world_follows) return 7;
    frame = receive_frame(fd_, decoder_, Clock::now() + std::chrono::seconds(30));
    if (!frame.ok()) return 7;
    const auto first = worker_link::World::decode(frame->payload);
    if (!first.ok()) return 7;
    tell(worker_link::Initialised{::getpid()}.encode());
    const auto world = WorldDocument::decode(first->document);
    if (!world.ok()) return 7;
    if (find(*world)) {
      enter(*world);
    } else if (gets_ready) {
      say("joins");
      tell(worker_link::Ready{}.encode());
    }
    while (!over_) wait();
    return 0;
  }

 private:
  void say(const std::string& what) {
    std::printf("%d %s.\n", static_cast<int>(::getpid()), what.c_str());
    std::fflush(stdout);
  }
  void tell(const std::string& frame) {
    if (!send_all(fd_, frame, kNever).ok()) std::_Exit(6);
  }
  const WorldMember* find(const WorldDocument& world) const {
    for (const auto& member : world.members) {
      if (member.incarnation == incarnation_) return &member;
    }
    return nullptr;
  }

  void enter(const WorldDocument& world) {
    const WorldMember& self = *find(world);
    rank_ = self.rank;
    generation_ = world.generation;
    say(cat("in ", generation_, " ", rank_, "/", world.members.size()));
  }
  void end() {
    tell(worker_link::Done{}.encode());
    over_ = true;
  }

  // Looks for the file as often as nothing else happens.
  void wait() {
    pollfd watched[] = {{fd_, POLLIN, 0}, {signals_, POLLIN, 0}};
    ::poll(watched, 2, until.empty() ? -1 : 5);
    if ((watched[1].revents & POLLIN) != 0) on_sigterm();
    if ((watched[0].revents & (POLLIN | POLLHUP)) != 0) read();
    if (!over_ && rank_ >= 0 && !until.empty() && std::filesystem::exists(until)) end();
  }

  void on_sigterm() {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof(info)) != sizeof(info)) return;
    read();  // what announces it lies there already
    if (stopped_) {
      over_ = true;
    } else {
      tell(worker_link::Leave{}.encode());
    }
  }

  void read() {
    char buffer[65536];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == 0) std::_Exit(5);
    if (got < 0) return;
    decoder_.feed({buffer, static_cast<std::size_t>(got)});
    for (auto frame = decoder_.next(); frame.ok() && *frame && !over_; frame = decoder_.next()) {
      take(**frame);
    }
  }

  void take(const Frame& frame) {
    if (frame.kind == static_cast<std::uint16_t>(worker_link::Kind::ping)) {
      tell(worker_link::Alive{}.encode());
    }
    if (frame.kind == static_cast<std::uint16_t>(worker_link::Kind::stop)) {
      stopped_ = true;
      say(cat("told: ", worker_link::Stop::decode(frame.payload)->reason));
    }
    if (frame.kind != static_cast<std::uint16_t>(worker_link::Kind::world)) return;
    const auto message = worker_link::World::decode(frame.payload);
    const auto world = WorldDocument::decode(message->document);
    if (!world.ok() || world->generation <= generation_) return;
    if (!message->effective) {
      if (rank_ == 0 && commits) tell(worker_link::Committed{world->generation}.encode());
    } else if (find(*world) != nullptr) {
      enter(*world);
    } else if (rank_ >= 0) {
      say("out");
      end();
    }
  }

  const int fd_;
  const int signals_;
  FrameDecoder decoder_;
  std::uint64_t incarnation_ = 0;
  std::uint64_t generation_ = 0;
  int rank_ = -1;
  bool stopped_ = false;
  bool over_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const char* const number = std::getenv(hvd::worker_link::kDescriptorVariable);
  if (number == nullptr) return 10;
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &term, nullptr);
  Follower follower(std::atoi(number), ::signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK));
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--until") follower.until = argv[++i];
    if (argument == "--no-commits") follower.commits = false;
    if (argument == "--never-ready") follower.gets_ready = false;
  }
  return follower.run();
}
