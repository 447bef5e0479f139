#include "driver/run/agent_supply.h"

#include <utility>

namespace hvd::driver {

AgentSupply::AgentSupply(const JobContext& context, const HostTable& hosts,
                         join::JoinTokens& tokens, std::map<std::string, AgentConnection> joined,
                         Callbacks callbacks)
    : context_(context),
      hosts_(hosts),
      tokens_(tokens),
      callbacks_(std::move(callbacks)),
      starter_(std::make_unique<HostStarter>(context.io, context.spec, std::move(joined),
                                             starter_callbacks())) {}

HostStarterCallbacks AgentSupply::starter_callbacks() {
  HostStarterCallbacks callbacks;
  callbacks.on_step = [this](HostIndex host, Step step) {
    callbacks_.handle(event::HostProgress{host, step});
  };
  callbacks.on_warning = [this](std::string_view text) { context_.observer.on_warning(text); };
  callbacks.on_agent = callbacks_.on_agent;
  callbacks.on_error = [this](HostIndex host, HostError error) {
    callbacks_.handle(event::HostFailed{host, std::move(error)});
  };
  return callbacks;
}

void AgentSupply::begin_discovery(std::vector<HostSlots> listed) {
  HostSource::Callbacks callbacks;
  callbacks.on_found = [this](std::vector<event::FoundHost> hosts) {
    callbacks_.handle(event::HostsFound{std::move(hosts)});
  };
  callbacks.on_warning = [this](std::string_view text) { context_.observer.on_warning(text); };
  callbacks.on_notice = [this](std::string_view text) { context_.observer.on_notice(text); };
  callbacks.on_returned = [this](const std::string& name) {
    const auto expected = expected_.extract(name);
    if (!expected.empty()) start(expected.mapped());
  };
  callbacks.on_failed = [this](std::string message) {
    callbacks_.handle(event::DiscoveryFailed{std::move(message)});
  };
  source_ = std::make_unique<HostSource>(context_.io, context_.spec, tokens_, std::move(listed),
                                         std::move(callbacks));
}

void AgentSupply::expect(HostIndex host) {
  const event::FoundHost& found = hosts_.at(host).found;
  if (source_ && found.joins) source_->expect(found.host.name, found.host.slots);
}

void AgentSupply::start(HostIndex host) {
  const event::FoundHost& found = hosts_.at(host).found;
  const std::string name = found.host.name;
  if (source_ && source_->is_expected(name)) {
    expected_[name] = host;
    return;
  }
  if (!source_ || !source_->joins(name)) {
    return starter_->start(host, found.host, found.local);
  }
  callbacks_.handle(event::HostProgress{host, Step::start_agent});
  if (auto agent = source_->take_agent(name)) {
    callbacks_.on_agent(host, std::move(*agent));
  } else {
    callbacks_.handle(event::HostFailed{host, {Step::start_agent, "its agent is gone", 1}});
  }
}

void AgentSupply::agent_ended(HostIndex host) {
  expected_.erase(hosts_.name(host));
  if (source_) source_->agent_ended(hosts_.name(host));
}

void AgentSupply::close(int exit_code, std::function<void()> done) {
  if (!source_) return done();
  source_->close(static_cast<std::uint8_t>(exit_code), std::move(done));
}

}  // namespace hvd::driver
