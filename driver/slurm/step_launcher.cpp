#include "driver/slurm/step_launcher.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "base/security/munge.h"
#include "base/text.h"
#include "driver/join/join_server.h"
#include "driver/slurm/srun_step.h"

namespace hvd::driver::slurm {
namespace {

namespace asio = boost::asio;

// Steps that are being created at the same time: each is a process and some messages to Slurm's
// controller.
constexpr std::size_t kParallel = 64;
// For steps to end when the job is over: srun takes some tens of milliseconds after its command.
constexpr std::chrono::seconds kEndLimit{3};
constexpr std::chrono::seconds kStopLimit{2};

}  // namespace

class StepLauncher::Impl {
 public:
  Impl(asio::io_context& io, const SlurmSpec& spec, std::function<void(std::string_view)> warn)
      : io_(io), spec_(spec), warn_(std::move(warn)) {}

  ~Impl() {
    ending_ = true;
    server_.reset();
    const auto wait_until = [this](TimePoint deadline) {
      for (const auto& step : steps_) step->process->wait_until(deadline);
    };
    wait_until(Clock::now() + kEndLimit);
    for (const auto& step : steps_) step->process->stop();
    wait_until(Clock::now() + kStopLimit);
  }

  void start(const std::string& node, Done done) {
    if (const Status listening = listen(); !listening.ok()) {
      return done(HostError{Step::start_agent, listening.message(), 1});
    }
    attempts_[node] = {.done = std::move(done), .step = nullptr};
    waiting_.push_back(node);
    begin_next();
  }

  bool give_up(const std::string& node) {
    const auto attempt = attempts_.find(node);
    if (attempt == attempts_.end()) return false;
    if (attempt->second.step) attempt->second.step->process->stop();
    attempts_.erase(attempt);
    std::erase(waiting_, node);
    begin_next();
    return true;
  }

  std::string said(const std::string& node) const {
    const auto attempt = attempts_.find(node);
    const bool runs = attempt != attempts_.end() && attempt->second.step;
    return runs ? attempt->second.step->process->text() : std::string();
  }

 private:
  struct RunningStep {
    std::string node;
    std::unique_ptr<SrunStep> process;
  };
  struct Attempt {
    Done done;
    std::shared_ptr<RunningStep> step;  // null: it waits for its turn
  };

  // The agent of a step: it ends with its connection, and its step says why.
  class StepAgent : public AgentHandle {
   public:
    StepAgent(std::unique_ptr<AgentHandle> link, std::shared_ptr<RunningStep> step)
        : link_(std::move(link)), step_(std::move(step)) {}
    int ended_fd() const override { return link_->ended_fd(); }
    void kill() override { link_->kill(); }
    std::string reap() override {
      std::string how = link_->reap();
      if (step_->process->runs()) return how;
      return cat(how, " (srun ", step_->process->text(), ")");
    }
    bool behind(TimePoint now, Duration pace) const override { return link_->behind(now, pace); }

   private:
    std::unique_ptr<AgentHandle> link_;
    std::shared_ptr<RunningStep> step_;
  };

  Status listen() {
    if (server_) return {};
    join::Callbacks callbacks;
    callbacks.admit = [this](const std::string& node, const auto& /*labels*/) {
      return admit(node);
    };
    callbacks.on_joined = [this](join::JoinedAgent agent) { on_joined(std::move(agent)); };
    callbacks.on_refused = [this](std::string_view text) { warn_(text); };
    auto server = std::make_unique<join::JoinServer>(
        io_, spec_.token, spec_.bind, std::move(callbacks), join::Limits(), spec_.ports, &tokens_);
    const Status started = server->start();
    if (!started.ok()) return started.with_context("wait for the agents of Slurm's nodes");
    server_ = std::move(server);
    return {};
  }

  void begin_next() {
    while (!waiting_.empty() && starting() < kParallel) {
      const std::string node = std::move(waiting_.front());
      waiting_.pop_front();
      begin(node);
    }
  }

  std::size_t starting() const { return attempts_.size() - waiting_.size(); }

  void begin(const std::string& node) {
    auto step = std::make_shared<RunningStep>(RunningStep{node, nullptr});
    const Status begun = begin_step(*step);
    if (!begun.ok()) return fail(node, begun.message());
    attempts_.at(node).step = step;
    steps_.insert(std::move(step));
  }

  Status begin_step(RunningStep& step) {
    std::string secret;
    std::string token_file = spec_.token_file;
    if (token_file.empty()) {
      auto token = token_of(step.node);
      HVD_RETURN_IF_ERROR(token.status());
      auto sealed = seal_with_munge(*token, spec_.munge_socket);
      if (!sealed.ok()) return sealed.status();
      secret = std::move(*sealed);
      token_file = "/dev/stdin";
    }

    auto process = SrunStep::start(io_, command_of_step(step.node, token_file), spec_.environment,
                                   secret, [this, ended = &step] { on_end(ended); });
    if (!process.ok()) return process.status();
    step.process = std::move(*process);
    return {};
  }

