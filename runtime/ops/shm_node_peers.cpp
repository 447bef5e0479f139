#include "runtime/ops/shm_node_peers.h"

#include <algorithm>

#include "base/machine/bulk_copy.h"
#include "runtime/core/reduce_in_order.h"
#include "runtime/transport/gloo_context.h"

namespace hvd::runtime {
namespace {

void expect(const Status& status) {
  if (!status.ok()) throw TransportError(status);
}

std::vector<ScatterList<const Part*>> strips_of(const std::vector<Block>& blocks) {
  std::vector<ScatterList<const Part*>> lists(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const auto& part : blocks[i]) lists[i].add(&part, part.bytes);
  }
  return lists;
}

std::size_t longest_of(const std::vector<ScatterList<const Part*>>& lists) {
  std::size_t longest = 0;
  for (const auto& list : lists) longest = std::max(longest, list.size());
  return longest;
}

}  // namespace

void ShmNodePeers::pack_others(const std::vector<Parts>& lanes, std::size_t begin,
                               std::size_t step) const {
  const std::size_t bytes =
      count_from(lanes, begin, step) - lanes[collective_.index()].count_from(begin, step);
  collective_.writer().write(bytes, [&](CopyFunction copy) {
    std::byte* to = collective_.chunk(collective_.rank());
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
      if (lanes[rank].size() == 0) continue;
      if (rank != collective_.index()) {
        lanes[rank].for_range(
            begin, begin + step,
            [&](const Part* part, std::size_t before, std::size_t at, std::size_t count) {
              copy(to + at, part->input + before, count);
            });
      }
      to += step;
    }
  });
}

void ShmNodePeers::reduce_own(const Parts& lane, std::size_t begin, std::size_t bytes,
                              std::size_t offset, const Reduction& reduction) const {
  const std::size_t block = kReducedAtOnce / reduction.element_size * reduction.element_size;
  const auto reduce_piece = [&](const Part* part, std::size_t before, std::size_t at,
                                std::size_t count) {
    for (std::size_t done = 0; done < count; done += block) {
      const auto elements_of = [&](int rank) {
        return rank == collective_.rank() ? part->input + before + done
                                          : collective_.chunk(rank) + offset + at + done;
      };
      reduce_in_order(reduction.reduce, collective_.size(), elements_of,
                      part->result + before + done,
                      std::min(block, count - done) / reduction.element_size);
    }
  };
  lane.for_range(begin, begin + bytes, reduce_piece);
}

void ShmNodePeers::reduce(const std::vector<Block>& lanes, const Reduction& reduction) {
  const auto lists = strips_of(lanes);
  const std::size_t longest = longest_of(lists);
  if (longest == 0) return;
  // A piece of each lane lies in every chunk.
  const auto is_there = [](const Parts& lane) { return lane.size() > 0; };
  const auto count = static_cast<std::size_t>(std::count_if(lists.begin(), lists.end(), is_there));
  const std::size_t most = collective_.capacity() / count;
  const std::size_t unit = most >= kReduceGrain * reduction.element_size
                               ? kReduceGrain * reduction.element_size
                               : reduction.element_size;
  const std::size_t step = most / unit * unit;
  if (step == 0) expect({Code::resource_exhausted, "there is no room for so many lanes"});
  const auto before_own = static_cast<std::size_t>(
      std::count_if(lists.begin(), lists.begin() + collective_.rank(), is_there));
  expect(collective_.open());
  for (std::size_t begin = 0; begin < longest; begin += step) {
    pack_others(lists, begin, step);
    expect(collective_.sync());
    reduce_own(lists[collective_.index()], begin, step, before_own * step, reduction);
    collective_.next_chunk();
  }
}

void ShmNodePeers::gather(const std::vector<Block>& blocks) { gather(blocks, false); }

void ShmNodePeers::gather(const std::vector<Block>& blocks, bool first_is_late) {
  const auto lists = strips_of(blocks);
  const std::size_t longest = longest_of(lists);
  if (longest == 0) return;
  expect(collective_.open());
  const std::size_t step = collective_.capacity();
  for (std::size_t begin = 0; begin < longest; begin += step) {
    std::byte* const own = collective_.chunk(collective_.rank());
    const auto& own_strip = lists[collective_.index()];
    collective_.writer().write(own_strip.count_from(begin, step), [&](CopyFunction copy) {
      own_strip.for_range(begin, begin + step,
                          [&](const Part* part, std::size_t before, std::size_t at,
                              std::size_t count) { copy(own + at, part->result + before, count); });
    });
    expect(collective_.sync(begin == 0 && first_is_late));
    for (int other = 1; other < collective_.size(); ++other) {
      // Each begins with another one, so that not all read the same memory.
      const int rank = (collective_.rank() + other) % collective_.size();
      const std::byte* const from = collective_.chunk(rank);
      lists[static_cast<std::size_t>(rank)].for_range(
          begin, begin + step,
          [&](const Part* part, std::size_t before, std::size_t at, std::size_t count) {
            bulk_copy(part->result + before, from + at, count);
          });
    }
    collective_.next_chunk();
  }
}

void ShmNodePeers::reduce_to_first(void* data, std::size_t elements, std::size_t element_size,
                                   ReduceFunction function) {
  auto* const bytes = static_cast<std::byte*>(data);
  std::vector<Block> lanes(static_cast<std::size_t>(collective_.size()));
  lanes.front() = {{bytes, bytes, elements * element_size}};
  reduce(lanes, {function, element_size, {}});
}

void ShmNodePeers::broadcast_from_first(void* data, std::size_t bytes) {
  std::vector<Block> blocks(static_cast<std::size_t>(collective_.size()));
  blocks.front() = {{nullptr, static_cast<std::byte*>(data), bytes}};
  gather(blocks, true);
}

}  // namespace hvd::runtime
