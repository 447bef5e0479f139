#include "driver/agents/local_hosts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "driver/this_machine.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kThreads = 8;
constexpr std::chrono::seconds kPatience{10};

// Shared with threads that may outlive everything else: a name server's time is not ours to cut.
class Inquiry : public std::enable_shared_from_this<Inquiry> {
 public:
  Inquiry(asio::io_context& io, std::vector<std::string> names)
      : io_(&io), names_(std::move(names)), answers_(names_.size()) {}

  void begin() {
    const std::size_t threads = std::min(kThreads, names_.size());
    for (std::size_t i = 0; i < threads; ++i) {
      std::thread([self = shared_from_this()] { self->ask(); }).detach();
    }
  }
  // Nobody is woken any more.
  void abandon() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }
  bool done() const {
    const std::lock_guard lock(mutex_);
    return answered_ == names_.size();
  }
  std::set<std::string> local() const {
    const std::lock_guard lock(mutex_);
    std::set<std::string> result;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (answers_[i]) result.insert(names_[i]);
    }
    return result;
  }

 private:
  void ask() {
    for (;;) {
      std::size_t index = 0;
      {
        const std::lock_guard lock(mutex_);
        if (io_ == nullptr || next_ == names_.size()) return;
        index = next_++;
      }
      const bool local = is_this_machine(names_[index]);
      const std::lock_guard lock(mutex_);
      answers_[index] = local;
      if (++answered_ == names_.size() && io_ != nullptr) asio::post(*io_, [] {});
    }
  }

  mutable std::mutex mutex_;
  asio::io_context* io_;
  const std::vector<std::string> names_;
  std::vector<bool> answers_;
  std::size_t next_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace

std::set<std::string> find_local_hosts(asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts) {
  std::set<std::string> local;
  std::vector<std::pair<std::string, std::string>> unknown;  // host, where it is reached
  std::vector<std::string> questions;
  for (const auto& host : hosts) {
    if (!host.user.empty() || host.port != 0) continue;
    const std::string& where = host.destination.empty() ? host.name : host.destination;
    if (const auto known = is_this_machine_at_a_glance(where)) {
      if (*known) local.insert(host.name);
    } else {
      unknown.emplace_back(host.name, where);
      questions.push_back(where);
    }
  }
  if (questions.empty()) return local;

  const auto inquiry = std::make_shared<Inquiry>(io, std::move(questions));
  inquiry->begin();
  const auto late = std::make_shared<bool>(false);
  asio::steady_timer patience(io, kPatience);
  patience.async_wait([late](const boost::system::error_code& error) { *late = !error; });
  while (!inquiry->done() && !*late && signals.waiting() == 0) io.run_one();
  inquiry->abandon();
  const auto answers = inquiry->local();
  for (const auto& [name, where] : unknown) {
    if (answers.count(where) != 0) local.insert(name);
  }
  return local;
}

}  // namespace hvd::driver
