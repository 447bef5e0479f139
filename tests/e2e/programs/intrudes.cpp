// A worker that tries what it may not do. It takes its credential from its Welcome, as libhvd does,
// and asks the rendezvous service itself. One line for each attempt: what it tried, and what came
// of it.
//
//     e2e_intrudes DIRECTORY
//
// Rank 1 leaves its credential in DIRECTORY and ends. Rank 0 goes on with that: it asks until the
// service refuses it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/frame.h"
#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/socket.h"
#include "base/text.h"
#include "rendezvous/client.h"

namespace {

using namespace hvd;

constexpr std::chrono::seconds kLong{60};

Result<worker_link::Welcome> read_welcome() {
  const char* const number = std::getenv(worker_link::kDescriptorVariable);
  if (number == nullptr) return Status(Code::not_found, "no link");
  FrameDecoder decoder;
  const auto frame = receive_frame(std::atoi(number), decoder, Clock::now() + kLong);
  if (!frame.ok()) return frame.status();
  return worker_link::Welcome::decode(frame->payload);
}

rendezvous::ClientOptions options_of(const worker_link::Welcome& welcome) {
  rendezvous::ClientOptions options;
  options.host = welcome.rendezvous_host;
  options.port = welcome.rendezvous_port;
  options.worker = welcome.incarnation;
  return options;
}

void say(const std::string& what, const Status& status) {
  std::printf("%s: %s\n", what.c_str(), status.ok() ? "done" : status.message().c_str());
  std::fflush(stdout);
}

void try_all(const worker_link::Welcome& welcome, int rank) {
  rendezvous::Client client(options_of(welcome), welcome.credential);
  const std::string other = cat(kRankKeyPrefix, 1 - rank);
  say("own entry", client.put("world.1.9", cat(kRankKeyPrefix, rank), "here").status());
  say("program's key", client.put("mine", "k", "v").status());
  say("world", client.put(kWorldScope, kCurrentWorldKey, "{}").status());
  say("next world", client.put(kWorldScope, kProposedWorldKey, "{}").status());
  say("other's entry", client.put("world.1.9", other, "here").status());
  say("erase other's entry", client.erase("world.1.9", other));
  if (rank == 1) say("commit", client.put(kCommitScope, kHighWaterKey, "1.1").status());

  auto options = options_of(welcome);
  options.worker = 3 - welcome.incarnation;  // the other one
  say("other's name",
      rendezvous::Client(options, welcome.credential).put("mine", "k", "").status());
  options.worker = 0;
  say("hvdrun's name",
      rendezvous::Client(options, welcome.credential).put("mine", "k", "").status());
}

void leave(const worker_link::Welcome& welcome, const std::string& file) {
  std::ofstream(file + ".part") << to_hex(welcome.credential.bytes()) << ' ' << welcome.incarnation;
  std::filesystem::rename(file + ".part", file);
}

bool go_on_as_the_other(const worker_link::Welcome& welcome, const std::string& file) {
  const TimePoint deadline = Clock::now() + kLong;
  std::string digits;
  auto options = options_of(welcome);
  while (!(std::ifstream(file) >> digits >> options.worker)) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  const auto credential = Token::from_hex(digits);
  if (!credential.ok()) return false;
  for (;;) {
    const auto put = rendezvous::Client(options, *credential).put("mine", "k", "late");
    if (!put.ok()) {
      say("after its end", put.status());
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto welcome = read_welcome();
  if (!welcome.ok()) return 3;
  const int rank = std::atoi(std::getenv("HVD_RANK"));
  try_all(*welcome, rank);
  const std::string file = std::string(argv[1]) + "/credential";
  if (rank == 0) return go_on_as_the_other(*welcome, file) ? 0 : 4;
  leave(*welcome, file);
  return 0;
}
