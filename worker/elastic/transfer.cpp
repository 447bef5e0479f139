// How those who lack the state receive it, in windows. All who hold it send: each window is cut by
// lackers, each lacker's part by holders, so that no byte is sent by two, and every lacker gets a
// part of its own. Then the lackers exchange their parts. With one lacker nothing is copied on the
// way but into the sockets.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/text.h"
#include "base/wire.h"
#include "worker/elastic/rounds.h"

namespace hvd::worker {

using runtime::Failure;

namespace {

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
};

// The index-th of `parts` parts.
Range part_of(const Range& whole, std::size_t index, std::size_t parts) {
  return {whole.begin + whole.size() * index / parts,
          whole.begin + whole.size() * (index + 1) / parts};
}

std::size_t place_in(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

class Windows {
 public:
  // `idle`: memory to pack in; null: it gets some of its own.
  Windows(Talk& talk, const Resume& resume, const Copy* held, Copy* room, Buffer* idle)
      : talk_(talk),
        holders_(resume.holders),
        lackers_(resume.lackers),
        held_(held),
        room_(room),
        packing_(idle != nullptr ? *idle : own_packing_),
        place_(place_in(held != nullptr ? holders_ : lackers_, talk.rank())) {}

  Failure move(const Range& window) {
    if (auto failed = hand_out(window); !failed.ok() || lackers_.size() == 1) return failed;
    return exchange(window);
  }

 private:
  std::vector<std::int64_t> nothing() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(talk_.size()));
  }
  static std::int64_t& at(std::vector<std::int64_t>& splits, int rank) {
    return splits[static_cast<std::size_t>(rank)];
  }
  std::span<std::byte> room(const Range& range) const {
    return room_->bytes.bytes().subspan(range.begin, range.size());
  }

  // Each holder its share of every lacker's part.
  Failure hand_out(const Range& window) {
    auto splits = nothing();
    if (held_ == nullptr) {
      return talk_.scatter("state", {}, std::move(splits),
                           room(part_of(window, place_, lackers_.size())));
    }
    const auto all = held_->bytes.bytes();
    if (lackers_.size() == 1) {
      const auto share = part_of(window, place_, holders_.size());
      at(splits, lackers_[0]) = static_cast<std::int64_t>(share.size());
      return talk_.scatter("state", all.subspan(share.begin, share.size()), std::move(splits), {});
    }
    begin_to_pack(window);
    for (std::size_t i = 0; i < lackers_.size(); ++i) {
      const auto share = part_of(part_of(window, i, lackers_.size()), place_, holders_.size());
      at(splits, lackers_[i]) = static_cast<std::int64_t>(share.size());
      pack(all.subspan(share.begin, share.size()));
    }
    return talk_.scatter("state", packed(), std::move(splits), {});
  }

  // Each lacker its part to all, itself included.
  Failure exchange(const Range& window) {
    auto splits = nothing();
    if (held_ != nullptr) return talk_.scatter("parts", {}, std::move(splits), {});
    const auto own = room(part_of(window, place_, lackers_.size()));
    begin_to_pack(window);
    for (const int rank : lackers_) {
      at(splits, rank) = static_cast<std::int64_t>(own.size());
      pack(own);
    }
    return talk_.scatter("parts", packed(), std::move(splits), room(window));
  }

  // What goes to several ranks lies one after the other, in memory that serves for all windows.
  void begin_to_pack(const Range& window) {
    // Parts are rounded: what one lacker repeats may be a byte longer for each.
    packing_.resize(window.size() + lackers_.size());
    packed_ = 0;
  }
  void pack(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(),
              packing_.bytes().begin() + static_cast<std::ptrdiff_t>(packed_));
    packed_ += bytes.size();
  }
  std::span<const std::byte> packed() const { return packing_.bytes().first(packed_); }

  Talk& talk_;
  const std::vector<int>& holders_;
  const std::vector<int>& lackers_;
  const Copy* held_;
  Copy* room_;
  Buffer own_packing_;
  Buffer& packing_;
  std::size_t place_;  // among the holders, or among the lackers
  std::size_t packed_ = 0;
};

// Of the state that is sent, as its first holder has it.
struct Description {
  std::uint64_t checksum = 0;
  std::vector<std::uint64_t> sizes;

  std::string encode() const {
    WireWriter out;
    out.u64(checksum);
    for (const auto size : sizes) out.u64(size);
    return out.take();
  }
};

}  // namespace

Failure Rounds::transfer(Store& store, const Resume& resume, bool& received) {
  received = false;
  if (resume.lackers.empty()) return {};
  const bool holds =
      std::find(resume.holders.begin(), resume.holders.end(), talk_.rank()) != resume.holders.end();
  const Copy* const held = holds ? &store.to_send() : nullptr;
  Copy* const room = holds ? nullptr : &store.to_receive();
  Description description;
  description.sizes.resize(store.parts());
  if (holds) description.sizes = held->sizes;
  if (talk_.rank() == resume.holders.front()) {
    description.checksum = checksum_of(held->bytes.bytes());
  }
  std::string text = description.encode();
  auto told = talk_.broadcast("description", resume.holders.front(),
                              std::as_writable_bytes(std::span(text.data(), text.size())));
  if (!told.ok()) return told;
  WireReader in(text);
  description.checksum = in.u64();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < description.sizes.size(); ++i) {
    const auto size = in.u64();
    if (holds && size != description.sizes[i]) {
      return Status(Code::data_loss,
                    cat("the state of commit ", to_text(resume.id), " on rank ", talk_.rank(),
                        " is of another size than that on rank ", resume.holders.front()));
    }
    description.sizes[i] = size;
    total += size;
  }
  if (!holds) {
    room->sizes = description.sizes;
    room->bytes.resize(total);
  }
  Windows windows(talk_, resume, held, room, store.idle(!holds));
  for (std::uint64_t at = 0; at < total; at += window_) {
    auto moved = windows.move({at, std::min(total, at + window_)});
    if (!moved.ok()) return moved;
  }
  if (holds) {
    store.let_go();
    return {};
  }
  if (checksum_of(room->bytes.bytes()) != description.checksum) {
    return Status(Code::internal,
                  cat("the state of commit ", to_text(resume.id),
                      " did not arrive whole: what "
                      "rank ",
                      talk_.rank(), " received has another checksum than what was sent"));
  }
  store.take_over(resume.id);
  store.let_go();
  received = true;
  return {};
}

}  // namespace hvd::worker
