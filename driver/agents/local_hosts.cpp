#include "driver/agents/local_hosts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/text.h"
#include "base/threads.h"
#include "driver/core/this_machine.h"
#include "driver/core/timers.h"
#include "driver/job/job_io.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kThreads = 8;
// The most of all lookups together: those of earlier ones may still wait for a name server.
constexpr std::size_t kMaxThreads = 64;
constexpr std::chrono::seconds kTimeout{10};

// Lookups of several names. Shared with the threads, which may outlive the question: a name server
// may take any time, and getaddrinfo() cannot be interrupted.
class NameLookups : public std::enable_shared_from_this<NameLookups> {
 public:
  // `wake` is called on the thread of `io` when all have been answered.
  NameLookups(asio::io_context& io, std::vector<std::string> names, std::function<void()> wake)
      : io_(&io), wake_(std::move(wake)), names_(std::move(names)), answers_(names_.size()) {}

  // With fewer threads than wanted, or without any, the names that are left count as unknown.
  void begin(ThreadGroup& threads) {
    const std::size_t wanted = std::min(kThreads, names_.size());
    for (std::size_t i = 0; i < wanted && threads.running() < kMaxThreads; ++i) {
      if (!threads.start([self = shared_from_this()] { self->look_up(); }).ok()) return;
    }
  }
  // No further names are looked up, and `wake` is not called any more.
  void abandon() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }
  std::vector<std::string> unanswered() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!answers_[i]) names.push_back(names_[i]);
    }
    return names;
  }
  // The names that have been answered, with the answers.
  std::map<std::string, bool> answers() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, bool> result;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (answers_[i]) result.emplace(names_[i], *answers_[i]);
    }
    return result;
  }

 private:
  void look_up() {
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
      if (++answered_ == names_.size() && io_ != nullptr) asio::post(*io_, wake_);
    }
  }

  mutable std::mutex mutex_;
  asio::io_context* io_;
  const std::function<void()> wake_;
  const std::vector<std::string> names_;
  std::vector<std::optional<bool>> answers_;
  std::size_t next_ = 0;
  std::size_t answered_ = 0;
};

}  // namespace

// Kept alive by the LocalHosts and by each of its handlers.
class LocalHosts::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(asio::io_context& io) : io_(io), timeout_(io) {}

  void find(const std::vector<HostSlots>& hosts, Done done) {
    end();
    done_ = std::move(done);
    hosts_.clear();

    std::map<std::string, bool> known;
    std::vector<std::string> unknown;
    for (const auto& host : hosts) {
      if (!host.user.empty() || host.port != 0) continue;
      const std::string& where = host.destination.empty() ? host.name : host.destination;
      hosts_.emplace_back(host.name, where);
      if (known.count(where) != 0) continue;
      auto answer = is_this_machine_without_lookup(where);
      if (const auto before = known_.find(where); !answer && before != known_.end()) {
        answer = before->second;
      }
      if (answer) {
        known.emplace(where, *answer);
      } else {
        unknown.push_back(where);
      }
    }
    known_ = std::move(known);
    if (unknown.empty()) return report();

    lookups_ = std::make_shared<NameLookups>(io_, std::move(unknown), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->take_answers();
    });
    lookups_->begin(threads_);
    timeout_.expires_after(kTimeout);
    timeout_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->take_answers();
    });
  }

  std::vector<std::string> unanswered() const {
    return lookups_ ? lookups_->unanswered() : std::vector<std::string>();
  }

  void end() {
    done_ = nullptr;
    timeout_.cancel();
    if (lookups_) lookups_->abandon();
    lookups_.reset();
  }

  // Threads that still wait for a name server are left behind; each ends with its answer.
  void close() {
    end();
    threads_.join_until(Clock::now());
  }

 private:
  // All of them, or those that came in time.
  void take_answers() {
    if (!lookups_) return;
    known_.merge(lookups_->answers());
    report();
  }

  void report() {
    const Done done = std::move(done_);
    end();
    std::set<std::string> local;
    for (const auto& [name, where] : hosts_) {
      if (const auto found = known_.find(where); found != known_.end() && found->second) {
        local.insert(name);
      }
    }
    if (done) done(local);
  }

  asio::io_context& io_;
  asio::steady_timer timeout_;
  ThreadGroup threads_;
  std::shared_ptr<NameLookups> lookups_;
  std::vector<std::pair<std::string, std::string>> hosts_;  // name, and name to connect to
  std::map<std::string, bool> known_;                       // by name to connect to
  Done done_;
};

LocalHosts::LocalHosts(asio::io_context& io) : impl_(std::make_shared<Impl>(io)) {}
LocalHosts::~LocalHosts() { impl_->close(); }
void LocalHosts::find(const std::vector<HostSlots>& hosts, Done done) {
  impl_->find(hosts, std::move(done));
}
std::vector<std::string> LocalHosts::unanswered() const { return impl_->unanswered(); }

std::set<std::string> find_local_hosts(asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts, Observer& observer) {
  LocalHosts local_hosts(io);
  const ProgressTimer progress_timer(io, [&] {
    const auto text = [&] {
      return cat("the name service to answer for ", names_text(local_hosts.unanswered()));
    };
    observer.on_waiting({Waiting::For::start, text});
  });

  std::optional<std::set<std::string>> local;
  local_hosts.find(hosts, [&](const std::set<std::string>& answer) { local = answer; });
  while (!local && signals.waiting() == 0) io.run_one();
  observer.on_waiting_over();
  return local.value_or(std::set<std::string>());
}

}  // namespace hvd::driver
