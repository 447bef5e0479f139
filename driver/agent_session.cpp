#include "driver/agent_session.h"

#include <optional>
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
#include "base/socket.h"
#include "base/text.h"
#include "driver/agent_process.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::local::stream_protocol::socket;

constexpr std::size_t kReadSize = std::size_t{256} << 10;
// An output chunk and its header, with room for the texts of other messages.
constexpr std::size_t kMaxFrameFromAgent = std::size_t{1} << 20;
// Between the end of the link and the end of the process, which follows by itself if it crashed.
constexpr std::chrono::seconds kEndTogether{1};

}  // namespace

// Alive as long as one of its two coroutines is, or the session.
class AgentSession::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, AgentSessionOptions options, AgentSessionCallbacks callbacks,
       AgentProcess process, UniqueFd link)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        process_(std::move(process)),
        pid_(process_.pid()),
        link_(io, asio::local::stream_protocol(), link.release()),
        ended_(io, ::dup(process_.ended_fd())),
        link_patience_(io),
        decoder_(kMaxFrameFromAgent) {}

  void begin() {
    send(agent_link::Hello{agent_link::kProtocolVersion, std::string(build_id()), options_.job_id}
             .encode());
    spawn(read());
    spawn(watch_process());
  }

  void send(std::string_view frame) {
    if (!writable_) return;
    unsent_ += frame;
    if (!std::exchange(writing_, true)) spawn(write());
  }

  void drop() { process_.kill(); }
  // After this nothing is reported any more.
  void detach() {
    callbacks_ = {};
    error_code ignored;
    link_.close(ignored);
    ended_.close(ignored);
    link_patience_.cancel();
    process_.kill();
  }
  pid_t pid() const { return pid_; }

 private:
  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(
        link_.get_executor(),
        [](std::shared_ptr<Impl> self, asio::awaitable<void> inner) -> asio::awaitable<void> {
          co_await std::move(inner);
          self.reset();
        }(shared_from_this(), std::move(work)),
        asio::detached);
  }

  asio::awaitable<void> write() {
    error_code error;
    while (!unsent_.empty()) {
      sending_.clear();
      sending_.swap(unsent_);
      co_await asio::async_write(link_, asio::buffer(sending_),
                                 asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        writable_ = false;  // why shows in read() and watch_process()
        unsent_.clear();
        break;
      }
    }
    writing_ = false;
  }

  asio::awaitable<void> read() {
    std::vector<char> buffer(kReadSize);
    Status status;
    while (status.ok()) {
      error_code error;
      const std::size_t size = co_await link_.async_read_some(
          asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
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
    if (!status.ok()) {
      const std::string what = ready_ ? status.message() : cat(status.message(), wrong_agent());
      report(event::AgentBroken{options_.host, what});
    } else if (!process_ended_) {
      link_patience_.expires_after(kEndTogether);
      error_code error;
      co_await link_patience_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (!process_ended_ && callbacks_.on_event) {
        closed_early_ = !bye_;
        process_.kill();
      }
    }
    finish_if_ended();
  }

  asio::awaitable<void> watch_process() {
    error_code error;
    co_await ended_.async_wait(asio::posix::stream_descriptor::wait_read,
                               asio::redirect_error(asio::use_awaitable, error));
    if (!callbacks_.on_event) co_return;
    how_ = process_.reap();
    if (closed_early_) how_ = "closed its link and did not end";
    process_ended_ = true;
    link_patience_.cancel();
    if (!bye_) callbacks_.kill_orphans();
    // What it sent before is still read; whoever else may hold the other end is not waited for.
    error_code ignored;
    link_.shutdown(Socket::shutdown_receive, ignored);
    finish_if_ended();
  }

  void finish_if_ended() {
    if (!link_ended_ || !process_ended_ || std::exchange(finished_, true)) return;
    if (bye_) how_ += " and said goodbye";
    if (!ready_) how_ += wrong_agent();
    report(event::AgentGone{options_.host, how_});
  }

  std::string wrong_agent() const {
    return cat("; is ", options_.agent_path, " the hvd-agent that belongs to this hvdrun?");
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
      case Kind::exited:
        return decode<agent_link::Exited>(frame, [&](const agent_link::Exited& message) {
          return tell(event::Exited{host, message.incarnation, message.exit_code,
                                    message.signal_number, message.core_dumped});
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
            frame, [](const agent_link::HeartbeatAck&) { return Status(); });
      case Kind::problem:
        return decode<agent_link::Problem>(frame, [&](const agent_link::Problem& message) {
          if (callbacks_.on_problem) callbacks_.on_problem(message.message);
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
    ready_ = true;
    report(event::AgentReady{options_.host});
    return {};
  }

  AgentSessionOptions options_;
  AgentSessionCallbacks callbacks_;
  AgentProcess process_;
  pid_t pid_;
  Socket link_;
  asio::posix::stream_descriptor ended_;
  asio::steady_timer link_patience_;
  FrameDecoder decoder_;

  std::string unsent_;
  std::string sending_;
  bool writing_ = false;
  bool writable_ = true;

  bool ready_ = false;
  bool bye_ = false;
  bool closed_early_ = false;
  bool link_ended_ = false;
  bool process_ended_ = false;
  bool finished_ = false;
  std::string how_;
};

Result<std::unique_ptr<AgentSession>> AgentSession::start(asio::io_context& io,
                                                          AgentSessionOptions options,
                                                          AgentSessionCallbacks callbacks) {
  auto pair = socket_pair();
  if (!pair) return pair.status();
  auto process = AgentProcess::start(options.agent_path, pair->second);
  if (!process) return process.status();
  pair->second.reset();
  auto impl = std::make_shared<Impl>(io, std::move(options), std::move(callbacks),
                                     *std::move(process), std::move(pair->first));
  impl->begin();
  return std::unique_ptr<AgentSession>(new AgentSession(std::move(impl)));
}

AgentSession::AgentSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
AgentSession::~AgentSession() { impl_->detach(); }
void AgentSession::send(std::string_view frame) { impl_->send(frame); }
void AgentSession::drop() { impl_->drop(); }
pid_t AgentSession::pid() const { return impl_->pid(); }

}  // namespace hvd::driver
