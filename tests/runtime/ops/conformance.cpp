#include "tests/runtime/ops/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>

#include "base/text.h"
#include "runtime/ops/layout.h"

namespace hvd::test {

using runtime::Entry;
using runtime::Group;
using runtime::Kind;
using runtime::Outcome;
using runtime::Request;
using runtime::Response;

std::string Call::text() const {
  std::vector<std::string> shape_texts;
  for (const auto& shape : shapes) shape_texts.push_back(runtime::shape_text(shape));
  std::vector<std::string> rank_texts;
  for (const int rank : ranks) rank_texts.push_back(std::to_string(rank));
  std::string joined_text;
  for (const int rank : joined) joined_text += cat(" joined:", rank);
  return cat(kind_name(kind), " ", runtime::op_name(op), " of ", runtime::type_name(type),
             join(shape_texts, "+"), in_place ? " in place" : "", allocated ? " allocated" : "",
             uneven ? " with splits" : "", along_tree ? " along a tree" : "",
             cached ? *cached ? " cached" : " new" : "", " compression ",
             static_cast<int>(compression), " factors ", prescale, ", ", postscale, " root ", root,
             " of ranks ", join(rank_texts, ","), joined_text);
}

namespace {

constexpr std::byte kUntouched{0xA5};

// The call as the member at `position` of the set sees it.
class View {
 public:
  View(const Call& call, int rank) : call_(call), rank_(rank) {
    for (std::size_t i = 0; i < call.ranks.size(); ++i) {
      if (call.ranks[i] == rank) position_ = static_cast<int>(i);
    }
  }

  int set_size() const { return static_cast<int>(call_.ranks.size()); }
  int position() const { return position_; }
  bool joined() const { return contains(call_.joined, rank_); }
  int world_rank(int position) const { return call_.ranks[static_cast<std::size_t>(position)]; }
  bool active(int position) const { return !contains(call_.joined, world_rank(position)); }

  std::vector<std::int64_t> shape(std::size_t tensor, int position) const {
    auto shape = call_.shapes[tensor];
    const bool ragged = call_.kind == Kind::allgather || call_.kind == Kind::alltoall;
    if (!ragged) return shape;
    if (!active(position)) {
      shape.front() = 0;
    } else if (call_.kind == Kind::allgather) {
      shape.front() += position % 3;
    } else if (call_.uneven) {
      const auto splits = this->splits(tensor, position);
      // One row more than is sent.
      shape.front() = std::accumulate(splits.begin(), splits.end(), std::int64_t{1});
    } else {
      shape.front() *= set_size();
    }
    return shape;
  }

  // alltoall: rows from one to each.
  std::vector<std::int64_t> splits(std::size_t tensor, int from) const {
    const std::int64_t base = call_.shapes[tensor].front();
    std::vector<std::int64_t> splits;
    for (int to = 0; to < set_size(); ++to) {
      splits.push_back(!active(from) ? 0 : call_.uneven ? base * ((from + 2 * to) % 3) : base);
    }
    return splits;
  }

  Values input(std::size_t tensor, int position) const {
    return stored(call_.type,
                  values_of(call_.type, call_.op, world_rank(position),
                            static_cast<std::size_t>(elements_of(shape(tensor, position))),
                            static_cast<int>(tensor)));
  }

  std::vector<std::int64_t> output_shape(std::size_t tensor) const {
    auto result = shape(tensor, position_);
    switch (call_.kind) {
      case Kind::allgather:
        result.front() = 0;
        for (int from = 0; from < set_size(); ++from) result.front() += shape(tensor, from).front();
        break;
      case Kind::alltoall: {
        const auto received = received_splits(tensor);
        result.front() = std::accumulate(received.begin(), received.end(), std::int64_t{0});
        break;
      }
      case Kind::reducescatter:
        result.front() = runtime::reducescatter_rows(result.front(), set_size(), position_).count;
        break;
      default:
        break;
    }
    return result;
  }

  std::vector<std::int64_t> received_splits(std::size_t tensor) const {
    std::vector<std::int64_t> received;
    for (int from = 0; from < set_size(); ++from) {
      received.push_back(splits(tensor, from)[static_cast<std::size_t>(position_)]);
    }
    return received;
  }

  Values output(std::size_t tensor) const;

 private:
  std::vector<Values> inputs(std::size_t tensor) const {
    std::vector<Values> all;
    for (int from = 0; from < set_size(); ++from) {
      if (active(from)) all.push_back(input(tensor, from));
    }
    return all;
  }
  Values reduced_inputs(std::size_t tensor) const {
    if (call_.op == ReduceOp::adasum) return adasum_of(inputs(tensor));
    return reduced(call_.type, call_.op, inputs(tensor), call_.prescale, call_.postscale);
  }
  std::size_t row(std::size_t tensor) const {
    auto shape = call_.shapes[tensor];
    shape.front() = 1;
    return static_cast<std::size_t>(elements_of(shape));
  }

