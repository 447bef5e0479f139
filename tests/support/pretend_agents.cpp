#include "tests/support/pretend_agents.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/protocol/agent_link.h"
#include "base/protocol/join_link.h"
#include "base/security/tls_psk.h"
#include "base/text.h"
#include "base/versions.h"

namespace hvd::test {
namespace {

using agent_link::Kind;
using agent_link::Stream;

constexpr std::size_t kMaxFrame = std::size_t{64} << 20;

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

struct Agent {
  enum class State { planned, joining, waiting, joined, ended };
  State state = State::planned;
  UniqueFd socket;
  std::optional<TlsSession> tls;
  bool asked_to_join = false;
  FrameDecoder frames{kMaxFrame};
  std::string unsent;
  std::vector<agent_link::Incarnation> running;
  std::optional<TimePoint> last_beat;
  bool said_goodbye = false;
};

class PretendAgents {
 public:
  PretendAgents(const PretendAgentsOptions& options, TlsPsk tls)
      : options_(options),
        tls_(std::move(tls)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        agents_(static_cast<std::size_t>(options.hosts)) {}

  Result<PretendAgentsReport> run(TimePoint deadline) {
    while (ended_ < agents_.size()) {
      if (Clock::now() >= deadline) {
        return Status(Code::deadline_exceeded,
                      cat(report_.joined, " of ", agents_.size(), " hosts joined, ",
                          report_.launched, " workers were launched, ", ended_, " hosts ended"));
      }
      join_more();
      std::array<epoll_event, 256> events{};
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), kTurn);
      for (int i = 0; i < count; ++i) {
        const auto& event = events[static_cast<std::size_t>(i)];
        serve(event.data.u64, event.events);
      }
      if (end_at_ && Clock::now() >= *end_at_) {
        end_at_.reset();
        for (auto& agent : agents_) end_workers(agent);
      }
    }
    return report_;
  }

 private:
  static constexpr int kTurn = 20;  // milliseconds

  std::string name_of(std::size_t index) const { return cat("h", index); }

  void join_more() {
    for (std::size_t i = 0; i < agents_.size() && joining_ < options_.joining_at_once; ++i) {
      if (agents_[i].state == Agent::State::planned) connect(i);
    }
  }

  void connect(std::size_t index) {
    Agent& agent = agents_[index];
    auto socket = begin_connect_tcp(options_.where);
    auto session = tls_.session();
    if (!socket.ok() || !session.ok()) return;
    agent.socket = *std::move(socket);
    agent.tls.emplace(*std::move(session));
    agent.state = Agent::State::joining;
    ++joining_;
    (void)agent.tls->receive({});  // a client speaks first
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.u64 = index;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, agent.socket.get(), &event);
  }

