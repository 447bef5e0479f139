#include "driver/agents/host_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/text.h"
#include "discovery/poll.h"
#include "driver/agents/joining_hosts.h"
#include "driver/agents/local_hosts.h"

namespace hvd::driver {

HostSlots slots_of(const discovery::Host& host, int default_slots) {
  return {.name = host.name,
          .slots = host.slots > 0 ? host.slots : default_slots,
          .max_slots = host.max_slots,
          .destination = host.destination,
          .user = host.user,
          .port = host.port,
          .advertise_address = host.address};
}

class HostSource::Impl {
 public:
  Impl(boost::asio::io_context& io, const JobSpec& spec, join::JoinTokens& tokens,
       std::vector<HostSlots> hosts, Callbacks callbacks)
      : spec_(*spec.elastic),
        by_srun_(spec.slurm.has_value()),
        callbacks_(std::move(callbacks)),
        local_(io) {
    if (spec.join) listen(io, *spec.join, tokens);
    if (!spec_.discovery_script.empty()) {
      run_script(io);
      return;
    }
    boost::asio::post(io, [this, alive = std::weak_ptr(alive_), hosts = std::move(hosts)] {
      if (!alive.expired()) find(hosts);
    });
  }

  // A host that the list or the script names is reached even if one of its name has joined before.
  bool joins(const std::string& host) const {
    return joining_ && joining_->joins(host) && !is_named(host);
  }
  void expect(const std::string& host, int slots) {
    if (joining_) joining_->expect(host, slots);
  }
  bool is_expected(const std::string& host) const {
    return joining_ && joining_->is_expected(host);
  }
  std::optional<AgentConnection> take_agent(const std::string& host) {
    return joining_->take(host);
  }
  void agent_ended(const std::string& host) {
    if (joining_) joining_->ended(host);
  }
  void close(std::uint8_t exit_code, std::function<void()> done) {
    closed_ = true;
    poll_.reset();
    alive_.reset();
    if (!joining_) return done();
    joining_->dismiss(exit_code, std::move(done));
  }

 private:
  void run_script(boost::asio::io_context& io) {
    discovery::PollOptions options;
    options.script = spec_.discovery_script;
    options.slots_per_host = spec_.slots_per_host;
    options.interval = spec_.discovery_interval;
    options.timeout = spec_.discovery_timeout;

    discovery::PollCallbacks on;
    on.on_hosts = [this](const std::vector<discovery::Host>& found) {
      std::vector<HostSlots> slots;
      slots.reserve(found.size());
      for (const auto& host : found) slots.push_back(slots_of(host, spec_.slots_per_host));
      find(slots);
    };
    on.on_warning = [this](std::string_view text) { callbacks_.on_warning(text); };
    on.on_fatal = [this](const Status& why) { callbacks_.on_failed(why.message()); };
    poll_ = std::make_unique<discovery::Poll>(io, std::move(options), std::move(on));
  }

  void listen(boost::asio::io_context& io, const JoinSpec& spec, join::JoinTokens& tokens) {
    JoiningHosts::Callbacks on;
    on.is_taken = [this](const std::string& host) { return is_named(host); };
    on.on_change = [this] { tell(); };
    on.on_returned = [this](const std::string& host) { callbacks_.on_returned(host); };
    on.on_notice = [this](std::string_view text) { callbacks_.on_notice(text); };
    on.on_warning = [this](std::string_view text) { callbacks_.on_warning(text); };
    joining_ = std::make_unique<JoiningHosts>(io, spec, tokens, std::move(on));
    boost::asio::post(io, [this, started = joining_->start(), alive = std::weak_ptr(alive_)] {
      if (alive.expired()) return;
      if (!started.ok()) return callbacks_.on_failed(started.message());
      callbacks_.on_notice(cat("agents may join at ", joining_->address().to_string()));
    });
  }

  bool is_named(const std::string& host) const {
    return named_ && std::any_of(named_->begin(), named_->end(), [&](const event::FoundHost& one) {
             return one.host.name == host;
           });
  }

  // A newer answer replaces one whose names are still being looked up.
  void find(const std::vector<HostSlots>& hosts) {
    // Nodes of Slurm are never reached as this machine.
    if (by_srun_) return take_found(hosts, {});
    local_.find(hosts,
                [this, hosts](const std::set<std::string>& local) { take_found(hosts, local); });
  }

  void take_found(const std::vector<HostSlots>& hosts, const std::set<std::string>& local) {
    std::vector<event::FoundHost> found;
    found.reserve(hosts.size());
    for (const auto& host : hosts)
      found.push_back({.host = host, .local = local.count(host.name) != 0});
    named_ = std::move(found);
    tell();
  }

  // The hosts that are named come first.
  void tell() {
    if (!named_ || closed_) return;
    auto found = *named_;
    if (joining_) {
      for (auto& host : joining_->hosts()) {
        if (!is_named(host.name)) found.push_back({.host = std::move(host), .joins = true});
      }
    }
    callbacks_.on_found(std::move(found));
  }

  const ElasticSpec& spec_;
  const bool by_srun_;
  Callbacks callbacks_;
  LocalHosts local_;
  std::optional<std::vector<event::FoundHost>> named_;  // by the list, or by the script
  std::unique_ptr<discovery::Poll> poll_;
  std::unique_ptr<JoiningHosts> joining_;  // null: none may join
  bool closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

HostSource::HostSource(boost::asio::io_context& io, const JobSpec& spec, join::JoinTokens& tokens,
                       std::vector<HostSlots> hosts, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(io, spec, tokens, std::move(hosts), std::move(callbacks))) {}
HostSource::~HostSource() = default;
bool HostSource::joins(const std::string& host) const { return impl_->joins(host); }
void HostSource::expect(const std::string& host, int slots) { impl_->expect(host, slots); }
bool HostSource::is_expected(const std::string& host) const { return impl_->is_expected(host); }
std::optional<AgentConnection> HostSource::take_agent(const std::string& host) {
  return impl_->take_agent(host);
}
void HostSource::agent_ended(const std::string& host) { impl_->agent_ended(host); }
void HostSource::close(std::uint8_t exit_code, std::function<void()> done) {
  impl_->close(exit_code, std::move(done));
}

}  // namespace hvd::driver
