#include "driver/agents/host_starter.h"

#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "base/text.h"
#include "driver/agents/agent_process.h"
#include "driver/slurm/step_launcher.h"
#include "driver/ssh/launcher.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;

// A callback of the launcher on one of its threads.
struct LaunchUpdate {
  HostIndex host = 0;
  std::variant<Step, std::string, AgentConnection, HostError> value;  // a text is a warning
};

}  // namespace

class HostStarter::Impl : public std::enable_shared_from_this<HostStarter::Impl> {
 public:
  Impl(asio::io_context& io, const JobSpec& spec, std::map<std::string, AgentConnection> joined,
       HostStarterCallbacks callbacks)
      : io_(io), spec_(spec), joined_(std::move(joined)), callbacks_(std::move(callbacks)) {}

  void start(HostIndex host, const HostSlots& how, bool local) {
    if (const auto joined = joined_.find(how.name); joined != joined_.end()) {
      callbacks_.on_step(host, Step::start_agent);
      AgentConnection connection = std::move(joined->second);
      joined_.erase(joined);
      callbacks_.on_agent(host, std::move(connection));
    } else if (spec_.slurm) {
      start_step(host, how.name);
    } else if (local) {
      start_here(host);
    } else {
      start_there(host, how);
    }
  }

  bool give_up(HostIndex host) {
    if (const auto step = steps_.find(host); step != steps_.end()) {
      const std::string said = step_launcher_->said(step->second);
      if (!said.empty())
        callbacks_.on_warning(cat("host ", step->second, ": srun has said: ", said));
      const bool given_up = step_launcher_->give_up(step->second);
      steps_.erase(step);
      return given_up;
    }
    return attempts_.erase(host) != 0;
  }

  void end() {
    callbacks_ = {};
    attempts_.clear();
    step_launcher_.reset();
    {
      const std::lock_guard lock(mutex_);
      updates_.clear();
    }
    joined_.clear();
    launcher_.reset();
  }

 private:
  void start_here(HostIndex host) {
    callbacks_.on_step(host, Step::start_agent);
    auto agent = AgentProcess::start(spec_.agent_path);
    if (agent) {
      callbacks_.on_agent(host, *std::move(agent));
    } else {
      callbacks_.on_error(host,
                          {Step::start_agent,
                           cat("the agent could not be started: ", agent.status().message()), 1});
    }
  }

  void start_step(HostIndex host, const std::string& node) {
    if (!step_launcher_) {
      step_launcher_ = std::make_unique<slurm::StepLauncher>(
          io_, *spec_.slurm, [this](std::string_view text) { callbacks_.on_warning(text); });
    }
    callbacks_.on_step(host, Step::start_agent);
    steps_[host] = node;
    step_launcher_->start(node, [this, host](std::variant<AgentConnection, HostError> result) {
      steps_.erase(host);
      if (auto* const connection = std::get_if<AgentConnection>(&result)) {
        callbacks_.on_agent(host, std::move(*connection));
      } else {
        callbacks_.on_error(host, std::get<HostError>(std::move(result)));
      }
    });
  }

  void start_there(HostIndex host, const HostSlots& how) {
    if (!launcher_) {
      ssh::Options options = spec_.ssh;
      if (options.agent_path.empty()) options.agent_path = spec_.agent_path;
      launcher_ = std::make_unique<ssh::Launcher>(std::move(options));
    }
    ssh::Callbacks callbacks;
    callbacks.on_step = [this, host](Step step) { push({host, step}); };
    callbacks.on_warning = [this, host](const std::string& text) { push({host, text}); };
    callbacks.on_end = [this, host](std::variant<AgentConnection, HostError> result) {
      std::visit([&](auto& value) { push({host, std::move(value)}); }, result);
    };
    // No update can be handled before the attempt is stored: that happens on this thread.
    attempts_[host] =
        launcher_->start({how.destination.empty() ? how.name : how.destination, how.user, how.port},
                         std::move(callbacks));
  }

  // On any thread. Connections wait in this queue rather than in a handler of `io`, so that they
  // are destroyed before the launcher is. `this` exists: an attempt makes no callbacks after its
  // end, and this object ends them all.
  void push(LaunchUpdate update) {
    const std::lock_guard lock(mutex_);
    updates_.push_back(std::move(update));
    if (updates_.size() > 1) return;
    asio::post(io_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->handle_updates();
    });
  }

  void handle_updates() {
    for (;;) {
      std::deque<LaunchUpdate> updates;
      {
        const std::lock_guard lock(mutex_);
        updates.swap(updates_);
      }
      if (updates.empty()) return;
      for (auto& update : updates) handle(std::move(update));
    }
  }

  void handle(LaunchUpdate update) {
    const auto attempt = attempts_.find(update.host);
    if (attempt == attempts_.end()) return;  // it was given up meanwhile
    if (const Step* const step = std::get_if<Step>(&update.value)) {
      callbacks_.on_step(update.host, *step);
      return;
    }
    if (const auto* const text = std::get_if<std::string>(&update.value)) {
      callbacks_.on_warning(*text);
      return;
    }

    attempts_.erase(attempt);
    if (auto* const connection = std::get_if<AgentConnection>(&update.value)) {
      callbacks_.on_agent(update.host, std::move(*connection));
    } else {
      callbacks_.on_error(update.host, std::get<HostError>(std::move(update.value)));
    }
  }

  asio::io_context& io_;
  const JobSpec& spec_;
  std::map<std::string, AgentConnection> joined_;
  HostStarterCallbacks callbacks_;
  std::mutex mutex_;
  std::deque<LaunchUpdate> updates_;
  std::unique_ptr<ssh::Launcher> launcher_;
  std::map<HostIndex, std::unique_ptr<ssh::Launcher::Attempt>> attempts_;
  std::unique_ptr<slurm::StepLauncher> step_launcher_;
  std::map<HostIndex, std::string> steps_;  // nodes whose agents are being started by srun
};

HostStarter::HostStarter(asio::io_context& io, const JobSpec& spec,
                         std::map<std::string, AgentConnection> joined,
                         HostStarterCallbacks callbacks)
    : impl_(std::make_shared<Impl>(io, spec, std::move(joined), std::move(callbacks))) {}
HostStarter::~HostStarter() { impl_->end(); }
void HostStarter::start(HostIndex host, const HostSlots& how, bool local) {
  impl_->start(host, how, local);
}
bool HostStarter::give_up(HostIndex host) { return impl_->give_up(host); }

}  // namespace hvd::driver
