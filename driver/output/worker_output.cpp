#include "driver/output/worker_output.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace hvd::driver {
namespace {

Stream stream_of(agent_link::Stream stream) {
  return stream == agent_link::Stream::standard_error ? Stream::standard_error
                                                      : Stream::standard_output;
}

std::uint8_t bit_of(Stream stream) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(stream));
}

}  // namespace

WorkerView view_of(const JobWorker& worker) {
  const WorldMember& member = worker.member;
  return {.rank = member.rank,
          .host = member.host,
          .slot = member.slot,
          .incarnation = member.incarnation,
          .pid = worker.pid,
          .local_rank = member.rank < 0 ? -1 : member.local_rank};
}

WorkerOutput::WorkerOutput(const Job& job, Observer& observer, OutputCredit::Send send,
                           OutputCredit::Post post)
    : job_(job), observer_(observer), credit_(std::move(send), std::move(post)) {}

bool WorkerOutput::is_closed(std::size_t worker, Stream stream) const {
  return worker < closed_.size() && (closed_[worker] & bit_of(stream)) != 0;
}

Result<std::size_t> WorkerOutput::find(HostIndex host, Incarnation incarnation,
                                       agent_link::Stream stream) {
  const std::size_t index = job_.index_of(incarnation);
  if (index >= job_.workers().size() || job_.workers()[index].host != host ||
      job_.workers()[index].pid == 0) {
    return Status(Code::data_loss,
                  cat("it sent output of incarnation ", incarnation, ", which does not run there"));
  }
  if (is_closed(index, stream_of(stream))) {
    return Status(Code::data_loss, cat("it sent output of incarnation ", incarnation,
                                       " after it had closed the stream"));
  }
  return index;
}

Status WorkerOutput::on_output(HostIndex host, agent_link::Output output) {
  const auto index = find(host, output.incarnation, output.stream);
  if (!index) return index.status();
  if (output.bytes.size() > agent_link::kMaxOutputChunk) {
    return {Code::data_loss, cat("it sent a chunk of ", output.bytes.size(), " bytes of output")};
  }

  auto consumed = credit_.take(output.incarnation, output.stream, output.bytes.size());
  if (!consumed) return consumed.status();
  const Stream stream = stream_of(output.stream);
  if (stream == Stream::standard_error) tails_[*index].feed(output.bytes);
  if (!*consumed) {
    if (!std::exchange(lost_some_, true)) {
      observer_.on_warning(
          "the job is killed while its output is not being read; some output of the workers is "
          "lost");
    }
    return {};
  }
  observer_.on_output(view_of(job_.workers()[*index]), stream, std::move(output.bytes),
                      *std::move(consumed));
  return {};
}

Status WorkerOutput::on_closed(HostIndex host, const agent_link::OutputClosed& closed) {
  const auto index = find(host, closed.incarnation, closed.stream);
  if (!index) return index.status();
  close(*index, stream_of(closed.stream));
  return {};
}

void WorkerOutput::close(std::size_t worker, Stream stream) {
  if (is_closed(worker, stream)) return;
  if (worker >= closed_.size()) closed_.resize(worker + 1);
  closed_[worker] |= bit_of(stream);
  const JobWorker& one = job_.workers()[worker];
  credit_.end(one.member.incarnation, stream == Stream::standard_error
                                          ? agent_link::Stream::standard_error
                                          : agent_link::Stream::standard_output);
  observer_.on_output_closed(view_of(one), stream);
  if (stream == Stream::standard_error && tails_.count(worker) != 0) {
    ended_.push_back(worker);
    forget_old_tails();
  }
}

void WorkerOutput::forget_old_tails() {
  if (ended_.size() <= kTailsOfTheEnded) return;
  const auto first_cause = job_.first_cause();
  const auto oldest = std::find_if(ended_.begin(), ended_.end(), [&](std::size_t worker) {
    return job_.workers()[worker].member.incarnation != first_cause;
  });
  tails_.erase(*oldest);
  ended_.erase(oldest);
}

void WorkerOutput::close_all(std::size_t worker) {
  if (job_.workers()[worker].pid == 0) return;
  close(worker, Stream::standard_output);
  close(worker, Stream::standard_error);
}

std::vector<std::string> WorkerOutput::stderr_tail(Incarnation worker) const {
  const std::size_t index = job_.index_of(worker);
  const auto tail = tails_.find(index);
  return tail == tails_.end() ? std::vector<std::string>() : tail->second.lines();
}

std::string WorkerOutput::find_in_stderr(std::string_view text) const {
  for (const auto& [worker, tail] : tails_) {
    for (const auto& line : tail.lines()) {
      const auto at = line.find(text);
      if (at != std::string::npos) return line.substr(at);
    }
  }
  return {};
}

}  // namespace hvd::driver
