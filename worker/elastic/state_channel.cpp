#include "worker/elastic/state_channel.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "base/text.h"

namespace hvd::worker {
namespace {

using runtime::Entry;
using runtime::Failure;
using runtime::Kind;
using runtime::Outcome;

Entry entry_of(Kind kind, const std::string& name, std::size_t bytes) {
  Entry entry;
  entry.request.name = cat(runtime::kStateNames, name);
  entry.request.kind = kind;
  entry.request.type = DataType::uint8;
  entry.request.shape = {static_cast<std::int64_t>(bytes)};
  return entry;
}

}  // namespace

Outcome StateChannel::run(Entry entry, const std::function<void()>& meanwhile) {
  const auto promise = std::make_shared<std::promise<Outcome>>();
  auto future = promise->get_future();
  entry.done_wakes_only = true;
  entry.done = [promise](const Outcome& outcome) { promise->set_value(outcome); };
  if (auto refused = world_.enqueue(std::move(entry)); !refused.ok()) return refused;
  if (meanwhile) meanwhile();
  world_.progress_until([&future] {
    return future.wait_for(std::chrono::seconds::zero()) == std::future_status::ready;
  });
  return future.get();
}

Failure StateChannel::gather(const std::string& name, std::string_view record,
                             std::vector<std::string>& all) {
  auto entry = entry_of(Kind::allgather, name, record.size());
  std::string room;
  entry.input = record.data();
  entry.allocate = [&room](const auto& shape) {
    room.resize(static_cast<std::size_t>(shape.front()));
    return room.data();
  };
  const auto outcome = run(std::move(entry));
  if (!outcome.ok()) return outcome.failure;
  if (outcome.contributors != size() ||
      room.size() != record.size() * static_cast<std::size_t>(size())) {
    return Status(Code::invalid_argument,
                  cat(name,
                      ": some ranks have called join(), or run another version of hvd; all "
                      "ranks must take part"));
  }
  all.clear();
  for (std::size_t at = 0; at < room.size(); at += record.size()) {
    all.push_back(room.substr(at, record.size()));
  }
  return {};
}

Failure StateChannel::broadcast(const std::string& name, int root, std::span<std::byte> bytes) {
  auto entry = entry_of(Kind::broadcast, name, bytes.size());
  entry.request.root = root;
  entry.input = bytes.data();
  entry.output = bytes.data();
  return run(std::move(entry)).failure;
}

Failure StateChannel::broadcast_on(int device, const std::string& name, int root,
                                   std::span<std::byte> bytes,
                                   const std::function<void()>& meanwhile) {
  auto entry = entry_of(Kind::broadcast, name, bytes.size());
  entry.request.root = root;
  entry.request.on_host = false;
  entry.device.cuda = device;
  entry.input = bytes.data();
  entry.output = bytes.data();
  return run(std::move(entry), meanwhile).failure;
}

Failure StateChannel::scatter(const std::string& name, std::span<const std::byte> from,
                              std::vector<std::int64_t> splits, std::span<std::byte> into,
                              const std::function<void()>& meanwhile) {
  auto entry = entry_of(Kind::alltoall, name, from.size());
  entry.input = from.data();
  entry.splits = std::move(splits);
  bool fits = true;
  entry.allocate = [&into, &fits](const auto& shape) -> void* {
    fits = static_cast<std::size_t>(shape.front()) == into.size();
    return fits ? static_cast<void*>(into.data()) : nullptr;
  };
  const auto outcome = run(std::move(entry), meanwhile);
  if (!fits) {
    return Status(Code::data_loss, cat("rank ", rank(), " was to receive ", into.size(),
                                       " bytes of state, and another number came"));
  }
  return outcome.failure;
}

Failure StateChannel::barrier(const std::string& name) {
  return run(entry_of(Kind::barrier, name, 0)).failure;
}

Failure StateChannel::give_up(const Status& why) {
  world_.abort(why);
  // Every call on the world from now on returns the reason, as soon as it is known everywhere.
  for (;;) {
    if (auto ended = barrier("end"); !ended.ok()) return ended;
  }
}

}  // namespace hvd::worker
