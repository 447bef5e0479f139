#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <span>

#include <hvd/adapter.h>
#include <hvd/error.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "runtime/negotiation/process_sets.h"
#include "runtime/ops/layout.h"
#include "worker/enqueue.h"
#include "worker/process/current_world.h"
#include "worker/process/errors.h"
#include "worker/process/process_world.h"

namespace hvd::adapter {
namespace {

using runtime::Kind;

template <typename... Why>
[[noreturn]] void refuse(const Submission& work, const Why&... why) {
  throw InvalidArgumentError(cat(kind_name(work.collective), " \"", work.name, "\": ", why...));
}

template <typename View>
std::string text(const View& view) {
  return cat(runtime::type_name(view.type), runtime::shape_text(view.shape));
}

template <typename View>
void check_address(const Submission& work, const View& view, const char* which) {
  if (view.data != nullptr || view.elements() == 0) return;
  refuse(work, "the ", which, " has ", view.elements(), " elements, but no memory (data is null)");
}

// Operations may write the output while they still read the input: where both begin at the same
// place they are made for that, else they are not.
void check_overlap(const Submission& work) {
  // As numbers: shapes can be wrong, and then there are no such addresses.
  const auto input = reinterpret_cast<std::uintptr_t>(work.input.data);
  const auto output = reinterpret_cast<std::uintptr_t>(work.output.data);
  if (input == output || work.input.bytes() == 0 || work.output.bytes() == 0) return;
  if (input < output ? output - input >= work.input.bytes()
                     : input - output >= work.output.bytes()) {
    return;
  }
  refuse(work, "the input, ", text(work.input), ", and the output, ", text(work.output),
         ", overlap in memory. They must begin at the same place, or not overlap.");
}

// The shape that the output must have. Nothing, if that is for others to say: there is no such set.
std::optional<std::vector<std::int64_t>> output_shape(const Submission& work,
                                                      const runtime::World& world) {
  if (work.collective != Kind::reducescatter) return work.input.shape;
  const auto set = world.process_set(work.process_set.id());
  if (!set.ok() || work.input.shape.empty() ||
      !set->contains(static_cast<runtime::RankSet::Value>(world.rank()))) {
    return std::nullopt;
  }
  const int position = runtime::position_in(*set, world.rank());
  return runtime::with_rows(
      work.input.shape,
      runtime::reducescatter_rows(work.input.shape.front(), static_cast<int>(set->size()), position)
          .count);
}

// An impossible shape is reported as such, not as a lack of memory.
void check_view(const Submission& work, const ConstTensorView& view) {
  if (const Status fits = runtime::check_shape(view.shape, view.type); !fits.ok()) {
    refuse(work, fits.message());
  }
  if (view.device.cuda < Device::kHost) {
    refuse(work, "there is no CUDA device ", view.device.cuda);
  }
}

// The sender's memory is its input, that of the receiver its output; both have the input's shape.
void check_pair(const Submission& work, const runtime::World& world) {
  if (!work.input.device.is_host()) {
    refuse(work, "send and recv are for memory of the host; copy the tensor there");
  }
  if (work.ranks.empty() || work.ranks.front() == world.rank()) {
    check_address(work, work.input, "tensor");
  } else {
    check_address(work, work.output, "tensor");
  }
}

// The checks of the memory that are possible before the others are asked.
void check_memory(const Submission& work, const runtime::World& world) {
  check_view(work, work.input);
  if (work.collective == Kind::send_recv) {
    check_pair(work, world);
    return;
  }
  const bool input_is_read =
      work.leaves == nullptr && (work.collective != Kind::broadcast || work.root == world.rank());
  if (input_is_read) check_address(work, work.input, "input");

  const bool has_output = work.collective == Kind::allreduce ||
                          work.collective == Kind::broadcast ||
                          work.collective == Kind::reducescatter;
  const bool needs_room = work.collective == Kind::allgather || work.collective == Kind::alltoall;
  if (needs_room && !work.allocate) {
    refuse(work, "only the ranks together know the size of its output, so it needs `allocate`");
  }
  if (work.allocate || !has_output) return;

  const auto shape = output_shape(work, world);
  if (!shape) return;
  if (work.output.type != work.input.type || work.output.shape != *shape) {
    refuse(work, "the output is ", text(work.output), ", but of the input, ", text(work.input),
           ", this rank gets ", runtime::type_name(work.input.type), runtime::shape_text(*shape));
  }
  if (work.output.device != work.input.device) {
    refuse(work, "the input and the output are not on the same device");
  }

  check_address(work, work.output, "output");
  if (input_is_read) check_overlap(work);
}

// An exception of a callback has no caller to go to, and must not end a thread of hvd.
template <typename Call>
void guard(std::string_view what, const std::string& name, Call call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    HVD_LOG(error, "\"" << name << "\": " << what << " has run out of memory");
  } catch (const std::exception& error) {
    HVD_LOG(error, "\"" << name << "\": " << what << " has thrown: " << error.what());
  } catch (...) {
    if (thread_is_ending()) throw;
    HVD_LOG(error,
            "\"" << name << "\": " << what << " has thrown something other than a std::exception");
  }
}

bool is_about_sets(Kind kind) {
  return kind == Kind::add_process_set || kind == Kind::remove_process_set;
}

runtime::Entry entry_of(Submission work, const std::string& group, int group_size) {
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
  request.by_members = work.by_members;
  if (work.leaves) request.tree = work.leaves->tree->digest();

  entry.input = work.input.data;
  entry.output = work.output.data;
  entry.leaves = std::move(work.leaves);
  if (work.allocate) {
    entry.allocate = [allocate = std::move(work.allocate), name = request.name](const auto& shape) {
      void* room = nullptr;
      guard("the function that makes room for the output", name, [&] { room = allocate(shape); });
      return room;
    };
  }

  entry.splits = std::move(work.splits);
  entry.ready = std::move(work.ready);
  entry.device = work.input.device;

  entry.done = [done = std::move(work.done), kind = request.kind,
                name = request.name](const runtime::Outcome& outcome) {
    auto& process = worker::ProcessWorld::instance();
    const Completion completion{process.exception_of(outcome.failure, kind),
                                outcome.output,
                                outcome.shape,
                                outcome.received_splits,
                                outcome.contributors,
                                outcome.last_joined,
                                outcome.process_set};
    if (kind == Kind::join && !completion.error) process.restart_names();
    guard("the function to call when it is done", name, [&] { done(completion); });
  };

  return entry;
}

std::string pair_of(const Submission& work) {
  return work.ranks.size() == 2 ? cat(work.ranks[0], "->", work.ranks[1]) : "";
}

// The members as a part of a name, which must not become too long.
std::string members_name(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 200;
  auto text = runtime::shape_text({ranks.begin(), ranks.end()});
  if (text.size() <= kMost) return text;
  return cat(ranks.size(), ".", checksum_of(std::as_bytes(std::span(text))));
}

// Where an unnamed call is counted. Each pair of ranks counts its sends on its own, and the members
// of each set the calls that they alone make. Where all ranks add and remove sets, these calls
// count together: a rank that adds while another one removes gets an error.
worker::CallSeries series_of(const Submission& work) {
  if (work.by_members) {
    const bool is_new = work.collective == Kind::add_process_set;
    return {cat(kind_name(work.collective), ".",
                is_new ? members_name(work.ranks) : cat(work.process_set.id())),
            runtime::kGlobalSet};
  }
  if (is_about_sets(work.collective)) return {"process_set", runtime::kGlobalSet};
  const bool is_pair = work.collective == Kind::send_recv;
  return {is_pair ? cat("send_recv.", pair_of(work)) : std::string(kind_name(work.collective)),
          work.process_set.id()};
}

void check(const Submission& work, const runtime::World& world) {
  const auto& process = worker::ProcessWorld::instance();
  if (!work.done) refuse(work, "there is no function to call when it is done");
  if (is_about_sets(work.collective) && !process.has_dynamic_sets()) {
    throw ProcessSetError(
        ProcessSetErrorCode::not_dynamic,
        cat(kind_name(work.collective),
            ": hvd::init() was not told that process sets come and go. Say "
            "InitOptions::dynamic_process_sets, or set HVD_DYNAMIC_PROCESS_SETS=1."));
  }
  process.check_set(kind_name(work.collective), work.process_set.id());
  check_memory(work, world);
}

// A set that its members alone have added is removed by them alone.
void tell_members(Submission& removal, const runtime::World& world) {
  const int id = removal.process_set.id();
  removal.by_members = world.is_by_members(id);
  if (!removal.by_members) return;
  if (const auto members = world.process_set(id); members.ok()) removal.ranks = members->ranks();
}

std::shared_ptr<runtime::World> enqueue(std::string_view call, const std::string& group,
                                        std::vector<Submission> works, worker::Done done) {
  auto& process = worker::ProcessWorld::instance();
  auto world = process.world_for_collective(call);
  if (works.front().collective == Kind::remove_process_set) tell_members(works.front(), *world);
  // Members of a group have names.
  worker::CallName name(works.front().name, series_of(works.front()));
  for (auto& work : works) {
    if (work.name.empty()) {
      work.name = name.text();
    } else if (work.collective == Kind::send_recv) {
      work.name = cat(work.name, ".", pair_of(work));
    }
  }

  const int group_size = group.empty() ? 0 : static_cast<int>(works.size());
  const auto kind = works.front().collective;
  std::vector<runtime::Entry> entries;
  entries.reserve(works.size());
  for (auto& work : works) {
    check(work, *world);
    entries.push_back(entry_of(std::move(work), group, group_size));
    entries.back().done_wakes_only = done == worker::Done::wakes_only;
  }
  const auto refused = world->enqueue(std::move(entries));
  if (refused.ok()) {
    name.keep();
    return world;
  }
  if (refused.world_failed) process.before_failure_is_thrown();
  std::rethrow_exception(process.exception_of(refused, kind));
}

}  // namespace

void submit(Submission work) { worker::enqueue(std::move(work), worker::Done::anything); }

void submit_group(const std::string& name, std::vector<Submission> works) {
  worker::enqueue_group(name, std::move(works), worker::Done::anything);
}

}  // namespace hvd::adapter

namespace hvd::worker {

std::shared_ptr<runtime::World> enqueue(adapter::Submission work, Done done) {
  const auto call = kind_name(work.collective);
  std::vector<adapter::Submission> one;
  one.push_back(std::move(work));
  return adapter::enqueue(call, {}, std::move(one), done);
}

std::shared_ptr<runtime::World> enqueue_group(const std::string& name,
                                              std::vector<adapter::Submission> works, Done done) {
  if (works.empty()) throw InvalidArgumentError(cat("group \"", name, "\": it has no tensors"));
  const auto call = cat("grouped_", kind_name(works.front().collective));
  if (name.empty()) throw InvalidArgumentError(cat(call, ": the group has no name"));
  for (const auto& work : works) {
    if (work.name.empty()) {
      throw InvalidArgumentError(cat(call, " \"", name, "\": one of its tensors has no name"));
    }
  }
  return adapter::enqueue(call, name, std::move(works), done);
}

}  // namespace hvd::worker
