#include "driver/output/output_credit.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::uint64_t kWorthSending = agent_link::kOutputWindow / 4;

using Key = std::pair<agent_link::Incarnation, agent_link::Stream>;

struct Account {
  std::uint64_t held = 0;  // by the observer
  std::uint64_t out = 0;   // taken from the agent's window and not returned to it
  std::uint64_t owed = 0;  // the part of `out` that the observer has consumed
  bool ended = false;
};

}  // namespace

struct OutputCredit::Shared : std::enable_shared_from_this<Shared> {
  std::mutex mutex;
  bool open = true;
  bool waived = false;
  bool posted = false;  // send_owed() will run
  std::map<Key, Account> accounts;
  Send send;
  Post post;

  void consumed(const Key& key, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    if (!open) return;
    Account& account = accounts[key];
    account.held -= bytes;
    if (account.ended) {
      if (account.held == 0) accounts.erase(key);
      return;
    }
    if (waived) return;
    account.owed += bytes;
    if (account.owed < kWorthSending || posted) return;
    posted = true;
    // Under the lock, since `post` may not be called once close() has returned.
    post([self = shared_from_this()] { self->send_owed(); });
  }

  void send_owed() {
    std::vector<agent_link::Credit> credits;
    {
      const std::lock_guard lock(mutex);
      posted = false;
      if (!open || waived) return;
      for (auto& [key, account] : accounts) {
        if (account.owed < kWorthSending) continue;
        account.out -= account.owed;
        credits.push_back({key.first, key.second, std::exchange(account.owed, 0)});
      }
    }
    for (const auto& credit : credits) send(credit);
  }
};

OutputCredit::OutputCredit(Send send, Post post) : shared_(std::make_shared<Shared>()) {
  shared_->send = std::move(send);
  shared_->post = std::move(post);
}

OutputCredit::~OutputCredit() { close(); }

Result<std::function<void()>> OutputCredit::take(agent_link::Incarnation worker,
                                                 agent_link::Stream stream, std::size_t bytes) {
  const Key key(worker, stream);
  bool pay_at_once = false;
  bool room = true;
  {
    const std::lock_guard lock(shared_->mutex);
    Account& account = shared_->accounts[key];
    pay_at_once = shared_->waived;
    if (account.out + bytes > agent_link::kOutputWindow) {
      return Status(Code::resource_exhausted,
                    cat("it sent more output of incarnation ", worker, " than its window of ",
                        agent_link::kOutputWindow, " bytes allows"));
    }
    if (!pay_at_once) account.out += bytes;
    room = account.held + bytes <= agent_link::kOutputWindow;
    if (room) account.held += bytes;
  }
  if (pay_at_once) shared_->send({worker, stream, bytes});
  if (!room) return std::function<void()>();
  return std::function<void()>([shared = shared_, key, bytes] { shared->consumed(key, bytes); });
}

void OutputCredit::end(agent_link::Incarnation worker, agent_link::Stream stream) {
  const std::lock_guard lock(shared_->mutex);
  const auto account = shared_->accounts.find({worker, stream});
  if (account == shared_->accounts.end()) return;
  account->second.ended = true;
  if (account->second.held == 0) shared_->accounts.erase(account);
}

std::size_t OutputCredit::accounts() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->accounts.size();
}

void OutputCredit::waive() {
  std::vector<agent_link::Credit> credits;
  {
    const std::lock_guard lock(shared_->mutex);
    if (std::exchange(shared_->waived, true)) return;
    for (auto& [key, account] : shared_->accounts) {
      account.owed = 0;
      const std::uint64_t bytes = std::exchange(account.out, 0);
      if (bytes != 0) credits.push_back({key.first, key.second, bytes});
    }
  }
  for (const auto& credit : credits) shared_->send(credit);
}

void OutputCredit::close() {
  const std::lock_guard lock(shared_->mutex);
  shared_->open = false;
  shared_->accounts.clear();
}

}  // namespace hvd::driver