  const Call& call_;
  int rank_;
  int position_ = -1;
};

Values View::output(std::size_t tensor) const {
  Values result;
  const auto append = [&](const Values& from, std::size_t begin, std::size_t count) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
    result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(count));
  };
  switch (call_.kind) {
    case Kind::allreduce:
      return reduced_inputs(tensor);
    case Kind::reducescatter: {
      const auto [begin, count] =
          runtime::reducescatter_rows(call_.shapes[tensor].front(), set_size(), position_);
      append(reduced_inputs(tensor), static_cast<std::size_t>(begin) * row(tensor),
             static_cast<std::size_t>(count) * row(tensor));
      return result;
    }
    case Kind::allgather:
      for (const auto& from : inputs(tensor)) append(from, 0, from.size());
      return result;
    case Kind::broadcast:
      for (int from = 0; from < set_size(); ++from) {
        if (world_rank(from) == call_.root) return input(tensor, from);
      }
      return result;
    case Kind::alltoall:
      for (int from = 0; from < set_size(); ++from) {
        const auto given = splits(tensor, from);
        std::int64_t before = 0;
        for (int to = 0; to < position_; ++to) before += given[static_cast<std::size_t>(to)];
        if (active(from)) {
          append(
              input(tensor, from), static_cast<std::size_t>(before) * row(tensor),
              static_cast<std::size_t>(given[static_cast<std::size_t>(position_)]) * row(tensor));
        }
      }
      return result;
    default:
      return {};
  }
}

// Memory of one tensor; in place both are the same, with room for the larger one.
struct Memory {
  explicit Memory(std::pmr::memory_resource* where) : input(where), output(where) {}
  std::pmr::vector<std::byte> input;
  std::pmr::vector<std::byte> output;
  Bytes before;  // what the input was
  std::vector<Bytes> more_leaves = {};
  std::size_t input_at = 0;
};

Request request_of(const Call& call, std::size_t tensor, const std::vector<std::int64_t>& shape) {
  Request request;
  request.name = cat(call.name, ".", tensor);
  request.kind = call.kind;
  request.type = call.type;
  request.op = call.op;
  request.prescale = call.prescale;
  request.postscale = call.postscale;
  request.compression = call.compression;
  request.root = call.root;
  request.shape = shape;
  return request;
}

Memory memory_of(const Call& call, const View& view, std::size_t tensor,
                 std::pmr::memory_resource* where) {
  Memory memory(where);
  memory.before = encode(call.type, view.input(tensor, view.position()));
  const auto output_bytes =
      static_cast<std::size_t>(elements_of(view.output_shape(tensor))) * size_of(call.type);
  if (!call.in_place) {
    memory.input.assign(memory.before.begin(), memory.before.end());
    memory.output.assign(call.allocated ? 0 : output_bytes, kUntouched);
    return memory;
  }
  // allgather in place: the rank's rows are where they will be.
  if (call.kind == Kind::allgather) {
    for (int from = 0; from < view.position(); ++from) {
      memory.input_at +=
          static_cast<std::size_t>(elements_of(view.shape(tensor, from))) * size_of(call.type);
    }
  }
  memory.output.assign(std::max(output_bytes, memory.input_at + memory.before.size()), kUntouched);
  std::copy(memory.before.begin(), memory.before.end(),
            memory.output.begin() + static_cast<std::ptrdiff_t>(memory.input_at));
  return memory;
}

// In place of the entry's input, of which the first leaf has the memory.
void give_leaves(const LeavesOfInputs& leaves, const Call& call, const View& view,
                 std::size_t tensor, Memory& memory, Entry& entry) {
  runtime::TreeInput input{leaves.tree, {}};
  auto* const first = static_cast<std::byte*>(const_cast<void*>(entry.input));
  for (const auto& leaf : leaves.of_rank[static_cast<std::size_t>(view.position())]) {
    Bytes bytes = leaf.of(encode(call.type, view.input(tensor, leaf.input)), size_of(call.type));
    if (input.leaves.empty()) {
      std::copy(bytes.begin(), bytes.end(), first);
      input.leaves.push_back(first);
      memory.before = std::move(bytes);
    } else {
      input.leaves.push_back(memory.more_leaves.emplace_back(std::move(bytes)).data());
    }
  }
  entry.request.tree = leaves.tree->digest();
  entry.leaves = std::make_shared<const runtime::TreeInput>(std::move(input));
  entry.input = nullptr;
}

