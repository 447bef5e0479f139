#include "driver/agents/local_hosts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "driver/core/this_machine.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kThreads = 8;
constexpr std::chrono::seconds kPatience{10};

// Shared with threads that may outlive everything else: a name server's time is not ours to cut.
class Inquiry : public std::enable_shared_from_this<Inquiry> {
 public:
  // `wake` is called on the thread of `io` when all have been answered.
  Inquiry(asio::io_context& io, std::vector<std::string> names, std::function<void()> wake)
      : io_(&io), wake_(std::move(wake)), names_(std::move(names)), answers_(names_.size()) {}

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
  // Those that were asked of and answered, with the answer.
  std::map<std::string, bool> answers() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, bool> result;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (answers_[i]) result.emplace(names_[i], *answers_[i]);
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

// Alive as long as one of its handlers is.
class LocalHosts::Impl : public std::enable_shared_from_this<Impl> {
 public:
  explicit Impl(asio::io_context& io) : io_(io), patience_(io) {}

  void ask(const std::vector<HostSlots>& hosts, Done done) {
    end();
    done_ = std::move(done);
    hosts_.clear();
    std::map<std::string, bool> known;
    std::vector<std::string> questions;
    for (const auto& host : hosts) {
      if (!host.user.empty() || host.port != 0) continue;
      const std::string& where = host.destination.empty() ? host.name : host.destination;
      hosts_.emplace_back(host.name, where);
      if (known.count(where) != 0) continue;
      auto answer = is_this_machine_at_a_glance(where);
      if (const auto before = known_.find(where); !answer && before != known_.end()) {
        answer = before->second;
      }
      if (answer) {
        known.emplace(where, *answer);
      } else {
        questions.push_back(where);
      }
    }
    known_ = std::move(known);
    if (questions.empty()) return tell();
    inquiry_ = std::make_shared<Inquiry>(io_, std::move(questions), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->take_answers();
    });
    inquiry_->begin();
    patience_.expires_after(kPatience);
    patience_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->take_answers();
    });
  }

  void end() {
    done_ = nullptr;
    patience_.cancel();
    if (inquiry_) inquiry_->abandon();
    inquiry_.reset();
  }

 private:
  // All of them, or those that came in time.
  void take_answers() {
    if (!inquiry_) return;
    known_.merge(inquiry_->answers());
    tell();
  }

  void tell() {
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
  asio::steady_timer patience_;
  std::shared_ptr<Inquiry> inquiry_;
  std::vector<std::pair<std::string, std::string>> hosts_;  // name, where it is reached
  std::map<std::string, bool> known_;                       // of where
  Done done_;
};

LocalHosts::LocalHosts(asio::io_context& io) : impl_(std::make_shared<Impl>(io)) {}
LocalHosts::~LocalHosts() { impl_->end(); }
void LocalHosts::ask(const std::vector<HostSlots>& hosts, Done done) {
  impl_->ask(hosts, std::move(done));
}

std::set<std::string> find_local_hosts(asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts) {
  LocalHosts question(io);
  std::optional<std::set<std::string>> local;
  question.ask(hosts, [&](const std::set<std::string>& answer) { local = answer; });
  while (!local && signals.waiting() == 0) io.run_one();
  return local.value_or(std::set<std::string>());
}

}  // namespace hvd::driver
