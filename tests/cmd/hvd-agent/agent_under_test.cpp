#include "tests/cmd/hvd-agent/agent_under_test.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

#include "base/machine/proc.h"
#include "base/socket.h"
#include "base/text.h"
#include "base/versions.h"
#include "tests/support/exec_arguments.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace hvd::test {

namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

UniqueFd duplicate(const UniqueFd& fd) { return UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3)); }

}  // namespace

pid_t number_after(const std::string& text, const std::string& word) {
  const auto at = text.find(word);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + word.size());
}

bool is_gone(pid_t pid) {
  const char state = state_of(pid);
  return state == '\0' || state == 'Z' || state == 'X';
}

AgentUnderTest::AgentUnderTest(AgentOptions options) {
  static int count = 0;
  mark_ = cat(::getpid(), "-", ++count);
  std::signal(SIGPIPE, SIG_IGN);  // an agent that ends is no end of the test

  UniqueFd agent_in;
  UniqueFd agent_out;
  if (options.pipes) {
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    agent_in = std::move(in.read_end);
    to_agent_ = std::move(in.write_end);
    agent_out = std::move(out.write_end);
    from_agent_ = std::move(out.read_end);
  } else {
    auto sockets = socket_pair();
    if (!sockets.ok()) throw std::runtime_error(sockets.status().to_string());
    agent_in = std::move(sockets->second);
    agent_out = duplicate(agent_in);
    to_agent_ = std::move(sockets->first);
    from_agent_ = duplicate(to_agent_);
  }
  for (const auto* const fd : {&to_agent_, &from_agent_}) {
    if (!set_nonblocking(fd->get(), true).ok()) throw std::runtime_error("no non-blocking link");
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, agent_in.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, agent_out.get(), 1);
  const std::string log = directory_.path() / "agent-stderr";
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<std::string> command = {binary("hvd-agent")};
  if (!options.script.empty()) command = {"/bin/sh", "-c", options.script, command[0]};
  std::vector<std::string> environment = {cat(kMark, "=", mark_)};
  for (const auto& [name, value] : options.environment) {
    environment.push_back(cat(name, "=", value));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  const int error =
      ::posix_spawn(&pid_, command[0].c_str(), &actions, nullptr, exec_arguments(command).data(),
                    exec_arguments(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error(Status::from_errno(command[0], error).to_string());

  if (!options.greet) return;
  options.hello.build_id = build_id();
  options.hello.job_id = "test";
  send(options.hello.encode());
  agent_in.reset();
  agent_out.reset();
  until([&] { return ready.has_value(); });
}

AgentUnderTest::~AgentUnderTest() {
  // A test that failed may have left it stopped. Not after the link is closed, by either side:
  // SIGCONT takes back the SIGSTOP by which the leak checker of an agent that ends holds it.
  if (!exit_ && !closed) ::kill(pid_, SIGCONT);
  close_link();
  EXPECT_TRUE(wait_until_gone(kMark, mark_)) << "processes outlived their agent";
  for (const pid_t pid : processes_with_variable(kMark, mark_)) ::kill(pid, SIGKILL);
  if (!exit_) wait_for_exit();
}

void AgentUnderTest::send(const std::string& bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Status ready_to_write = wait_for(to_agent_.get(), POLLOUT, Clock::now() + kGenerous);
    if (!ready_to_write.ok()) {
      ADD_FAILURE() << "the agent takes nothing: " << ready_to_write.to_string();
      return;
    }
    const ssize_t written = ::write(to_agent_.get(), rest.data(), rest.size());
    if (written >= 0) rest.remove_prefix(static_cast<std::size_t>(written));
    // The agent may have ended meanwhile; whether it should have is the test's to say.
    if (written < 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

void AgentUnderTest::beat() {
  send(agent_link::Heartbeat{++last_heartbeat_, acks.empty() ? 0 : acks.back()}.encode());
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
          send(Credit{m.incarnation, m.stream, m.bytes.size()}.encode());
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
    case Kind::worker_ready:
      return with(static_cast<WorkerReady*>(nullptr), [](auto&, auto& h) { ++h.ready; });
    case Kind::worker_leaves:
      return with(static_cast<WorkerLeaves*>(nullptr), [](auto&, auto& h) { ++h.leaves; });
    case Kind::worker_left:
      return with(static_cast<WorkerLeft*>(nullptr),
                  [](const auto& m, auto& h) { h.left.push_back(m.reason); });
    case Kind::described:
      return with(static_cast<Described*>(nullptr),
                  [](const auto& m, auto& h) { h.described.push_back(m.text); });
    case Kind::world_committed:
      return with(static_cast<WorldCommitted*>(nullptr),
                  [](const auto& m, auto& h) { h.committed.push_back(m.generation); });
    case Kind::host_leaves:
      return with(static_cast<HostLeaves*>(nullptr), [&](const auto& m, auto&) {
        ++host_leaves;
        newest_leave = m;
      });
    case Kind::paused:
      return with(static_cast<Paused*>(nullptr), [&](auto&, auto&) { ++pauses; });
    case Kind::activity_wanted:
      return with(static_cast<ActivityWanted*>(nullptr), [&](auto&, auto&) { ++activity_wanted; });
    case Kind::worker_activity:
      return with(static_cast<WorkerActivity*>(nullptr),
                  [&](const auto& m, auto&) { activities[m.incarnation] = m; });
    case Kind::work_reports:
      return with(static_cast<WorkReports*>(nullptr), [&](const auto& m, auto&) {
        for (const auto& worker : m.workers) work[worker.incarnation].push_back(worker.reading);
      });
    case Kind::heartbeat_ack:
      return with(static_cast<HeartbeatAck*>(nullptr),
                  [&](const auto& m, auto&) { acks.push_back(m.sequence); });
    case Kind::problem:
      return with(static_cast<Problem*>(nullptr),
                  [&](const auto& m, auto&) { problems.push_back(m.message); });
    case Kind::checked:
      return with(static_cast<Checked*>(nullptr),
                  [&](const auto& m, auto&) { checked.push_back(m); });
    case Kind::probed:
      return with(static_cast<Probed*>(nullptr), [&](const auto& m, auto&) { probed[m.id] = m; });
    case Kind::bye:
      bye = true;
      return;
    default:
      FAIL() << "the agent sent a message of kind " << frame.kind;
  }
}

Status AgentUnderTest::take_in(TimePoint deadline) {
  for (;;) {
    auto frame = decoder_.next();
    if (frame.ok() && frame->has_value()) {
      handle(**frame);
      return {};
    }
    Status status = frame.status();
    if (status.ok()) status = wait_for(from_agent_.get(), POLLIN, deadline);
    if (status.code() == Code::deadline_exceeded) return status;
    std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    ssize_t got = 0;
    if (status.ok()) got = ::read(from_agent_.get(), buffer.data(), buffer.size());
    if (got > 0) {
      decoder_.feed({buffer.data(), static_cast<std::size_t>(got)});
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      closed = true;  // also when the agent was killed with our bytes unread, which resets the link
      return status.ok() ? Status(Code::unavailable, "the agent closed the link") : status;
    }
  }
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

void AgentUnderTest::take_in_what_is_there() {
  while (take_in(Clock::now()).ok()) {
  }
}

bool AgentUnderTest::until_beating(const std::function<bool()>& condition) {
  const auto give_up_at = Clock::now() + kGenerous;
  auto next_beat = Clock::now();
  while (!condition()) {
    if (Clock::now() >= next_beat) {
      beat();
      next_beat = Clock::now() + std::chrono::milliseconds(5);
    }
    const Status status = take_in(next_beat);
    if (status.ok() || (status.code() == Code::deadline_exceeded && Clock::now() < give_up_at)) {
      continue;
    }
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