void check_values(const Call& call, const Values& wanted, const Bytes& bytes,
                  const std::string& where) {
  if (call.tolerance == 0) {
    // Zeros of both signs are equal, bytes need not be.
    const Values got = decode(call.type, bytes);
    const auto [g, w] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
    if (g == got.end() && w == wanted.end()) return;
    FAIL() << where << ": element " << g - got.begin() << " of " << wanted.size() << " is "
           << (g == got.end() ? 0 : *g) << ", not " << (w == wanted.end() ? 0 : *w);
  }
  const Values got = decode(call.type, bytes);
  ASSERT_EQ(got.size(), wanted.size()) << where;
  double largest = 0;
  for (const double value : wanted) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], call.tolerance * largest) << where << ": element " << i;
  }
}

}  // namespace

void run_and_check(RankUnderTest& self, int rank, const Call& call) {
  const View view(call, rank);
  const std::string where = cat("rank ", rank, ", ", call.text());
  Response response;
  response.kind = call.kind;
  response.joined = call.joined;
  Group group;
  group.id = call.ranks.size() > 1 && call.ranks.front() != 0 ? 7 : runtime::kGlobalSet;
  group.ranks = call.ranks;
  group.rank = view.position();
  // One leaf of each rank, or several.
  std::optional<LeavesOfInputs> leaves;
  if (call.along_tree) leaves.emplace(view.set_size(), call.op == ReduceOp::sum ? 1 : 3);
  std::vector<Memory> memories;
  std::vector<Entry> entries;
  memories.reserve(call.shapes.size());
  for (std::size_t i = 0; i < call.shapes.size(); ++i) {
    runtime::ResponseTensor tensor{request_of(call, i, view.shape(i, 0)), {}};
    if (leaves) tensor.request.tree = leaves->tree->digest();
    if (call.kind == Kind::allgather || call.kind == Kind::alltoall) {
      for (int from = 0; from < view.set_size(); ++from) {
        tensor.first_extents.push_back(view.shape(i, from).front());
      }
    }
    response.tensors.push_back(std::make_shared<const runtime::ResponseTensor>(std::move(tensor)));
    Entry entry;
    entry.request = request_of(call, i, view.shape(i, view.position()));
    if (view.joined()) {
      entries.push_back(std::move(entry));
      memories.emplace_back(self.memory());
      continue;
    }
    memories.push_back(memory_of(call, view, i, self.memory()));
    Memory& memory = memories.back();
    if (call.in_place) {
      entry.input = memory.output.data() + memory.input_at;
      entry.output = memory.output.data();
    } else {
      entry.input = memory.input.data();
      entry.output = memory.output.data();
    }
    if (call.allocated) {
      entry.output = nullptr;
      entry.allocate = [&memory, type = call.type](const std::vector<std::int64_t>& shape) {
        memory.output.assign(static_cast<std::size_t>(elements_of(shape)) * size_of(type),
                             kUntouched);
        return static_cast<void*>(memory.output.data());
      };
    }
    if (call.kind == Kind::alltoall && call.uneven) entry.splits = view.splits(i, view.position());
    if (leaves) give_leaves(*leaves, call, view, i, memory, entry);
    entries.push_back(std::move(entry));
  }
  std::vector<Outcome> outcomes(entries.size());
  const auto stats_before = self.cache_stats();
  const Status ran = self.run(response, group, entries, outcomes);
  ASSERT_TRUE(ran.ok()) << where << ": " << ran.to_string();
  if (stats_before && call.cached) {
    const auto stats = *self.cache_stats();
    ASSERT_EQ(stats.hits - stats_before->hits, *call.cached ? entries.size() : 0) << where;
    ASSERT_EQ(stats.misses - stats_before->misses, *call.cached ? 0 : entries.size()) << where;
  }
  if (view.joined() || call.kind == Kind::barrier) return;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ASSERT_TRUE(outcomes[i].ok()) << where << ": " << outcomes[i].failure.status.to_string();
    ASSERT_EQ(outcomes[i].shape, view.output_shape(i)) << where;
    if (call.kind == Kind::alltoall) {
      ASSERT_EQ(outcomes[i].received_splits, view.received_splits(i)) << where;
    }
    Bytes output(memories[i].output.begin(), memories[i].output.end());
    ASSERT_EQ(outcomes[i].output, memories[i].output.data()) << where;
    output.resize(static_cast<std::size_t>(elements_of(outcomes[i].shape)) * size_of(call.type));
    check_values(call, view.output(i), output, cat(where, ", tensor ", i));
    if (!call.in_place) {
      ASSERT_TRUE(std::equal(memories[i].input.begin(), memories[i].input.end(),
                             memories[i].before.begin(), memories[i].before.end()))
          << where << ": the input was changed";
    }
  }
}

}  // namespace hvd::test
