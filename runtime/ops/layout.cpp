#include "runtime/ops/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "runtime/core/activity.h"

namespace hvd::runtime {
namespace {

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

Active active_of(const Response& response, const Group& group) {
  Active active;
  for (int position = 0; position < group.size(); ++position) {
    const int rank = group.ranks[static_cast<std::size_t>(position)];
    const auto is_in = [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    if (is_in(response.joined)) continue;
    if (response.kind == Kind::send_recv && !is_in(response.request().ranks)) continue;
    if (position == group.rank) active.rank = active.size();
    active.ranks.push_back(rank);
    active.positions.push_back(position);
  }
  return active;
}

std::size_t row_bytes(const Request& request) {
  std::size_t bytes = size_of(request.type);
  for (std::size_t i = 1; i < request.shape.size(); ++i) {
    bytes *= static_cast<std::size_t>(request.shape[i]);
  }
  return bytes;
}

std::int64_t rows(const Request& request) {
  return request.shape.empty() ? 1 : request.shape.front();
}

std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows) {
  if (shape.empty()) shape.push_back(rows);
  shape.front() = rows;
  return shape;
}

Rows reducescatter_rows(std::int64_t rows, int set_size, int set_rank) {
  const std::int64_t each = rows / set_size;
  const std::int64_t more = rows % set_size;
  return {each * set_rank + std::min<std::int64_t>(set_rank, more),
          each + (set_rank < more ? 1 : 0)};
}

std::byte* prepare_output(Entry& entry, const std::vector<std::int64_t>& shape, Outcome& outcome) {
  const auto allocate = [&] {
    const trace::ActivityScope activity(trace::Activity::allocate_output);
    return entry.allocate(shape);
  };
  void* const output = entry.allocate ? allocate() : entry.output;
  const std::int64_t elements = elements_of(shape);
  if (output == nullptr && elements > 0) {
    outcome.failure = Status(Code::resource_exhausted,
                             cat(kind_name(entry.request.kind), " \"", entry.request.name,
                                 "\": there is no memory for the output, ",
                                 type_name(entry.request.type), shape_text(shape)));
    return nullptr;
  }
  outcome.output = output;
  outcome.shape = shape;  // it may have the room
  return static_cast<std::byte*>(output);
}

std::byte* OutputMemory::prepare(Entry& entry, const std::vector<std::int64_t>& shape,
                                 Outcome& outcome) {
  std::byte* const output = prepare_output(entry, shape, outcome);
  if (outcome.ok()) return output;
  const std::int64_t wanted = shape.empty() ? 1 : shape.front();
  const std::size_t bytes = row_bytes(entry.request) * static_cast<std::size_t>(wanted);
  throwaway_.push_back(std::make_unique<std::byte[]>(bytes));
  return throwaway_.back().get();
}

bool is_on_host(const Response& response) {
  return std::all_of(response.tensors.begin(), response.tensors.end(),
                     [](const auto& tensor) { return tensor->request.on_host; });
}

bool overlap(const void* a, std::size_t bytes_of_a, const void* b, std::size_t bytes_of_b) {
  const auto* const first = static_cast<const std::byte*>(a);
  const auto* const second = static_cast<const std::byte*>(b);
  const std::less<const std::byte*> before;
  return before(first, second + bytes_of_b) && before(second, first + bytes_of_a);
}

// The first number says how many splits were given; 0: the rows are shared evenly.
std::size_t split_words(int set_size) { return static_cast<std::size_t>(set_size) + 1; }

std::vector<std::int64_t> encode_splits(const Entry& entry, int set_size) {
  std::vector<std::int64_t> words(split_words(set_size));
  words[0] = static_cast<std::int64_t>(entry.splits.size());
  const std::size_t count = std::min(entry.splits.size(), words.size() - 1);
  std::copy_n(entry.splits.begin(), count, words.begin() + 1);
  return words;
}

Status check_splits(const Request& request, std::span<const std::int64_t> words, int world_rank,
                    std::int64_t first_extent, int set_size) {
  const auto refuse = [&](const auto&... why) {
    return Status(Code::invalid_argument, cat(kind_name(request.kind), " \"", request.name,
                                              "\": rank ", world_rank, " ", why...));
  };
  if (words[0] == 0) {
    if (first_extent % set_size == 0) return {};
    return refuse("has ", first_extent, " rows and gave no splits; ", set_size,
                  " ranks cannot share them evenly. Give splits.");
  }
  if (words[0] != set_size) {
    return refuse("gave ", words[0], " splits for ", set_size, " ranks");
  }
  std::int64_t sum = 0;
  for (int to = 0; to < set_size; ++to) {
    const std::int64_t split = words[static_cast<std::size_t>(to) + 1];
    if (split < 0)
      return refuse("gave a negative split, ", split, ", for rank ", to, " of the set");
    if (__builtin_add_overflow(sum, split, &sum)) sum = INT64_MAX;
  }
  if (sum > first_extent) {
    return refuse("has ", first_extent, " rows, but its splits add up to ", sum);
  }
  return {};
}

std::int64_t split_for(std::span<const std::int64_t> words, int set_rank, std::int64_t first_extent,
                       int set_size) {
  if (words[0] == 0) return first_extent / set_size;
  return words[static_cast<std::size_t>(set_rank) + 1];
}

Status root_has_joined(const Request& request) {
  return {Code::failed_precondition, cat("broadcast \"", request.name, "\": its root, rank ",
                                         request.root, ", has joined and gives nothing any more")};
}

void await_inputs(const Entries& entries) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].ready) continue;
    const trace::ActivityScope activity(trace::Activity::wait_for_data,
                                        static_cast<std::int32_t>(i));
    entries[i].ready->wait();
  }
}

}  // namespace hvd::runtime
