#include "tests/agent/agent_under_test.h"

#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "base/build_id.h"
#include "base/socket.h"
#include "base/text.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::test {

AgentUnderTest::AgentUnderTest(Greeting greeting) {
  static int count = 0;
  mark_ = cat(::getpid(), "-", ++count);
  auto sockets = socket_pair();
  if (!sockets.ok()) throw std::runtime_error(sockets.status().to_string());
  link_ = std::move(sockets->first);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets->second.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, sockets->second.get(), 1);
  std::string program = binary("hvd-agent");
  std::vector<char*> arguments{program.data(), nullptr};
  std::string marked = cat(kMark, "=", mark_);
  std::vector<char*> environment{marked.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(),
                                  environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(Status::from_errno(program, error).to_string());

  if (greeting == Greeting::none) return;
  agent_link::Hello hello;
  hello.build_id = build_id();
  hello.job_id = "test";
  send(hello.encode());
  until([&] { return ready.has_value(); });
}

AgentUnderTest::~AgentUnderTest() {
  link_.reset();
  EXPECT_TRUE(wait_until_gone(kMark, mark_)) << "processes outlived their agent";
  for (const pid_t pid : processes_with_variable(kMark, mark_)) ::kill(pid, SIGKILL);
  if (!exit_) wait_for_exit();
}

void AgentUnderTest::send(const std::string& bytes) {
  const Status sent = send_all(link_.get(), bytes, Clock::now() + kGenerous);
  EXPECT_TRUE(sent.ok()) << sent.to_string();
}

agent_link::Launch AgentUnderTest::launch_of(agent_link::Incarnation incarnation,
                                             std::vector<std::string> command) const {
  agent_link::Launch launch;
  launch.incarnation = incarnation;
  launch.worker = cat("here#", incarnation);
  launch.command = std::move(command);
  launch.environment = {"PATH=/usr/bin:/bin", cat(kMark, "=", mark_)};
  launch.working_directory = directory_.path();
  return launch;
}

void AgentUnderTest::launch(agent_link::Incarnation incarnation, std::vector<std::string> command) {
  send(launch_of(incarnation, std::move(command)).encode());
}

void AgentUnderTest::launch_mode(agent_link::Incarnation incarnation,
                                 std::vector<std::string> mode) {
  mode.insert(mode.begin(), binary("hvd_agent_test_worker"));
  launch(incarnation, std::move(mode));
}

void AgentUnderTest::handle(const Frame& frame) {
  using namespace agent_link;  // NOLINT(google-build-using-namespace): a long list of its names
  const auto kind = static_cast<Kind>(frame.kind);
  const auto with = [&]<typename Message>(Message*, const auto& act) {
    auto message = Message::decode(frame.payload);
    ASSERT_TRUE(message.ok()) << message.status().to_string();
    if constexpr (requires { message->incarnation; }) {
      heard_[message->incarnation].order.push_back(kind);
      act(*message, heard_[message->incarnation]);
    } else {
      Heard nobody;
      act(*message, nobody);
    }
  };
  switch (kind) {
    case Kind::ready:
      return with(static_cast<Ready*>(nullptr), [&](const auto& m, auto&) { ready = m; });
    case Kind::launched:
      return with(static_cast<Launched*>(nullptr), [](const auto& m, auto& h) { h.pid = m.pid; });
    case Kind::launch_failed:
      return with(static_cast<LaunchFailed*>(nullptr),
                  [](const auto& m, auto& h) { h.failed = m; });
    case Kind::output:
      return with(static_cast<Output*>(nullptr), [&](const auto& m, auto& h) {
        (m.stream == Stream::standard_output ? h.out : h.err) += m.bytes;
        if (gives_credit && !closed) {
          // The agent may have ended meanwhile; whether it should have is the test's to say.
          (void)send_all(link_.get(), Credit{m.incarnation, m.stream, m.bytes.size()}.encode(),
                         Clock::now() + kGenerous);
        }
      });
    case Kind::output_closed:
      return with(static_cast<OutputClosed*>(nullptr), [](const auto& m, auto& h) {
        bool& is_closed = m.stream == Stream::standard_output ? h.out_closed : h.err_closed;
        EXPECT_FALSE(is_closed) << "closed twice";
        is_closed = true;
      });
    case Kind::exited:
      return with(static_cast<Exited*>(nullptr), [](const auto& m, auto& h) {
        EXPECT_FALSE(h.exited.has_value()) << "exited twice";
        h.exited = m;
      });
    case Kind::worker_initialised:
      return with(static_cast<WorkerInitialised*>(nullptr),
                  [](auto&, auto& h) { ++h.initialised; });
    case Kind::worker_done:
      return with(static_cast<WorkerDone*>(nullptr), [](auto&, auto& h) { ++h.done; });
    case Kind::heartbeat_ack:
      return with(static_cast<HeartbeatAck*>(nullptr),
                  [&](const auto& m, auto&) { acks.push_back(m.sequence); });
    case Kind::problem:
      return with(static_cast<Problem*>(nullptr),
                  [&](const auto& m, auto&) { problems.push_back(m.message); });
    case Kind::bye:
      bye = true;
      return;
    default:
      FAIL() << "the agent sent a message of kind " << frame.kind;
  }
}

Status AgentUnderTest::take_in(TimePoint deadline) {
  auto frame = receive_frame(link_.get(), decoder_, deadline);
  if (frame.ok()) {
    handle(*frame);
  } else if (frame.status().code() != Code::deadline_exceeded) {
    closed = true;  // also when the agent was killed with our bytes unread, which resets the link
  }
  return frame.status();
}

bool AgentUnderTest::until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kGenerous;
  while (!condition()) {
    const Status status = take_in(deadline);
    if (status.ok() || (closed && condition())) continue;
    ADD_FAILURE() << "waited in vain: " << status.to_string()
                  << "; problems so far: " << join(problems, " | ");
    return false;
  }
  return true;
}

bool AgentUnderTest::until_over(agent_link::Incarnation incarnation) {
  return until([&] { return of(incarnation).over(); });
}

void AgentUnderTest::until_closed() {
  until([&] { return closed; });
}

int AgentUnderTest::wait_for_exit() {
  if (exit_) return *exit_;
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) {
    ADD_FAILURE() << "the agent did not end";
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
  }
  exit_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return *exit_;
}

}  // namespace hvd::test
