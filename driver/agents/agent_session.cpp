#include "driver/agents/agent_session.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <poll.h>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/frame.h"
#include "base/log.h"
#include "base/machine/capacity.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/agents/agent_events.h"
#include "driver/agents/agent_session_state.h"
#include "driver/agents/frame_writer.h"
#include "driver/core/end_watch.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::local::stream_protocol::socket;

// The bytes of one read, after which the other agents have their turn.
constexpr std::size_t kReadSize = std::size_t{64} << 10;
// An output chunk and its header, with room for the texts of other messages.
constexpr std::size_t kMaxFrameFromAgent = std::size_t{1} << 20;
// From the end of the link to the end of the process. If the agent has crashed both end together.
constexpr std::chrono::seconds kProcessEndTimeout{1};

// Bytes are decoded before the next agent is read from, so one buffer serves all sessions.
std::array<char, kReadSize>& read_buffer() {
  static thread_local std::array<char, kReadSize> buffer;
  return buffer;
}

}  // namespace

// Kept alive by the session and by each of its coroutines.
class AgentSession::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, AgentSessionOptions options, AgentSessionCallbacks callbacks,
       AgentConnection connection)
      : io_(io),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        handle_(std::move(connection.handle)),
        pid_(handle_->pid()),
        local_address_(std::move(connection.local_address)),
        peer_address_(std::move(connection.peer_address)),
        link_(io, asio::local::stream_protocol(), connection.link.release()),
        writer_(link_, [this](asio::awaitable<void> work) { spawn(std::move(work)); }),
        link_timeout_(io),
        decoder_(kMaxFrameFromAgent) {}

  void begin() {
    error_code ignored;
    link_.non_blocking(true, ignored);
    agent_link::Hello hello = options_.hello;
    hello.protocol = agent_link::kProtocolVersion;
    hello.build_id = std::string(build_id());
    hello.local = pid_ > 0;
    writer_.send(share(hello.encode()));
    writer_.send(share(options_.check.encode()));
    spawn(read());
    end_watch_.emplace(io_, handle_->ended_fd(), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->on_end();
    });
  }

  FrameWriter& writer() { return writer_; }

  void send_heartbeat() {
    if (state_ != State::ready) return;
    // While the last one still waits to be written another one would tell the agent nothing new.
    if (!writer_.takes_heartbeat()) return;
    writer_.send_heartbeat(share(agent_link::Heartbeat{++beats_, acknowledged_}.encode()));
  }

  void report_liveness(TimePoint now, Duration pace) {
    if (state_ != State::ready || link_closed_) return;
    if (std::exchange(heard_, false)) {
      report(event::Heard{options_.host});
    } else if (now - heard_at_ > pace && behind(now, pace)) {
      report(event::Unserved{options_.host});
    }
  }

  void drop() {
    if (may_follow(state_, State::dropped)) enter(State::dropped);
    if (handle_) handle_->kill();
  }
  // There are no callbacks afterwards.
  void close() {
    enter(State::closed);
    callbacks_ = {};
    error_code ignored;
    link_.close(ignored);
    end_watch_.reset();
    link_timeout_.cancel();
    handle_.reset();
    writer_.close();
  }
  pid_t pid() const { return pid_; }
  const agent_link::Ready& ready() const { return ready_; }
  const std::string& local_address() const { return local_address_; }
  const std::string& peer_address() const { return peer_address_; }

 private:
  using State = AgentSessionState;

  void enter(State next) {
    if (!may_follow(state_, next)) {
      HVD_LOG(fatal, "the session with the agent of host " << options_.host << " cannot go from "
                                                           << name_of(state_) << " to "
                                                           << name_of(next));
      std::abort();
    }
    state_ = next;
  }

  bool has_been_ready() const { return state_ == State::ready || state_ == State::leaving; }
  bool has_said_goodbye() const { return state_ == State::leaving || state_ == State::left_early; }

  // This process is the reason for the agent's silence: it has bytes of it still to read, or bytes
  // for it still to write. A write that has begun within `pace` does not count, since it normally
  // ends in the next turn of the loop, even to a host that is lost.
  bool behind(TimePoint now, Duration pace) {
    pollfd polled{link_.native_handle(), POLLIN | POLLOUT, 0};
    if (::poll(&polled, 1, 0) > 0) {
      const bool unread = (polled.revents & POLLIN) != 0;
      const bool takes_more = (polled.revents & POLLOUT) != 0;
      if (unread || (takes_more && writer_.is_writing_for(pace, now))) return true;
    }
    return handle_ && handle_->behind(now, pace);
  }

  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(
        link_.get_executor(),
        [](std::shared_ptr<Impl> self, asio::awaitable<void> inner) -> asio::awaitable<void> {
          co_await std::move(inner);
          self.reset();
        }(shared_from_this(), std::move(work)),
        asio::detached);
  }

  asio::awaitable<void> read() {
    auto& buffer = read_buffer();
    Status status;
    while (status.ok()) {
      error_code error;
      co_await link_.async_wait(Socket::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      const std::size_t size = link_.read_some(asio::buffer(buffer), error);
      if (error == asio::error::would_block || error == asio::error::interrupted) continue;
      if (error) break;

      heard_ = true;
      heard_at_ = Clock::now();
      decoder_.feed({buffer.data(), size});
      while (status.ok()) {
        auto frame = decoder_.next();
        if (!frame) {
          status = frame.status();
        } else if (!*frame) {
          break;
        } else {
          status = handle(**frame);
        }
      }
    }
    if (state_ == State::closed) co_return;

    link_closed_ = true;
    if (!status.ok() && has_been_ready()) {
      report(event::AgentBroken{options_.host, status.message()});
    } else if (!status.ok()) {
      reject({Step::start_agent,
              cat("the program there is not the expected agent: ", status.message(), hint()), 1});
    } else if (!end_reason_) {
      link_timeout_.expires_after(kProcessEndTimeout);
      error_code error;
      co_await link_timeout_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (!end_reason_ && state_ != State::closed) {
        if (!has_said_goodbye()) kill_reason_ = "closed its link and did not end";
        handle_->kill();
      }
    }
    finish_if_ended();
  }

  void on_end() {
    end_reason_ = handle_->reap();
    if (!kill_reason_.empty()) end_reason_ = kill_reason_;
    link_timeout_.cancel();
    if (!has_said_goodbye() && pid_ > 0) callbacks_.kill_orphans();

    // Bytes that the agent sent before its end are still read. Another process that has inherited
    // the other end of the link is not waited for.
    error_code ignored;
    link_.shutdown(Socket::shutdown_receive, ignored);
    finish_if_ended();
  }

  // The host cannot take part. That is reported when the agent has ended.
  void reject(HostError error) {
    if (state_ != State::rejected && state_ != State::dropped) {
      enter(State::rejected);
      error_ = std::move(error);
    }
    handle_->kill();
  }

  void finish_if_ended() {
    if (!link_closed_ || !end_reason_ || state_ == State::ended || state_ == State::closed) return;
    if (has_said_goodbye()) *end_reason_ += " and said goodbye";

    const bool gone = has_been_ready() || state_ == State::dropped;
    if (!gone && state_ != State::rejected) {
      error_ = {
          Step::start_agent,
          cat("the agent ended before it was ready: it ", *end_reason_, identified() ? "" : hint()),
          1};
    }
    enter(State::ended);
    if (gone) {
      report(event::AgentGone{options_.host, *end_reason_});
    } else {
      report(event::HostFailed{options_.host, error_});
    }
  }

  // Ready has come.
  bool identified() const { return !ready_.build_id.empty(); }
  std::string hint() const {
    return cat("; is ", options_.where, " the hvd-agent that belongs to this hvdrun?");
  }

  void report(const Event& event) {
    if (callbacks_.on_event) callbacks_.on_event(event);
  }

  // Decodes the frame for a member of this.
  template <typename Message>
  Status take(const Frame& frame, Status (Impl::*use)(const Message& message)) {
    const auto message = Message::decode(frame.payload);
    if (!message) return message.status();
    return (this->*use)(*message);
  }

  // Decodes the frame and hands its message to the callback, if there is one.
  template <typename Message, typename Callback>
  Status forward(const Frame& frame, const Callback& callback) {
    auto message = Message::decode(frame.payload);
    if (!message) return message.status();
    if (!callback) return {};
    if constexpr (std::is_void_v<std::invoke_result_t<Callback, Message>>) {
      callback(*std::move(message));
      return {};
    } else {
      return callback(*std::move(message));
    }
  }

  Status handle(const Frame& frame) {
    using agent_link::Kind;
    // The agent is being killed; its frames do not matter any more.
    if (state_ == State::rejected || state_ == State::dropped) return {};
    if (has_said_goodbye()) {
      return {Code::data_loss, cat("it sent a message of kind ", frame.kind, " after its goodbye")};
    }

    switch (static_cast<Kind>(frame.kind)) {
      case Kind::ready:
        return take(frame, &Impl::on_ready);
      case Kind::checked:
        return take(frame, &Impl::on_checked);
      case Kind::heartbeat_ack:
        return take(frame, &Impl::on_ack);
      case Kind::output:
        return forward<agent_link::Output>(frame, callbacks_.on_output);
      case Kind::output_closed:
        return forward<agent_link::OutputClosed>(frame, callbacks_.on_output_closed);
      case Kind::probed:
        return forward<agent_link::Probed>(frame, callbacks_.on_probed);
      case Kind::worker_cannot_reach:
        return forward<agent_link::WorkerCannotReach>(frame, callbacks_.on_cannot_reach);
      case Kind::worker_activity:
        return forward<agent_link::WorkerActivity>(frame, callbacks_.on_activity);
      case Kind::work_reports:
        return forward<agent_link::WorkReports>(frame, callbacks_.on_work);
      case Kind::problem:
        return forward<agent_link::Problem>(frame, callbacks_.on_problem);
      case Kind::activity_wanted:
        return forward<agent_link::ActivityWanted>(frame, callbacks_.on_activity_wanted);
      case Kind::paused:
        return forward<agent_link::Paused>(frame, callbacks_.on_paused);
      case Kind::commit_mark:
        return forward<agent_link::CommitMark>(frame, callbacks_.on_commit_mark);
      case Kind::exited:
        HVD_RETURN_IF_ERROR(take(frame, &Impl::on_exited));
        return handle_event(frame);
      case Kind::bye:
        return take(frame, &Impl::on_bye);
      default:
        return handle_event(frame);
    }
  }

  Status handle_event(const Frame& frame) {
    const auto event = event_of(options_.host, frame);
    if (!event) return event.status();
    if (!*event) {
      return {Code::data_loss,
              cat("it sent a message of kind ", frame.kind, ", which no agent sends")};
    }
    report(**event);
    return {};
  }

  // The event itself is for the job.
  Status on_exited(const agent_link::Exited& exited) {
    if (exited.free_port != 0) ready_.free_port = exited.free_port;
    return {};
  }

  Status on_bye(const agent_link::Bye& /*bye*/) {
    enter(has_been_ready() ? State::leaving : State::left_early);
    return {};
  }

  Status on_ready(const agent_link::Ready& ready) {
    if (ready.protocol != agent_link::kProtocolVersion || ready.build_id != build_id()) {
      return {Code::failed_precondition,
              cat("it is of build ", ready.build_id, ", and hvdrun of build ", build_id())};
    }
    if (identified()) return {Code::data_loss, "it sent Ready twice"};

    ready_ = ready;
    if (state_ == State::checked) {
      become_ready();
    } else if (ready.was_held) {
      // Its program was found when it was there first. What it reports follows at once.
      enter(State::identified);
      become_ready();
    } else {
      enter(State::identified);
      report(event::HostProgress{options_.host, Step::change_directory});
    }
    return {};
  }

  Status on_checked(const agent_link::Checked& checked) {
    using Wrong = agent_link::Checked::Step;
    if (ready_.was_held && state_ == State::ready) return {};
    if (state_ == State::checked || state_ == State::ready) {
      return {Code::data_loss, "it sent Checked twice"};
    }

    if (checked.failed != Wrong::nothing_wrong) {
      const bool directory = checked.failed == Wrong::change_directory;
      // The exit codes 126 and 127 are for programs; a directory has code 1.
      reject({directory ? Step::change_directory : Step::find_program, checked.message,
              directory ? 1 : exit_code_of_failed_start(checked.error_number)});
    } else if (state_ == State::identified) {
      become_ready();
    } else {
      enter(State::checked);
    }
    return {};
  }

  void become_ready() {
    enter(State::ready);
    const auto& visible = options_.visible_devices;
    const int gpus = visible ? visible_gpus(ready_.gpus, visible) : ready_.visible_gpus;
    report(event::AgentReady{options_.host, {gpus, ready_.cores}});
  }

  Status on_ack(const agent_link::HeartbeatAck& ack) {
    if (ack.sequence <= acknowledged_ || ack.sequence > beats_) {
      return {Code::data_loss, cat("it acknowledged heartbeat ", ack.sequence, " when ", beats_,
                                   " were sent and ", acknowledged_, " acknowledged")};
    }
    acknowledged_ = ack.sequence;
    heard_ = false;
    report(event::Heard{options_.host});
    return {};
  }

  asio::io_context& io_;
  AgentSessionOptions options_;
  AgentSessionCallbacks callbacks_;
  std::unique_ptr<AgentHandle> handle_;
  const pid_t pid_;
  const std::string local_address_;
  const std::string peer_address_;
  Socket link_;
  std::optional<EndWatch> end_watch_;
  FrameWriter writer_;
  asio::steady_timer link_timeout_;
  FrameDecoder decoder_;

  std::uint64_t beats_ = 0;         // heartbeats sent
  std::uint64_t acknowledged_ = 0;  // sequence of the newest acknowledged one
  bool heard_ = false;              // bytes came since that was last reported
  TimePoint heard_at_{};

  State state_ = State::greeting;
  agent_link::Ready ready_;
  HostError error_;  // once rejected
  bool link_closed_ = false;
  std::string kill_reason_;                // if the session had to kill the agent
  std::optional<std::string> end_reason_;  // once the process, or the tunnel to it, has ended
};