  void serve(std::size_t index, std::uint32_t events) {
    Agent& agent = agents_[index];
    if (agent.state == Agent::State::ended || !agent.socket) return;
    bool stands = true;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) stands = receive(index);
    stands = flush(index) && stands;
    if (!stands) over(index);
  }

  // False when the connection is over.
  bool receive(std::size_t index) {
    Agent& agent = agents_[index];
    std::array<char, 65536> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(agent.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    if (!agent.tls->receive({buffer.data(), static_cast<std::size_t>(got)}).ok()) return false;
    if (agent.tls->established() && !std::exchange(agent.asked_to_join, true)) {
      say(agent, join_link::Join{std::string(build_id()), name_of(index), options_.slots});
    }
    agent.frames.feed(agent.tls->take_received());
    for (;;) {
      const auto frame = agent.frames.next();
      if (!frame.ok()) return false;
      if (!frame->has_value()) return true;
      if (!handle(index, **frame)) return false;
    }
  }

  bool flush(std::size_t index) {
    Agent& agent = agents_[index];
    agent.unsent += agent.tls->take_outgoing();
    while (!agent.unsent.empty()) {
      const ssize_t sent = ::send(agent.socket.get(), agent.unsent.data(), agent.unsent.size(),
                                  MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent < 0) break;
      agent.unsent.erase(0, static_cast<std::size_t>(sent));
    }
    epoll_event event{};
    event.events = EPOLLIN | (agent.unsent.empty() ? 0U : std::uint32_t{EPOLLOUT});
    event.data.u64 = index;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, agent.socket.get(), &event);
    return true;
  }

  void over(std::size_t index) {
    Agent& agent = agents_[index];
    if (agent.state == Agent::State::joining) {
      // A busy hvdrun may close a new connection; agents then try again.
      --joining_;
      ++report_.retries;
      agent = {};
      return;
    }
    agent.state = Agent::State::ended;
    agent.socket.reset();
    ++ended_;
  }

  template <typename Message>
  static void say(Agent& agent, const Message& message) {
    (void)agent.tls->send(message.encode());
  }

  bool handle(std::size_t index, const Frame& frame) {
    Agent& agent = agents_[index];
    if (agent.state == Agent::State::joining) {
      if (frame.kind != static_cast<std::uint16_t>(join_link::Kind::accepted)) return false;
      agent.state = Agent::State::waiting;
      --joining_;
      if (++report_.joined == options_.hosts) report_.joined_after = seconds(Clock::now() - begun_);
      return true;
    }
    if (agent.state == Agent::State::waiting) return handle_while_waiting(agent, frame);
    report_.bytes += frame.payload.size();
    switch (static_cast<Kind>(frame.kind)) {
      case Kind::hello:
        say(agent, ready(index));
        break;
      case Kind::check:
        say(agent, agent_link::Checked{});
        break;
      case Kind::probe: {
        const auto probe = agent_link::Probe::decode(frame.payload);
        if (!probe.ok()) return false;
        say(agent, agent_link::Probed{probe->id, std::vector<std::string>(probe->targets.size())});
        break;
      }
      case Kind::launch:
        return launch(agent, frame);
      case Kind::heartbeat: {
        const auto beat = agent_link::Heartbeat::decode(frame.payload);
        if (!beat.ok()) return false;
        const TimePoint now = Clock::now();
        if (agent.last_beat) {
          report_.longest_gap = std::max(report_.longest_gap, seconds(now - *agent.last_beat));
        }
        agent.last_beat = now;
        say(agent, agent_link::HeartbeatAck{beat->sequence});
        break;
      }
      case Kind::stop:
      case Kind::kill:
        end_workers(agent);
        break;
      case Kind::shutdown:
        say(agent, agent_link::Bye{});
        agent.tls->close();
        if (!std::exchange(agent.said_goodbye, true)) ++report_.said_goodbye;
        break;
      default:
        break;
    }
    return true;
  }

  static bool handle_while_waiting(Agent& agent, const Frame& frame) {
    switch (static_cast<join_link::Kind>(frame.kind)) {
      case join_link::Kind::heartbeat:
        say(agent, join_link::HeartbeatAck{});
        return true;
      case join_link::Kind::begin:
        say(agent, join_link::Begun{});
        agent.state = Agent::State::joined;
        return true;
      default:
        return false;
    }
  }

  agent_link::Ready ready(std::size_t index) const {
    agent_link::Ready ready;
    ready.build_id = std::string(build_id());
    ready.pid = 1;
    ready.host_name = name_of(index);
    ready.interfaces = {{"lo", "127.0.0.1"}, {"eth0", "192.0.2.2"}};
    ready.probe_port = 1;
    ready.probe_greeting = "greeting";
    ready.free_port = 9999;
    ready.cores = options_.slots;
    return ready;
  }

  bool launch(Agent& agent, const Frame& frame) {
    const auto launch = agent_link::Launch::decode(frame.payload);
    if (!launch.ok()) return false;
    say(agent, agent_link::Launched{launch->incarnation,
                                    static_cast<std::int32_t>(1'000'000 + launch->incarnation)});
    agent.running.push_back(launch->incarnation);
    if (++report_.launched == options_.hosts * options_.slots) {
      report_.launched_after = seconds(Clock::now() - begun_);
      options_.on_all_launched();
      end_at_ = Clock::now() + options_.hold;
    }
    return true;
  }

  void end_workers(Agent& agent) {
    if (!agent.tls) return;
    for (const auto incarnation : std::exchange(agent.running, {})) {
      agent_link::Exited exited;
      exited.incarnation = incarnation;
      exited.pid = 1;
      say(agent, exited);
      say(agent, agent_link::OutputClosed{incarnation, Stream::standard_output});
      say(agent, agent_link::OutputClosed{incarnation, Stream::standard_error});
    }
    const auto index = static_cast<std::size_t>(&agent - agents_.data());
    if (agent.socket && !flush(index)) over(index);
  }

  const PretendAgentsOptions& options_;
  TlsPsk tls_;
  UniqueFd epoll_;
  std::vector<Agent> agents_;
  int joining_ = 0;
  std::size_t ended_ = 0;
  const TimePoint begun_ = Clock::now();
  std::optional<TimePoint> end_at_;
  PretendAgentsReport report_;
};

}  // namespace

Result<PretendAgentsReport> run_pretend_agents(const Token& token,
                                               const PretendAgentsOptions& options,
                                               TimePoint deadline) {
  auto tls = TlsPsk::client({token, {}});
  HVD_RETURN_IF_ERROR(tls.status());
  return PretendAgents(options, *std::move(tls)).run(deadline);
}

}  // namespace hvd::test
