// The launcher without a job: starts an agent on each of the given hosts, sends it Hello, and
// prints one line per event. Tests run it on the head of a testbed and read its output.
//
//     HOST step STEP
//     HOST error STEP: MESSAGE
//     HOST ready as HOSTNAME pid PID from LOCAL to PEER
//     HOST printed BYTES            (--run: all output of that command came)
//     HOST took BYTES               (--worlds: so much was sent to the agent, and answered)
//     HOST ended: REASON
//     all connected | all ended
//
// Ends when every agent has ended; with --quit as soon as all hosts have answered.
#include <condition_variable>
#include <csignal>
#include <iostream>
#include <map>
#include <mutex>
#include <poll.h>
#include <thread>
#include <utility>

#include "base/protocol/agent_link.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/ssh/launcher.h"

namespace hvd::test {
namespace {

using driver::AgentConnection;
using driver::HostError;
namespace ssh = driver::ssh;

struct Wishes {
  ssh::Options options;
  std::vector<std::string> hosts;  // "name", "user@name", "name#port"
  std::string run;
  int worlds = 0;
  bool quit = false;
  bool kill = false;
  bool give_up = false;
};

// With --kill the agents are killed when SIGUSR1 arrives.
const sigset_t& kill_signals() {
  static const sigset_t signals = [] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    return set;
  }();
  return signals;
}

std::mutex print_mutex;

template <typename... Words>
void say(const Words&... words) {
  const std::scoped_lock lock(print_mutex);
  std::cout << cat(words...) << std::endl;
}

Result<Frame> next_frame(int link, FrameDecoder& decoder) {
  return receive_frame(link, decoder, Clock::now() + std::chrono::seconds(100));
}

template <typename Message>
bool tell(int link, const Message& message) {
  return send_all(link, message.encode(), Clock::now() + std::chrono::seconds(100)).ok();
}

// Reads all output of a command, and returns credit for it as the driver does.
void run_command(const std::string& host, int link, FrameDecoder& decoder, const Wishes& wishes) {
  agent_link::Launch launch;
  launch.incarnation = 1;
  launch.worker = host + "#0";
  launch.command = {"sh", "-c", wishes.run};
  launch.environment = {"PATH=/usr/bin:/bin"};
  launch.working_directory = "/";
  if (!tell(link, launch)) return;
  std::uint64_t bytes = 0;
  int open = 2;
  while (open > 0) {
    auto frame = next_frame(link, decoder);
    if (!frame.ok()) return say(host, " lost: ", frame.status().message());
    if (frame->kind == static_cast<std::uint16_t>(agent_link::Kind::output)) {
      const auto output = agent_link::Output::decode(frame->payload);
      if (!output.ok()) return say(host, " lost: ", output.status().message());
      bytes += output->bytes.size();
      agent_link::Credit credit;
      credit.incarnation = 1;
      credit.stream = output->stream;
      credit.bytes = output->bytes.size();
      if (!tell(link, credit)) return;
    }
    if (frame->kind == static_cast<std::uint16_t>(agent_link::Kind::output_closed)) --open;
    if (frame->kind == static_cast<std::uint16_t>(agent_link::Kind::launch_failed)) {
      return say(host, " cannot run it");
    }
  }
  say(host, " printed ", bytes);
}

// Large frames to the agent, and a small one back to show that all of them arrived.
void send_worlds(const std::string& host, int link, FrameDecoder& decoder, int count) {
  agent_link::World world;
  world.document = std::string(std::size_t{1} << 20, 'w');
  std::size_t bytes = 0;
  for (int i = 1; i <= count; ++i) {
    world.generation = static_cast<std::uint64_t>(i);
    bytes += world.encode().size();
    if (!tell(link, world)) return say(host, " does not take it");
  }
  agent_link::Check check;
  check.working_directory = "/";
  check.program = "sh";
  check.search_path = "/bin";
  if (!tell(link, check)) return;
  while (true) {
    auto frame = next_frame(link, decoder);
    if (!frame.ok()) return say(host, " lost: ", frame.status().message());
    if (frame->kind == static_cast<std::uint16_t>(agent_link::Kind::checked)) break;
  }
  say(host, " took ", bytes);
}

void work_with(const std::string& host, AgentConnection& agent, const Wishes& wishes) {
  const int link = agent.link.get();
  FrameDecoder decoder;
  agent_link::Hello hello;
  hello.build_id = build_id();
  hello.job_id = "test";
  if (tell(link, hello)) {
    auto frame = next_frame(link, decoder);
    if (!frame.ok()) {
      say(host, " lost: ", frame.status().message());
    } else if (const auto ready = agent_link::Ready::decode(frame->payload); ready.ok()) {
      say(host, " ready as ", ready->host_name, " pid ", ready->pid, " from ", agent.local_address,
          " to ", agent.peer_address);
      if (!wishes.run.empty()) run_command(host, link, decoder, wishes);
      if (wishes.worlds > 0) send_worlds(host, link, decoder, wishes.worlds);
    }
  }
}

class Program {
 public:
  explicit Program(Wishes wishes) : wishes_(std::move(wishes)) {}

