#include "driver/agents/host_source.h"

#include <set>
#include <utility>

#include <boost/asio/post.hpp>

#include "discovery/poll.h"
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
  Impl(boost::asio::io_context& io, const ElasticSpec& spec, std::vector<HostSlots> hosts,
       Callbacks callbacks)
      : spec_(spec), callbacks_(std::move(callbacks)), local_(io) {
    if (spec.discovery_script.empty()) {
      boost::asio::post(io, [this, alive = std::weak_ptr(alive_), hosts = std::move(hosts)] {
        if (!alive.expired()) find(hosts);
      });
      return;
    }

    discovery::PollOptions options;
    options.script = spec.discovery_script;
    options.slots_per_host = spec.slots_per_host;
    options.interval = spec.discovery_interval;
    options.timeout = spec.discovery_timeout;

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

  pid_t child() const { return poll_ ? poll_->child() : -1; }

 private:
  // A newer answer replaces one whose names are still being looked up.
  void find(const std::vector<HostSlots>& hosts) {
    local_.find(hosts, [this, hosts](const std::set<std::string>& local) {
      std::vector<event::FoundHost> found;
      found.reserve(hosts.size());
      for (const auto& host : hosts) found.push_back({host, local.count(host.name) != 0});
      callbacks_.on_found(std::move(found));
    });
  }

  const ElasticSpec& spec_;
  Callbacks callbacks_;
  LocalHosts local_;
  std::unique_ptr<discovery::Poll> poll_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

HostSource::HostSource(boost::asio::io_context& io, const ElasticSpec& spec,
                       std::vector<HostSlots> hosts, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(io, spec, std::move(hosts), std::move(callbacks))) {}
HostSource::~HostSource() = default;
pid_t HostSource::child() const { return impl_->child(); }

}  // namespace hvd::driver
