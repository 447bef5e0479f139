#include "cmd/hvd-agent/prober.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

using agent_link::ProbeTarget;

std::string name_of(const ProbeTarget& target) {
  return SocketAddress{target.address, target.port}.to_string();
}

std::string failed(const ProbeTarget& target, int error_number) {
  return connect_error({target.address, target.port}, error_number).message();
}

std::string wrong_listener(const ProbeTarget& target) {
  return cat("connect to ", name_of(target), ": another program answers there");
}

std::string too_late(const ProbeTarget& target, bool connected, std::uint32_t timeout_ms) {
  const std::string limit = cat(timeout_ms / 1000.0, " s");
  if (!connected) {
    return cat("connect to ", name_of(target), ": no answer within ", limit, kAskFirewall);
  }
  return cat(wrong_listener(target), ", which sent nothing within ", limit);
}

}  // namespace

Status Prober::probe(agent_link::Probe probe, TimePoint now) {
  if (probe.targets.size() > kMostTargets) {
    return {Code::data_loss, cat("a probe of ", probe.targets.size(), " targets, where at most ",
                                 kMostTargets, " are sent")};
  }
  auto run = std::make_unique<Run>();
  run->deadline = now + std::chrono::milliseconds(probe.timeout_ms);
  run->attempts.resize(probe.targets.size());
  run->errors.resize(probe.targets.size());
  run->probe = std::move(probe);
  run->under_way = run->attempts.size();
  for (std::size_t i = 0; i < run->attempts.size(); ++i) begin(*run, i);
  runs_.push_back(std::move(run));
  return {};
}

void Prober::begin(Run& run, std::size_t index) {
  const ProbeTarget& target = run.probe.targets[index];
  Attempt& attempt = run.attempts[index];
  auto address = raw_address({target.address, target.port});
  if (!address.ok()) {
    return end(run, index,
               cat("connect to ", shell_quote(target.address), ": that is no IP address"));
  }
  attempt.socket =
      UniqueFd(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt.socket) return end(run, index, failed(target, errno));
  if (::connect(attempt.socket.get(), address->get(), address->size) != 0 && errno != EINPROGRESS) {
    return end(run, index, error_of(run, index, errno));
  }
  auto watch = loop_.watch(attempt.socket.get(), EPOLLOUT,
                           [this, &run, index](std::uint32_t) { on_events(run, index); });
  if (!watch.ok()) return end(run, index, watch.status().message());
  attempt.watch = std::move(*watch);
}

void Prober::on_events(Run& run, std::size_t index) {
  const ProbeTarget& target = run.probe.targets[index];
  Attempt& attempt = run.attempts[index];
  if (!attempt.connected) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return end(run, index, error_of(run, index, error));
    attempt.connected = true;
    if (target.greeting.empty()) return end(run, index, {});
    loop_.change(attempt.socket.get(), EPOLLIN);
  }
  hear_greeting(run, index);
}

void Prober::hear_greeting(Run& run, std::size_t index) {
  const ProbeTarget& target = run.probe.targets[index];
  Attempt& attempt = run.attempts[index];
  const std::size_t heard = attempt.received.size();
  attempt.received.resize(target.greeting.size());
  const ssize_t got = ::recv(attempt.socket.get(), attempt.received.data() + heard,
                             attempt.received.size() - heard, MSG_DONTWAIT);
  const int error_number = errno;
  attempt.received.resize(heard + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) {
    if (error_number == EINTR || error_number == EAGAIN) return;
    return end(run, index, failed(target, error_number));
  }
  if (got == 0 || !target.greeting.starts_with(attempt.received)) {
    return end(run, index, wrong_listener(target));
  }
  if (attempt.received == target.greeting) end(run, index, {});
}

// The error of a connection that failed; empty if the target was reached all the same.
std::string Prober::error_of(const Run& run, std::size_t index, int error_number) {
  if (error_number == ECONNREFUSED && run.probe.refusal_counts) return {};
  return failed(run.probe.targets[index], error_number);
}

void Prober::end(Run& run, std::size_t index, std::string error) {
  Attempt& attempt = run.attempts[index];
  attempt.watch.end();
  attempt.socket.reset();
  run.errors[index] = std::move(error);
  --run.under_way;
}

TimePoint Prober::deadline() const {
  TimePoint first = kNever;
  for (const auto& run : runs_) first = std::min(first, run->deadline);
  return first;
}

void Prober::on_time(TimePoint now) {
  std::erase_if(runs_, [&](const std::unique_ptr<Run>& run) {
    for (std::size_t i = 0; now >= run->deadline && i < run->attempts.size(); ++i) {
      const Attempt& attempt = run->attempts[i];
      if (!attempt.socket) continue;
      end(*run, i, too_late(run->probe.targets[i], attempt.connected, run->probe.timeout_ms));
    }
    if (run->under_way > 0) return false;
    answer_({run->probe.id, std::move(run->errors)});
    return true;
  });
}

}  // namespace hvd::agent