  int run() {
    ssh::Launcher launcher(wishes_.options);
    std::map<std::string, std::unique_ptr<ssh::Launcher::Attempt>> attempts;
    for (const std::string& host : wishes_.hosts) attempts[host] = begin(launcher, host);
    if (wishes_.give_up) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return steps_ > 0; });
      lock.unlock();
      attempts.clear();
      say("gave up");
      return 0;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return failed_ + agents_.size() == wishes_.hosts.size(); });
    lock.unlock();
    say("all connected");
    std::vector<std::thread> threads;
    for (auto& [host, agent] : agents_) {
      threads.emplace_back([this, &host = host, &agent = agent] {
        work_with(host, agent, wishes_);
        if (wishes_.quit) return;
        pollfd ended{.fd = agent.handle->ended_fd(), .events = POLLIN, .revents = 0};
        ::poll(&ended, 1, -1);
        say(host, " ended: ", agent.handle->reap());
      });
    }
    if (wishes_.kill) {
      int number = 0;
      ::sigwait(&kill_signals(), &number);
      for (auto& [host, agent] : agents_) agent.handle->kill();
    }
    for (auto& thread : threads) thread.join();
    if (!wishes_.quit) say("all ended");
    return failed_ > 0 ? 1 : 0;
  }

 private:
  std::unique_ptr<ssh::Launcher::Attempt> begin(ssh::Launcher& launcher, const std::string& host) {
    ssh::Target target;
    target.destination = host;
    if (const auto hash = target.destination.find('#'); hash != std::string::npos) {
      target.port = parse_number<int>(target.destination.substr(hash + 1)).value_or(0);
      target.destination.resize(hash);
    }
    if (const auto at = target.destination.find('@'); at != std::string::npos) {
      target.user = target.destination.substr(0, at);
      target.destination.erase(0, at + 1);
    }
    ssh::Callbacks callbacks;
    callbacks.on_step = [this, host](driver::Step step) {
      say(host, " step ", name_of(step));
      const std::scoped_lock lock(mutex_);
      ++steps_;
      changed_.notify_all();
    };
    callbacks.on_warning = [host](const std::string& text) { say(host, " warning ", text); };
    callbacks.on_end = [this, host](std::variant<AgentConnection, HostError> result) {
      const std::scoped_lock lock(mutex_);
      if (auto* const agent = std::get_if<AgentConnection>(&result)) {
        agents_.emplace(host, std::move(*agent));
      } else {
        const auto& error = std::get<HostError>(result);
        say(host, " error ", name_of(error.step), ": ", error.message);
        ++failed_;
      }
      changed_.notify_all();
    };
    return launcher.start(target, std::move(callbacks));
  }

  const Wishes wishes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, AgentConnection> agents_;
  std::size_t failed_ = 0;
  int steps_ = 0;
};

Wishes read_wishes(int count, char** words) {
  Wishes wishes;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&]() -> std::string { return i + 1 < count ? words[++i] : ""; };
    const auto milliseconds = [&] {
      return std::chrono::milliseconds(parse_number<int>(value()).value_or(0));
    };
    if (word == "--agent") {
      wishes.options.agent_path = value();
    } else if (word == "-i") {
      wishes.options.identity_files.push_back(value());
    } else if (word == "-F") {
      wishes.options.config_file = value();
    } else if (word == "--known-hosts") {
      wishes.options.known_hosts_file = value();
    } else if (word == "--cache") {
      wishes.options.cache_directory = value();
    } else if (word == "--strict") {
      wishes.options.host_key_check = ssh::HostKeyCheck::strict;
    } else if (word == "--off") {
      wishes.options.host_key_check = ssh::HostKeyCheck::off;
    } else if (word == "--connect-timeout") {
      wishes.options.connect_timeout = milliseconds();
    } else if (word == "--step-timeout") {
      wishes.options.step_timeout = milliseconds();
    } else if (word == "--parallel") {
      wishes.options.parallel = parse_number<int>(value()).value_or(1);
    } else if (word == "--run") {
      wishes.run = value();
    } else if (word == "--worlds") {
      wishes.worlds = parse_number<int>(value()).value_or(0);
    } else if (word == "--quit") {
      wishes.quit = true;
    } else if (word == "--kill") {
      wishes.kill = true;
    } else if (word == "--give-up") {
      wishes.give_up = true;
    } else {
      wishes.hosts.push_back(word);
    }
  }
  return wishes;
}

}  // namespace
}  // namespace hvd::test

int main(int count, char** words) {
  ::sigprocmask(SIG_BLOCK, &hvd::test::kill_signals(), nullptr);
  return hvd::test::Program(hvd::test::read_wishes(count, words)).run();
}