AgentSession::AgentSession(asio::io_context& io, AgentSessionOptions options,
                           AgentSessionCallbacks callbacks, AgentConnection connection)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(callbacks),
                                   std::move(connection))) {
  impl_->begin();
}
AgentSession::~AgentSession() { impl_->close(); }
void AgentSession::send(SharedBytes frame) { impl_->writer().send(std::move(frame)); }
void AgentSession::send(OutgoingFrames::Make make) { impl_->writer().send(std::move(make)); }
void AgentSession::send_program(const SharedBytes& program) {
  impl_->writer().send_program(program);
}
void AgentSession::send_world(const WorldFrames& world, const std::string& host) {
  const auto keys = world.keys.find(host);
  impl_->writer().send_world(world.generation, world.effective, world.world,
                             keys == world.keys.end() ? nullptr : keys->second);
}
void AgentSession::send_heartbeat() { impl_->send_heartbeat(); }
void AgentSession::report_liveness(TimePoint now, Duration pace) {
  impl_->report_liveness(now, pace);
}
void AgentSession::drop() { impl_->drop(); }
pid_t AgentSession::pid() const { return impl_->pid(); }
const agent_link::Ready& AgentSession::ready() const { return impl_->ready(); }
const std::string& AgentSession::local_address() const { return impl_->local_address(); }
const std::string& AgentSession::peer_address() const { return impl_->peer_address(); }

}  // namespace hvd::driver
