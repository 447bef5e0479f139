#include "discovery/script.h"

#include <array>
#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/text.h"
#include "discovery/script_process.h"

namespace hvd::discovery {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Pipe = asio::posix::stream_descriptor;

constexpr std::size_t kReadSize = std::size_t{16} << 10;
constexpr std::chrono::seconds kEndLimit{5};  // of a reaper that was told to end

std::string error_of(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    const char* const name = ::sigabbrev_np(number);
    return cat("was killed by ", name == nullptr ? "" : cat("SIG", name, ", "), "signal ", number);
  }
  switch (const int code = WEXITSTATUS(status)) {
    case 0:
      return "";
    case 126:
      return "exited with code 126 (may it be executed? chmod +x)";
    case 127:
      return "exited with code 127 (something was not found)";
    default:
      return cat("exited with code ", code);
  }
}

}  // namespace

// One run. Alive as long as one of its coroutines is, or the script.
class Script::Run : public std::enable_shared_from_this<Run> {
 public:
  Run(asio::io_context& io, const ScriptOptions& options, std::function<void(ScriptEnd)> done)
      : io_(io),
        options_(options),
        done_(std::move(done)),
        control_(io),
        output_(io),
        errors_(io),
        timer_(io) {}
  ~Run() {
    reap();
    reaper_.disown();  // one that no signal can end
  }

  void begin() {
    auto started = start_script(options_.command);
    if (!started) {
      end_.error = cat("could not be started: ", started.status().message());
      asio::post(io_, [self = shared_from_this()] { self->finish(); });
      return;
    }
    reaper_ = std::move(started->reaper);
    control_.assign(asio::local::stream_protocol(), started->control.release());
    output_.assign(started->output.release());
    errors_.assign(started->errors.release());
    spawn(read(output_, true));
    spawn(read(errors_, false));
    spawn(wait_for_reaper());
    spawn(watch_time());
  }

  // Kills, and calls nobody any more.
  void abandon() {
    done_ = nullptr;
    close();
    reap();
  }

  bool done() const { return !done_; }
  // True when its reaper is gone.
  bool gone() {
    reap_until(TimePoint::min());
    return reaper_.pid() < 0;
  }

 private:
  void spawn(asio::awaitable<void> work) {
    asio::co_spawn(
        io_,
        [](std::shared_ptr<Run> self, asio::awaitable<void> inner) -> asio::awaitable<void> {
          co_await std::move(inner);
          self.reset();
        }(shared_from_this(), std::move(work)),
        asio::detached);
  }

  asio::awaitable<void> read(Pipe& pipe, bool is_output) {
    std::array<char, kReadSize> buffer{};
    ++reading_;
    for (;;) {
      error_code error;
      const std::size_t size = co_await pipe.async_read_some(
          asio::buffer(buffer), asio::redirect_error(asio::use_awaitable, error));
      if (error) break;
      if (is_output) {
        take_output({buffer.data(), size});
      } else {
        end_.standard_error.append(buffer.data(), size);
        if (end_.standard_error.size() > options_.max_errors) {
          end_.standard_error.erase(0, end_.standard_error.size() - options_.max_errors);
        }
      }
    }
    --reading_;
    finish_if_over();
  }

  void take_output(std::string_view bytes) {
    if (!end_.error.empty()) return;
    end_.output += bytes;
    if (end_.output.size() <= options_.max_output) return;
    end_.output.clear();
    kill(cat("printed more than ", with_thousands(options_.max_output), " bytes and was killed"));
  }

  asio::awaitable<void> wait_for_reaper() {
    int status = 0;
    std::array<char, sizeof status> bytes{};
    error_code error;
    co_await asio::async_read(control_, asio::buffer(bytes),
                              asio::redirect_error(asio::use_awaitable, error));
    if (!done_) co_return;
    std::memcpy(&status, bytes.data(), sizeof status);
    if (error) kill_session_of(reaper_.pid(), kEndLimit);
    if (end_.error.empty()) {
      end_.error = error ? "ended with the process that watches over it, which was killed (by "
                           "the script itself, with kill -9 $PPID?)"
                         : error_of(status);
    }
    over_ = true;
    finish_if_over();
  }

  asio::awaitable<void> watch_time() {
    error_code error;
    timer_.expires_after(options_.timeout);
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (error || !done_) co_return;
    if (!over_) kill(cat("did not end within ", seconds_text(options_.timeout), " and was killed"));
    timer_.expires_after(options_.kill_timeout);
    co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (error || !done_) co_return;
    // Something that no signal reaches; or, if the reaper has ended, somebody else who holds the
    // pipes and is no business of ours.
    if (!over_) {
      end_.error += ", and is still there";
      // Its reaper does not answer: the script may have stopped it. With it the script dies, or the
      // next run would find it.
      reaper_.signal(SIGKILL);
      timer_.expires_after(options_.kill_timeout);
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (error || !done_) co_return;
    }
    finish();
  }

  void kill(std::string error) {
    if (end_.error.empty()) end_.error = std::move(error);
    error_code ignored;
    control_.shutdown(asio::local::stream_protocol::socket::shutdown_send, ignored);
  }

  void finish_if_over() {
    if (over_ && reading_ == 0) finish();
  }

  void finish() {
    if (!done_) return;
    close();
    if (over_) reap();
    // It may start the next run, or end the script.
    std::exchange(done_, nullptr)(std::move(end_));
  }

  void close() {
    error_code ignored;
    control_.close(ignored);
    output_.close(ignored);
    errors_.close(ignored);
    timer_.cancel();
  }

  // The reaper was told to end, or has ended. A process that it cannot kill is left to the kernel.
  void reap() {
    if (reaper_.pid() < 0) return;
    if (is_stopped(reaper_.pid())) reaper_.signal(SIGKILL);
    reap_until(Clock::now() + kEndLimit);
  }

  void reap_until(TimePoint deadline) {
    if (reaper_.pid() < 0 || !wait_for_child(reaper_.pid(), deadline)) return;
    static_cast<void>(reaper_.wait());
  }

  asio::io_context& io_;
  const ScriptOptions options_;
  std::function<void(ScriptEnd)> done_;
  ChildProcess reaper_;
  asio::local::stream_protocol::socket control_;
  Pipe output_;
  Pipe errors_;
  asio::steady_timer timer_;
  ScriptEnd end_;
  int reading_ = 0;
  bool over_ = false;  // the reaper has said how the script ended
};

Script::Script(asio::io_context& io, ScriptOptions options)
    : io_(io), options_(std::move(options)) {}

Script::~Script() {
  if (run_) run_->abandon();
}

void Script::run(std::function<void(ScriptEnd)> done) {
  if (run_ && !run_->gone()) {
    asio::post(io_, [done = std::move(done)] {
      done({"is still there from the last time and cannot be killed", "", ""});
    });
    return;
  }
  run_ = std::make_shared<Run>(io_, options_, std::move(done));
  run_->begin();
}

bool Script::running() const { return run_ && !run_->done(); }

}  // namespace hvd::discovery
