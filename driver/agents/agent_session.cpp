#include "driver/agents/agent_session.h"

#include <array>
#include <cerrno>
#include <optional>
#include <poll.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/build_id.h"
#include "base/frame.h"
#include "base/machine/gpus.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::local::stream_protocol::socket;

// Only so much leaves in one write: then whatever is urgent has its turn.
constexpr std::size_t kEnoughAtOnce = std::size_t{64} << 10;
// Only so much is taken in before the other agents have their turn.
constexpr std::size_t kReadSize = std::size_t{64} << 10;
// An output chunk and its header, with room for the texts of other messages.
constexpr std::size_t kMaxFrameFromAgent = std::size_t{1} << 20;
// Between the end of the link and the end of the process, which follows by itself if it crashed.
constexpr std::chrono::seconds kEndTogether{1};

// What has just been read is decoded before the next agent is read from: one buffer serves all.
std::array<char, kReadSize>& read_buffer() {
  static thread_local std::array<char, kReadSize> buffer;
  return buffer;
}

}  // namespace

// Alive as long as one of its coroutines is, or the session.
class AgentSession::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, AgentSessionOptions options, AgentSessionCallbacks callbacks,
       AgentConnection connection)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        hold_(std::move(connection.hold)),
        pid_(hold_->pid()),
        local_address_(std::move(connection.local_address)),
        peer_address_(std::move(connection.peer_address)),
        link_(io, asio::local::stream_protocol(), connection.link.release()),
        ended_(io, ::dup(hold_->ended_fd())),
        link_patience_(io),
        decoder_(kMaxFrameFromAgent) {}

  void begin() {
    error_code ignored;
    link_.non_blocking(true, ignored);
    agent_link::Hello hello = options_.hello;
    hello.protocol = agent_link::kProtocolVersion;
    hello.build_id = std::string(build_id());
    hello.local = pid_ > 0;
    send(share(hello.encode()));
    send(share(options_.check.encode()));
    spawn(read());
    spawn(watch_end());
  }

  // Of a frame, or of what makes one.
  template <typename Frame>
  void send(Frame frame) {
    if (!writable_) return;
    unsent_.push(std::move(frame));
    begin_to_write();
  }

  void send_world(std::uint64_t generation, bool effective, SharedBytes frame) {
    if (!writable_ || (effective && generation <= newest_effective_)) return;
    if (effective) newest_effective_ = generation;
    unsent_.push_world(effective, std::move(frame));
    begin_to_write();
  }

  void send_program(const SharedBytes& program) {
    if (!std::exchange(program_sent_, true)) send(program);
  }

  void beat() {
    if (!is_ready() || bye_) return;
    // What cannot be written now would be no news by the time it can.
    if (!writable_ || unsent_.urgent_waits()) return;
    // Ahead of all that waits: it is the host's lease.
    unsent_.push_urgent(share(agent_link::Heartbeat{++beats_, acknowledged_}.encode()));
    begin_to_write();
  }

  void look(TimePoint now, Duration pace) {
    if (!is_ready() || bye_ || link_ended_) return;
    if (std::exchange(spoke_, false)) {
      report(event::Heard{options_.host});
    } else if (now - spoke_at_ > pace && behind(now, pace)) {
      report(event::Unserved{options_.host});
    }
  }

  void drop() {
    dropped_ = true;
    if (hold_) hold_->kill();
  }
  // After this nothing is reported any more.
  void detach() {
    callbacks_ = {};
    error_code ignored;
    link_.close(ignored);
    ended_.close(ignored);
    link_patience_.cancel();
    hold_.reset();
    writable_ = false;
  }
  pid_t pid() const { return pid_; }
  const agent_link::Ready& ready() const { return ready_; }
  const std::string& local_address() const { return local_address_; }
  const std::string& peer_address() const { return peer_address_; }

 private:
  bool is_ready() const { return greeted_ && checked_ && !trouble_; }

  // A write that has just begun ends in the next turn of the loop, also to a host that is gone.
  bool behind(TimePoint now, Duration pace) {
    pollfd polled{link_.native_handle(), POLLIN | POLLOUT, 0};
    if (::poll(&polled, 1, 0) > 0) {
      const bool unread = (polled.revents & POLLIN) != 0;
      const bool takes_more = (polled.revents & POLLOUT) != 0;
      if (unread || (takes_more && writing_ && now - write_began_ > pace)) return true;
    }
    return hold_ && hold_->behind();
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

  void begin_to_write() {
    if (std::exchange(writing_, true)) return;
    write_began_ = Clock::now();
    spawn(write());
  }

  asio::awaitable<void> write() {
    error_code error;
    while (writable_ && !unsent_.empty()) {
      std::vector<asio::const_buffer> buffers;
      for (const auto piece : unsent_.next(kEnoughAtOnce)) {
        buffers.emplace_back(piece.data(), piece.size());
      }
      const std::size_t written = co_await asio::async_write(
          link_, buffers, asio::redirect_error(asio::use_awaitable, error));
      if (error) writable_ = false;  // why shows in read() and watch_end()
      unsent_.advance(written);
    }
    if (!writable_) unsent_.clear();
    writing_ = false;
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
      spoke_ = true;
      spoke_at_ = Clock::now();
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
    if (!callbacks_.on_event) co_return;  // detached meanwhile
    link_ended_ = true;
    if (!status.ok() && is_ready()) {
      report(event::AgentBroken{options_.host, status.message()});
    } else if (!status.ok()) {
      give_up({Step::start_agent,
               cat("what runs there is no agent of ours: ", status.message(), hint()), 1});
    } else if (!ended_seen_) {
      link_patience_.expires_after(kEndTogether);
      error_code error;
      co_await link_patience_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (!ended_seen_ && callbacks_.on_event) {
        closed_early_ = !bye_;
        hold_->kill();
      }
    }
    finish_if_ended();
  }

  asio::awaitable<void> watch_end() {
    error_code error;
    co_await ended_.async_wait(asio::posix::stream_descriptor::wait_read,
                               asio::redirect_error(asio::use_awaitable, error));
    if (!callbacks_.on_event) co_return;
    how_ = hold_->reap();
    if (closed_early_) how_ = "closed its link and did not end";
    ended_seen_ = true;
    link_patience_.cancel();
    if (!bye_ && pid_ > 0) callbacks_.kill_orphans();
    // What it sent before is still read; whoever else may hold the other end is not waited for.
    error_code ignored;
    link_.shutdown(Socket::shutdown_receive, ignored);
    finish_if_ended();
  }

  // It cannot take part; reported when it has ended.
  void give_up(HostTrouble trouble) {
    if (!trouble_) trouble_ = std::move(trouble);
    hold_->kill();
  }

  void finish_if_ended() {
    if (!link_ended_ || !ended_seen_ || std::exchange(finished_, true)) return;
    if (bye_) how_ += " and said goodbye";
    if (is_ready() || dropped_) {
      report(event::AgentGone{options_.host, how_});
      return;
    }
    if (!trouble_) {
      trouble_ = {Step::start_agent,
                  cat("the agent ended before it was ready: it ", how_, greeted_ ? "" : hint()), 1};
    }
    report(event::HostFailed{options_.host, *trouble_});
  }

  std::string hint() const {
    return cat("; is ", options_.where, " the hvd-agent that belongs to this hvdrun?");
  }

  void report(const Event& event) {
    if (callbacks_.on_event) callbacks_.on_event(event);
  }

  template <typename Message, typename Use>
  Status decode(const Frame& frame, Use use) {
    auto message = Message::decode(frame.payload);
    if (!message) return message.status();
    return use(*std::move(message));
  }

  Status handle(const Frame& frame) {
    using agent_link::Kind;
    const HostIndex host = options_.host;
    const auto kind = static_cast<Kind>(frame.kind);
    const auto tell = [this](const Event& event) {
      report(event);
      return Status();
    };
    if (trouble_) return {};
    if (bye_)
      return {Code::data_loss, cat("it sent a message of kind ", frame.kind, " after its goodbye")};
    switch (kind) {
      case Kind::ready:
        return decode<agent_link::Ready>(
            frame, [&](const agent_link::Ready& ready) { return on_ready(ready); });
      case Kind::launched:
        return decode<agent_link::Launched>(frame, [&](const agent_link::Launched& message) {
          return tell(event::Launched{host, message.incarnation, message.pid});
        });
      case Kind::launch_failed:
        return decode<agent_link::LaunchFailed>(frame, [&](agent_link::LaunchFailed message) {
          return tell(event::LaunchFailed{host, message.incarnation, message.error_number,
                                          std::move(message.message)});
        });
      case Kind::worker_initialised:
        return decode<agent_link::WorkerInitialised>(
            frame, [&](const agent_link::WorkerInitialised& message) {
              return tell(event::Initialised{host, message.incarnation});
            });
      case Kind::worker_done:
        return decode<agent_link::WorkerDone>(frame, [&](const agent_link::WorkerDone& message) {
          return tell(event::Done{host, message.incarnation});
        });
      case Kind::worker_ready:
        return decode<agent_link::WorkerReady>(frame, [&](const agent_link::WorkerReady& message) {
          return tell(event::WorkerReady{host, message.incarnation});
        });
      case Kind::worker_leaves:
        return decode<agent_link::WorkerLeaves>(
            frame, [&](const agent_link::WorkerLeaves& message) {
              return tell(event::LeaveRequested{host, message.incarnation});
            });
      case Kind::worker_left:
        return decode<agent_link::WorkerLeft>(frame, [&](agent_link::WorkerLeft message) {
          return tell(event::WorkerLeft{host, message.incarnation, std::move(message.reason)});
        });
      case Kind::described:
        return decode<agent_link::Described>(frame, [&](agent_link::Described message) {
          return tell(event::Described{host, message.incarnation, std::move(message.text)});
        });
      case Kind::world_committed:
        return decode<agent_link::WorldCommitted>(
            frame, [&](const agent_link::WorldCommitted& message) {
              return tell(event::Committed{host, message.incarnation, message.generation});
            });
      case Kind::host_leaves:
        return decode<agent_link::HostLeaves>(
            frame, [&](const agent_link::HostLeaves&) { return tell(event::HostLeaves{host}); });
      case Kind::exited:
        return decode<agent_link::Exited>(frame, [&](const agent_link::Exited& message) {
          return tell(event::Exited{host, message.incarnation, message.exit_code,
                                    message.signal_number, message.core_dumped,
                                    message.out_of_memory, message.memory_limit});
        });
      case Kind::output:
        return decode<agent_link::Output>(frame, [&](agent_link::Output message) {
          return callbacks_.on_output ? callbacks_.on_output(std::move(message)) : Status();
        });
      case Kind::output_closed:
        return decode<agent_link::OutputClosed>(
            frame, [&](const agent_link::OutputClosed& message) {
              return callbacks_.on_output_closed ? callbacks_.on_output_closed(message) : Status();
            });
      case Kind::heartbeat_ack:
        return decode<agent_link::HeartbeatAck>(
            frame, [&](const agent_link::HeartbeatAck& ack) { return on_ack(ack); });
      case Kind::checked:
        return decode<agent_link::Checked>(
            frame, [&](const agent_link::Checked& checked) { return on_checked(checked); });
      case Kind::probed:
        return decode<agent_link::Probed>(frame, [&](const agent_link::Probed& probed) {
          return callbacks_.on_probed ? callbacks_.on_probed(probed) : Status();
        });
      case Kind::problem:
        return decode<agent_link::Problem>(frame, [&](const agent_link::Problem& message) {
          if (callbacks_.on_problem) callbacks_.on_problem(message.message);
          return Status();
        });
      case Kind::worker_activity:
        return decode<agent_link::WorkerActivity>(frame, [&](agent_link::WorkerActivity message) {
          if (callbacks_.on_activity) callbacks_.on_activity(std::move(message));
          return Status();
        });
      case Kind::activity_wanted:
        return decode<agent_link::ActivityWanted>(frame, [&](const agent_link::ActivityWanted&) {
          if (callbacks_.on_activity_wanted) callbacks_.on_activity_wanted();
          return Status();
        });
      case Kind::paused:
        return decode<agent_link::Paused>(frame, [&](const agent_link::Paused& message) {
          if (message.on && callbacks_.on_paused) callbacks_.on_paused();
          return Status();
        });
      case Kind::bye:
        return decode<agent_link::Bye>(frame, [&](const agent_link::Bye&) {
          bye_ = true;
          return Status();
        });
      default:
        return {Code::data_loss,
                cat("it sent a message of kind ", frame.kind, ", which no agent sends")};
    }
  }

  Status on_ready(const agent_link::Ready& ready) {
    if (ready.protocol != agent_link::kProtocolVersion || ready.build_id != build_id()) {
      return {Code::failed_precondition,
              cat("it is of build ", ready.build_id, ", and hvdrun of build ", build_id())};
    }
    if (greeted_) return {Code::data_loss, "it said twice that it was ready"};
    greeted_ = true;
    ready_ = ready;
    if (!checked_) report(event::HostProgress{options_.host, Step::change_directory});
    report_if_ready();
    return {};
  }

  Status on_checked(const agent_link::Checked& checked) {
    using Wrong = agent_link::Checked::Step;
    if (checked_) return {Code::data_loss, "it answered twice what it was asked to check"};
    checked_ = true;
    if (checked.failed == Wrong::nothing_wrong) {
      report_if_ready();
    } else {
      const bool directory = checked.failed == Wrong::change_directory;
      // 126 and 127 are said of a program alone.
      give_up({directory ? Step::change_directory : Step::find_program, checked.message,
               directory ? 1 : exit_code_of_failed_start(checked.error_number)});
    }
    return {};
  }

  void report_if_ready() {
    if (!is_ready() || dropped_) return;
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
    spoke_ = false;
    report(event::Heard{options_.host});
    return {};
  }

  AgentSessionOptions options_;
  AgentSessionCallbacks callbacks_;
  std::unique_ptr<AgentHold> hold_;
  const pid_t pid_;
  const std::string local_address_;
  const std::string peer_address_;
  Socket link_;
  asio::posix::stream_descriptor ended_;
  asio::steady_timer link_patience_;
  FrameDecoder decoder_;

  OutgoingFrames unsent_;
  std::uint64_t newest_effective_ = 0;  // world that was sent
  bool program_sent_ = false;
  bool writing_ = false;
  TimePoint write_began_{};
  bool writable_ = true;

  std::uint64_t beats_ = 0;         // heartbeats sent
  std::uint64_t acknowledged_ = 0;  // the newest that was answered
  bool spoke_ = false;              // it sent something since that was last reported
  TimePoint spoke_at_{};

  agent_link::Ready ready_;
  bool greeted_ = false;
  bool checked_ = false;
  std::optional<HostTrouble> trouble_;  // why it was given up before it was ready
  bool dropped_ = false;
  bool bye_ = false;
  bool closed_early_ = false;
  bool link_ended_ = false;
  bool ended_seen_ = false;  // the process, or the way to it
  bool finished_ = false;
  std::string how_;
};

AgentSession::AgentSession(asio::io_context& io, AgentSessionOptions options,
                           AgentSessionCallbacks callbacks, AgentConnection connection)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(callbacks),
                                   std::move(connection))) {
  impl_->begin();
}
AgentSession::~AgentSession() { impl_->detach(); }
void AgentSession::send(SharedBytes frame) { impl_->send(std::move(frame)); }
void AgentSession::send(OutgoingFrames::Make make) { impl_->send(std::move(make)); }
void AgentSession::send_program(const SharedBytes& program) { impl_->send_program(program); }
void AgentSession::send_world(std::uint64_t generation, bool effective, SharedBytes frame) {
  impl_->send_world(generation, effective, std::move(frame));
}
void AgentSession::beat() { impl_->beat(); }
void AgentSession::look(TimePoint now, Duration pace) { impl_->look(now, pace); }
void AgentSession::drop() { impl_->drop(); }
pid_t AgentSession::pid() const { return impl_->pid(); }
const agent_link::Ready& AgentSession::ready() const { return impl_->ready(); }
const std::string& AgentSession::local_address() const { return impl_->local_address(); }
const std::string& AgentSession::peer_address() const { return impl_->peer_address(); }

}  // namespace hvd::driver