  // The agent of a node can join as that node alone, and come again.
  Result<std::string> token_of(const std::string& node) {
    const auto known = tokens_of_nodes_.find(node);
    if (known != tokens_of_nodes_.end()) {
      if (const auto secret = tokens_.secret_of(known->second)) {
        return to_text(PskKey{*secret, known->second});
      }
    }
    const auto made = tokens_.make({.host = node}, Clock::now());
    HVD_RETURN_IF_ERROR(made.status());
    tokens_of_nodes_[node] = made->id;
    return to_text(*made);
  }

  // The step gets the whole of the node's part of the allocation, beside the other steps of the
  // job. Without --gpus it would inherit what the job was asked for on all nodes (--gpus=3), or for
  // each of several tasks (--gpus-per-task=1). --gres would not replace the former.
  std::vector<std::string> command_of_step(const std::string& node,
                                           const std::string& token_file) const {
    std::vector<std::string> command{"srun",
                                     cat("--jobid=", spec_.job_id),
                                     cat("--nodelist=", node),
                                     "--nodes=1",
                                     "--ntasks=1",
                                     "--overlap",
                                     "--cpu-bind=none",
                                     "--mpi=none",
                                     "--unbuffered",
                                     "--kill-on-bad-exit=0",
                                     "--job-name=hvd-agent"};
    if (const auto gpus = spec_.gpus.find(node); gpus != spec_.gpus.end()) {
      command.insert(command.end(), {cat("--gpus=", gpus->second), "--gpu-bind=none"});
    }
    command.insert(
        command.end(),
        {spec_.hvdrun_path, "agent", cat("--join=tls://", server_->address().to_string()),
         cat("--token-file=", token_file), cat("--host=", node), "--join-timeout=60"});
    return command;
  }

  void fail(const std::string& node, const std::string& why) {
    const auto attempt = attempts_.find(node);
    if (attempt == attempts_.end()) return;
    const Done done = std::move(attempt->second.done);
    attempts_.erase(attempt);
    done(HostError{Step::start_agent, cat("Slurm could not start the agent: ", why), 1});
  }

  // The step is destroyed after its own callback has returned.
  void on_end(const RunningStep* ended) {
    if (ending_) return;
    const auto step = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const auto& one) { return one.get() == ended; });
    if (step == steps_.end()) return;
    const std::shared_ptr<RunningStep> kept = std::move(steps_.extract(step).value());
    asio::post(io_, [kept] {});

    const auto attempt = attempts_.find(kept->node);
    if (attempt == attempts_.end() || attempt->second.step != kept) return;
    fail(kept->node, cat("srun ", kept->process->text()));
    begin_next();
  }

  Status admit(const std::string& node) const {
    const auto attempt = attempts_.find(node);
    if (attempt != attempts_.end() && attempt->second.step) return {};
    return {Code::permission_denied, cat("no step of this job is being started on node ", node)};
  }

  void on_joined(join::JoinedAgent agent) {
    const auto attempt = attempts_.find(agent.host);
    if (attempt == attempts_.end() || !attempt->second.step) return;
    const Done done = std::move(attempt->second.done);
    AgentConnection connection = std::move(agent.connection);
    connection.handle =
        std::make_unique<StepAgent>(std::move(connection.handle), attempt->second.step);
    attempts_.erase(attempt);
    done(std::move(connection));
    begin_next();
  }

  asio::io_context& io_;
  const SlurmSpec& spec_;
  std::function<void(std::string_view)> warn_;
  bool ending_ = false;
  join::JoinTokens tokens_{spec_.token};
  std::map<std::string, std::string> tokens_of_nodes_;  // by their numbers
  std::unique_ptr<join::JoinServer> server_;
  std::map<std::string, Attempt> attempts_;  // by node
  std::deque<std::string> waiting_;          // nodes whose steps wait for their turn
  std::set<std::shared_ptr<RunningStep>> steps_;
};

StepLauncher::StepLauncher(asio::io_context& io, const SlurmSpec& spec,
                           std::function<void(std::string_view)> warn)
    : impl_(std::make_unique<Impl>(io, spec, std::move(warn))) {}
StepLauncher::~StepLauncher() = default;
void StepLauncher::start(const std::string& node, Done done) {
  impl_->start(node, std::move(done));
}
bool StepLauncher::give_up(const std::string& node) { return impl_->give_up(node); }
std::string StepLauncher::said(const std::string& node) const { return impl_->said(node); }

}  // namespace hvd::driver::slurm
