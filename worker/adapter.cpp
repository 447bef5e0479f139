#include <hvd/adapter.h>
#include <hvd/error.h>

#include "base/text.h"
#include "worker/exception_of.h"
#include "worker/process_world.h"

namespace hvd::adapter {
namespace {

using runtime::Kind;

void check_memory(const void* data, std::int64_t elements, const std::string& name) {
  if (data == nullptr && elements != 0) {
    throw InvalidArgumentError(cat("\"", name, "\": the tensor has ", elements,
                                   " elements, but no memory (data is null)"));
  }
}

// What may be said of the memory before the others are asked. What comes out of these has the
// shape of what goes in; the rest makes room for itself, or is checked where its shape is known.
void check_memory(const Submission& work, const std::string& name) {
  check_memory(work.input.data, work.input.elements(), name);
  if (work.allocate) return;
  check_memory(work.output.data, work.output.elements(), name);
  const bool alike = work.collective == Kind::allreduce || work.collective == Kind::broadcast;
  if (!alike || (work.input.type == work.output.type && work.input.shape == work.output.shape)) {
    return;
  }
  throw InvalidArgumentError(cat(
      "\"", name, "\": the input is ", runtime::type_name(work.input.type),
      runtime::shape_text(work.input.shape), ", the output ", runtime::type_name(work.output.type),
      runtime::shape_text(work.output.shape), "; they must be alike"));
}

runtime::Entry entry_of(Submission work, const std::string& group, int group_size) {
  auto& process = worker::ProcessWorld::instance();
  if (work.name.empty()) work.name = process.next_name(work.collective);
  check_memory(work, work.name);
  runtime::Entry entry;
  auto& request = entry.request;
  request.name = std::move(work.name);
  request.kind = work.collective;
  request.type = work.input.type;
  request.op = work.op;
  request.root = work.root;
  request.prescale = work.prescale;
  request.postscale = work.postscale;
  request.shape = std::move(work.input.shape);
  request.on_host = work.input.device.is_host();
  request.compression = work.compression;
  request.process_set = work.process_set.id();
  request.group = group;
  request.group_size = group_size;
  request.ranks = std::move(work.ranks);
  entry.input = work.input.data;
  entry.output = work.output.data;
  entry.allocate = std::move(work.allocate);
  entry.splits = std::move(work.splits);
  entry.ready = std::move(work.ready);
  entry.device = work.input.device;
  entry.done = [done = std::move(work.done)](const runtime::Outcome& outcome) {
    done({worker::exception_of(outcome.failure), outcome.output, outcome.shape,
          outcome.received_splits, outcome.last_joined, outcome.process_set});
  };
  return entry;
}

void enqueue(std::string_view call, const std::string& group, std::vector<Submission> works) {
  auto& process = worker::ProcessWorld::instance();
  const auto world = process.world();
  if (!world) {
    throw NotInitializedError(cat("hvd::", call, "() needs hvd::init() before it"));
  }
  const int group_size = group.empty() ? 0 : static_cast<int>(works.size());
  std::vector<runtime::Entry> entries;
  entries.reserve(works.size());
  for (auto& work : works) entries.push_back(entry_of(std::move(work), group, group_size));
  const auto refused = world->enqueue(std::move(entries));
  if (refused.ok()) return;
  if (refused.world_failed) process.await_stop_of_job();
  std::rethrow_exception(worker::exception_of(refused));
}

}  // namespace

void submit(Submission work) {
  const auto call = runtime::kind_name(work.collective);
  std::vector<Submission> one;
  one.push_back(std::move(work));
  enqueue(call, {}, std::move(one));
}

void submit_group(const std::string& name, std::vector<Submission> works) {
  if (works.empty()) throw InvalidArgumentError(cat("group \"", name, "\": it has no tensors"));
  const auto call = cat("grouped_", runtime::kind_name(works.front().collective));
  if (name.empty()) throw InvalidArgumentError(cat(call, ": the group has no name"));
  enqueue(call, name, std::move(works));
}

}  // namespace hvd::adapter
