#include "discovery/poll.h"

#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "discovery/script.h"
#include "discovery/watch.h"

namespace hvd::discovery {

using boost::system::error_code;

// Outlives the Poll if that is destroyed from a callback.
class Poll::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(boost::asio::io_context& io, PollOptions options, PollCallbacks callbacks)
      : options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        watch_(options_.script, options_.slots_per_host),
        script_(std::make_unique<Script>(io, script_options(options_))),
        timer_(io) {}

  void ask() {
    script_->run([self = shared_from_this()](const ScriptEnd& end) { self->take(end); });
  }
  void stop() {
    callbacks_ = {};
    timer_.cancel();
    script_.reset();
  }

 private:
  static ScriptOptions script_options(const PollOptions& options) {
    ScriptOptions result;
    result.command = options.script;
    result.timeout = options.timeout;
    return result;
  }

  // Any call may be the last.
  void take(const ScriptEnd& end) {
    Update update = watch_.take(end);
    if (!update.warning.empty() && callbacks_.on_warning) callbacks_.on_warning(update.warning);
    if (!update.fatal.ok()) {
      if (callbacks_.on_fatal) std::exchange(callbacks_, {}).on_fatal(std::move(update.fatal));
      return;
    }
    if (update.hosts && callbacks_.on_hosts) callbacks_.on_hosts(*std::move(update.hosts));
    if (!script_) return;
    timer_.expires_after(options_.interval);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && self->script_) self->ask();
    });
  }

  const PollOptions options_;
  PollCallbacks callbacks_;
  Watch watch_;
  std::unique_ptr<Script> script_;
  boost::asio::steady_timer timer_;
};

Poll::Poll(boost::asio::io_context& io, PollOptions options, PollCallbacks callbacks)
    : impl_(std::make_shared<Impl>(io, std::move(options), std::move(callbacks))) {
  impl_->ask();
}
Poll::~Poll() { impl_->stop(); }

}  // namespace hvd::discovery
