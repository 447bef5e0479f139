#include "runtime/ops/local_ops.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/text.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/ops/layout.h"

namespace hvd::runtime {
namespace {

void copy(std::byte* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

void scale_twice(const Request& request, std::byte* data, std::size_t count) {
  scale(request.type, data, count, request.prescale);
  scale(request.type, data, count, request.postscale);
}

// Of a rank that has all leaves.
void add_along_tree(Entry& entry, Outcome& outcome) {
  const Request& request = entry.request;
  const BatchArithmetic arithmetic(entry, 1);
  const SumTree& tree = *entry.leaves->tree;
  std::byte* const output = prepare_output(entry, request.shape, outcome);
  if (!outcome.ok()) return;
  std::vector<const std::byte*> leaves;
  for (const auto& leaf : tree.leaves()) {
    const void* const data = entry.leaves->leaves[static_cast<std::size_t>(leaf.slot)];
    leaves.push_back(static_cast<const std::byte*>(data));
  }
  TreeAdder adder(tree, reduce_function(arithmetic.wire, arithmetic.op), size_of(request.type));
  const auto count = static_cast<std::size_t>(request.elements());
  for (std::size_t at = 0; at < count; at += adder.block()) {
    const std::size_t length = std::min(adder.block(), count - at);
    std::byte* const out = output + at * size_of(request.type);
    adder.add_up(leaves, at, length, out);
    if (arithmetic.changes_sums()) arithmetic.finish(out, length);
  }
}

void same_shape(Entry& entry, Outcome& outcome, bool scaled) {
  std::byte* const output = prepare_output(entry, entry.request.shape, outcome);
  if (!outcome.ok()) return;
  copy(output, entry.input, entry.request.bytes());
  if (scaled) {
    scale_twice(entry.request, output, static_cast<std::size_t>(entry.request.elements()));
  }
}

void broadcast(const Group& group, Entry& entry, Outcome& outcome) {
  const int self = group.ranks[static_cast<std::size_t>(group.rank)];
  if (entry.request.root != self) {
    outcome.failure = root_has_joined(entry.request);
    return;
  }
  same_shape(entry, outcome, false);
}

void alltoall(const Group& group, Entry& entry, Outcome& outcome) {
  const Request& request = entry.request;
  const auto splits = encode_splits(entry, group.size());
  const int self = group.ranks[static_cast<std::size_t>(group.rank)];
  const Status right = check_splits(request, splits, self, rows(request), group.size());
  if (!right.ok()) {
    outcome.failure = right;
    return;
  }
  const auto split = [&](int position) {
    return split_for(splits, position, rows(request), group.size());
  };
  std::int64_t before = 0;
  for (int position = 0; position < group.rank; ++position) before += split(position);
  const std::int64_t kept = split(group.rank);
  std::byte* const output = prepare_output(entry, with_rows(request.shape, kept), outcome);
  if (!outcome.ok()) return;
  const std::size_t row = row_bytes(request);
  copy(output, static_cast<const std::byte*>(entry.input) + static_cast<std::size_t>(before) * row,
       static_cast<std::size_t>(kept) * row);
  outcome.received_splits.assign(static_cast<std::size_t>(group.size()), 0);
  outcome.received_splits[static_cast<std::size_t>(group.rank)] = kept;
}

void reducescatter(const Group& group, Entry& entry, Outcome& outcome) {
  const Request& request = entry.request;
  const auto [begin, count] = reducescatter_rows(rows(request), group.size(), group.rank);
  std::byte* const output = prepare_output(entry, with_rows(request.shape, count), outcome);
  if (!outcome.ok()) return;
  const std::size_t row = row_bytes(request);
  const std::size_t bytes = static_cast<std::size_t>(count) * row;
  copy(output, static_cast<const std::byte*>(entry.input) + static_cast<std::size_t>(begin) * row,
       bytes);
  scale_twice(request, output, bytes / size_of(request.type));
}

}  // namespace

void run_alone(const Response& response, const Group& group, const Entries& entries,
               std::span<Outcome> outcomes) {
  await_inputs(entries);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    switch (response.kind) {
      case Kind::allreduce:
        if (entries[i].leaves) {
          add_along_tree(entries[i], outcomes[i]);
        } else {
          same_shape(entries[i], outcomes[i], true);
        }
        break;
      case Kind::allgather:
        same_shape(entries[i], outcomes[i], false);
        break;
      case Kind::broadcast:
        broadcast(group, entries[i], outcomes[i]);
        break;
      case Kind::alltoall:
        alltoall(group, entries[i], outcomes[i]);
        break;
      case Kind::reducescatter:
        reducescatter(group, entries[i], outcomes[i]);
        break;
      case Kind::barrier:
      case Kind::join:
      case Kind::add_process_set:
      case Kind::remove_process_set:
      case Kind::send_recv:
        break;  // nothing travels
    }
  }
}

bool LocalOperation::enabled(const Response& response, const Group& group) const {
  return group.size() == 1 && is_on_host(response);
}

Status LocalOperation::execute(const Response& response, const Group& group, const Entries& entries,
                               std::span<Outcome> outcomes) {
  if (!active_of(response, group).takes_part()) return {};
  try {
    run_alone(response, group, entries, outcomes);
    return {};
  } catch (const std::exception& error) {
    return {Code::internal, cat("local ", kind_name(response.kind), ": ", error.what())};
  }
}

}  // namespace hvd::runtime
