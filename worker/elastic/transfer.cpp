// How the ranks without the state receive it, in chunks. They receive that of the first holder. The
// states of the other holders are usually the same, so all whose sizes are the same send: each
// chunk is cut by receivers and each receiver's part by senders, so that no byte is sent by two
// ranks, and every receiver gets a part of its own. Then the receivers exchange their parts. With
// one or two receivers nothing is copied on the way but into the sockets. The first holder and the
// receivers read what they have sent and received, for the checksum, while the next bytes are on
// their way. If the checksums show that the senders' states differ, the first holder sends again,
// alone.
//
// Where the receivers have most of a state already, only the blocks travel that one of them lacks
// (state_blocks.h). Every rank decides about that from the same data. A sample comes first, so that
// states that differ everywhere are not read for it.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "base/machine/machine.h"
#include "base/text.h"
#include "base/wire.h"
#include "worker/elastic/commit_protocol.h"
#include "worker/elastic/device_transfer.h"
#include "worker/elastic/state_blocks.h"

namespace hvd::worker {

using runtime::Failure;

namespace {

// A GPU has more under way than a host.
constexpr std::uint64_t kDeviceChunks = 4;
// A smaller state is there in less time than a comparison takes.
constexpr std::uint64_t kComparedFrom = std::uint64_t{4} << 20;

// The index-th of `parts` parts.
Range part_of(const Range& whole, std::size_t index, std::size_t parts) {
  return {whole.begin + whole.size() * index / parts,
          whole.begin + whole.size() * (index + 1) / parts};
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::size_t place_in(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

class Chunks {
 public:
  // `sent`: on a sender all that travels; `room`: on a receiver the room for that. `idle`: memory
  // to pack in; null: it gets some of its own. `warms_up`: receivers fault in all of its pages on
  // the way.
  Chunks(StateChannel& channel, const std::vector<int>& senders, const std::vector<int>& receivers,
         std::span<const std::byte> sent, std::span<std::byte> room, Buffer* idle, bool warms_up)
      : channel_(channel),
        senders_(senders),
        receivers_(receivers),
        sent_(sent),
        room_(room),
        packing_(idle != nullptr ? *idle : own_packing_),
        warms_up_(warms_up),
        sends_(contains(senders, channel.rank())),
        receives_(contains(receivers, channel.rank())),
        place_(place_in(receives_ ? receivers_ : senders_, channel.rank())) {}

  // `on_moved` is told how many bytes have moved, after each chunk.
  Failure move_all(std::uint64_t total, std::uint64_t chunk,
                   const std::function<void(std::uint64_t)>& on_moved) {
    for (std::uint64_t at = 0; at < total; at += chunk) {
      const Range next{at, std::min(total, at + chunk)};
      if (sends_) moved_ = next.end;
      if (auto failed = move(next); !failed.ok()) return failed;
      moved_ = next.end;
      on_moved(moved_);
    }
    read_what_is_here();
    return {};
  }
  // The checksum of the whole, on the first holder and on the receivers.
  std::uint64_t checksum() const { return checksum_.value(); }

 private:
  Failure move(const Range& chunk) {
    if (auto failed = hand_out(chunk); !failed.ok() || receivers_.size() == 1) return failed;
    return exchange(chunk);
  }

  void read_what_is_here() {
    const bool is_first = sends_ && place_ == 0;
    if (!is_first && !receives_) return;
    const std::span<const std::byte> all = is_first ? sent_ : room_;
    checksum_.add(all.subspan(read_, moved_ - read_));
    read_ = moved_;
  }
  std::vector<std::int64_t> nothing() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(channel_.size()));
  }
  static std::int64_t& at(std::vector<std::int64_t>& splits, int rank) {
    return splits[static_cast<std::size_t>(rank)];
  }
  std::span<const std::byte> sent(const Range& range) const {
    return sent_.subspan(range.begin, range.size());
  }
  std::span<std::byte> room(const Range& range) const {
    return room_.subspan(range.begin, range.size());
  }

  // Each sender its share of every receiver's part.
  Failure hand_out(const Range& chunk) {
    auto splits = nothing();
    const auto meanwhile = [this, &chunk] {
      read_what_is_here();
      // The data that was packed there has been sent.
      if (warms_up_) packing_.touch(chunk.begin, chunk.end);
    };

    if (receives_) {
      return channel_.scatter("state", {}, std::move(splits),
                              room(part_of(chunk, place_, receivers_.size())), meanwhile);
    }
    if (!sends_) return channel_.scatter("state", {}, std::move(splits), {});

    if (receivers_.size() == 1) {
      const auto share = part_of(chunk, place_, senders_.size());
      at(splits, receivers_[0]) = static_cast<std::int64_t>(share.size());
      return channel_.scatter("state", sent(share), std::move(splits), {}, meanwhile);
    }

    begin_to_pack(chunk);
    for (std::size_t i = 0; i < receivers_.size(); ++i) {
      const auto share = part_of(part_of(chunk, i, receivers_.size()), place_, senders_.size());
      at(splits, receivers_[i]) = static_cast<std::int64_t>(share.size());
      pack(sent(share));
    }
    return channel_.scatter("state", packed(), std::move(splits), {}, meanwhile);
  }

  // Each receiver its part to the other, or to all, itself included.
  Failure exchange(const Range& chunk) {
    auto splits = nothing();
    if (!receives_) return channel_.scatter("parts", {}, std::move(splits), {});
    const auto own = room(part_of(chunk, place_, receivers_.size()));
    if (receivers_.size() == 2) {
      at(splits, receivers_[1 - place_]) = static_cast<std::int64_t>(own.size());
      return channel_.scatter("parts", own, std::move(splits), room(part_of(chunk, 1 - place_, 2)));
    }
    begin_to_pack(chunk);
    for (const int rank : receivers_) {
      at(splits, rank) = static_cast<std::int64_t>(own.size());
      pack(own);
    }
    return channel_.scatter("parts", packed(), std::move(splits), room(chunk));
  }

  // The parts for several ranks lie one after the other, in memory that serves for all chunks.
  void begin_to_pack(const Range& chunk) {
    // Parts are rounded: what one receiver repeats may be a byte longer for each.
    packing_.resize(chunk.size() + receivers_.size());
    packed_ = 0;
  }
  void pack(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(),
              packing_.bytes().begin() + static_cast<std::ptrdiff_t>(packed_));
    packed_ += bytes.size();
  }
  std::span<const std::byte> packed() const { return packing_.bytes().first(packed_); }

  StateChannel& channel_;
  const std::vector<int>& senders_;
  const std::vector<int>& receivers_;
  std::span<const std::byte> sent_;
  std::span<std::byte> room_;
  Buffer own_packing_;
  Buffer& packing_;
  bool warms_up_;
  bool sends_;
  bool receives_;
  std::size_t place_;  // among the senders, or among the receivers
  std::size_t packed_ = 0;
  // Bytes that have arrived, and on a sender those that are on their way, too.
  std::uint64_t moved_ = 0;
  std::uint64_t read_ = 0;  // bytes of them that the checksum covers
  Checksum checksum_;
};

// Hands the first holder's numbers to all ranks.
Failure tell(StateChannel& channel, const std::string& name, int root,
             std::vector<std::uint64_t>& numbers) {
  WireWriter out;
  out.u64(numbers.size());  // a state may have no parts, and a message has some bytes
  for (const auto number : numbers) out.u64(number);
  std::string text = out.take();
  auto told =
      channel.broadcast(name, root, std::as_writable_bytes(std::span(text.data(), text.size())));
  if (!told.ok()) return told;
  WireReader in(text);
  in.u64();
  for (auto& number : numbers) number = in.u64();
  return {};
}

// One transfer on one rank.
class Transfer {
 public:
  Transfer(StateChannel& channel, Store& store, const Resume& resume, std::uint64_t chunk,
           const TransferWatch& watch)
      : channel_(channel),
        store_(store),
        resume_(resume),
        chunk_(chunk),
        watch_(watch),
        held_(contains(resume.holders, channel.rank()) ? &store.to_send() : nullptr),
        room_(held_ == nullptr ? &store.to_receive() : nullptr),
        copy_(store.number_of(held_ != nullptr ? *held_ : *room_)) {}

  bool receives() const { return room_ != nullptr; }

  Failure run() {
    if (auto failed = describe(); !failed.ok()) return failed;
    if (auto failed = move_tensors(); !failed.ok()) return failed;
    if (auto failed = choose_blocks(); !failed.ok()) return failed;
    make_ready();
    if (auto failed = move_from(resume_.senders); !failed.ok()) return failed;
    if (!differing_.empty() && resume_.senders.size() > 1) {
      if (channel_.rank() == first()) {
        HVD_LOG(info, "the state of commit " << to_text(resume_.id)
                                             << " differs between the ranks that hold it: the "
                                                "others receive that of this rank");
      }
      if (auto failed = move_from({first()}); !failed.ok()) return failed;
    }
    if (!contains(differing_, channel_.rank())) {
      if (receives()) complete_room();
      return {};
    }
    return Status(Code::internal,
                  cat("the state of commit ", to_text(resume_.id),
                      " did not arrive whole: the bytes that rank ", channel_.rank(),
                      " received have another checksum than those that were sent"));
  }

 private:
  int first() const { return resume_.holders.front(); }

  // All learn the sizes of the first holder's state.
  Failure describe() {
    const auto tensors = store_.device().sizes();
    std::vector<std::uint64_t> sizes(store_.parts());
    if (held_ != nullptr) sizes = held_->sizes;
    sizes.insert(sizes.end(), tensors.begin(), tensors.end());
    if (auto told = tell(channel_, "description", first(), sizes); !told.ok()) return told;

    const auto of_tensors = sizes.begin() + static_cast<std::ptrdiff_t>(store_.parts());
    if (!std::equal(tensors.begin(), tensors.end(), of_tensors)) {
      return Status(
          Code::invalid_argument,
          cat("the state's tensors on the GPU of rank ", channel_.rank(),
              " have other sizes than those of rank ", first(), "; all ranks must add the same"));
    }
    sizes.erase(of_tensors, sizes.end());
    if (contains(resume_.senders, channel_.rank()) && sizes != held_->sizes) {
      return Status(Code::invalid_argument,
                    cat("the state on rank ", channel_.rank(),
                        " has changed its size while the ranks agreed about it"));
    }
    const auto total = total_of(sizes);
    if (!total.ok()) return total.status().with_context(cat("rank ", first()));
    total_ = *total;
    sizes_ = std::move(sizes);
    return check_total();
  }

  // Before anything is allocated for it.
  Status check_total() const {
    if (resume_.from == Resume::From::state && total_ != resume_.bytes - store_.device().bytes()) {
      return {Code::data_loss, cat("rank ", first(), " has described a state of ", total_,
                                   " bytes on its host, and has voted with one of ",
                                   resume_.bytes - store_.device().bytes())};
    }
    if (const auto memory = memory_and_swap(); total_ > memory) {
      return {Code::resource_exhausted,
              cat("the state of rank ", first(), " has ", total_,
                  " bytes, and this process may use ", memory, " bytes of memory and swap")};
    }
    return {};
  }

  // All learn which blocks travel, or that everything does.
  Failure choose_blocks() {
    if (total_ < kComparedFrom) return {};
    const auto cut = cut_into_blocks(sizes_);
    own_ = blocks_in(receives() ? *room_ : *held_, sizes_);

    const auto sample = sample_of(own_, cut);
    BlockSet lacking(sample.size());
    if (auto failed = find_lacking(sample, lacking); !failed.ok()) return failed;
    if (2 * lacking.count() > sample.size()) return {};
    lacking = BlockSet(own_.size());
    if (auto failed = find_lacking(own_, lacking); !failed.ok()) return failed;

    auto ranges = lacking.ranges(cut);
    std::uint64_t bytes = 0;
    for (const auto& range : ranges) bytes += range.size();
    if (2 * bytes > total_) return {};
    travelling_ = std::move(ranges);
    packed_bytes_ = bytes;
    return {};
  }

  // The blocks in which some receiver differs from the first holder.
  Failure find_lacking(const std::vector<Block>& own, BlockSet& lacking) {
    std::vector<std::uint64_t> digests(own.size());
    if (is_compared()) digests = digests_of(own);
    auto firsts = digests;
    if (auto told = tell(channel_, "digests", first(), firsts); !told.ok()) return told;

    BlockSet lacks(own.size());
    for (std::size_t i = 0; receives() && i < own.size(); ++i) {
      if (digests[i] != firsts[i]) lacks.add(i);
    }
    std::vector<std::string> said;
    if (auto failed = channel_.gather("lacking", lacks.bits(), said); !failed.ok()) return failed;
    for (const int rank : resume_.receivers) lacking.add_all(said[static_cast<std::size_t>(rank)]);
    return {};
  }

  // Where only some blocks come, the room keeps what it has until they are here.
  void make_ready() {
    const bool sends = contains(resume_.senders, channel_.rank());
    if (travelling_ && (receives() || sends)) {
      choose_packed();
      packed_->resize(packed_bytes_);
    }
    if (travelling_ && sends) {
      pack_ranges(held_->bytes.bytes(), *travelling_, packed_->bytes());
    }
    if (!receives()) return;

    if (!travelling_) {
      room_->sizes.clear();
      room_->bytes.resize(total_);
    }
    if (watch_.on_found) watch_.on_found(total_ - bytes_to_move());
  }
  // move_own_blocks() needs the idle memory itself.
  void choose_packed() {
    Buffer* const idle = store_.idle(receives());
    const bool is_free = !receives() || room_->sizes == sizes_;
    if (idle != nullptr && is_free) packed_ = idle;
  }
  std::uint64_t bytes_to_move() const { return travelling_ ? packed_bytes_ : total_; }

  // Puts the received blocks and the own ones together.
  void complete_room() {
    if (travelling_) {
      if (room_->sizes != sizes_) move_own_blocks();
      unpack_ranges(packed_->bytes(), *travelling_, room_->bytes.bytes());
    }
    room_->sizes = sizes_;
  }
  // To where they lie in a state whose parts have the sizes of the holders'.
  void move_own_blocks() {
    Buffer* const idle = store_.idle(true);
    Buffer fresh;
    Buffer& next = idle != nullptr ? *idle : fresh;
    next.resize(total_);
    const auto cut = cut_into_blocks(sizes_);
    for (std::size_t i = 0; i < cut.size(); ++i) {
      std::copy(own_[i].begin(), own_[i].end(),
                next.bytes().begin() + static_cast<std::ptrdiff_t>(cut[i].begin));
    }
    std::swap(room_->bytes, next);
  }

  Failure move_tensors() {
    DeviceParts& device = store_.device();
    if (device.empty()) return {};
    auto moved = transfer_device_parts(channel_, device, copy_, resume_, kDeviceChunks * chunk_);
    if (!moved.ok() || !is_compared()) return moved;
    auto digest = device.digest(copy_);
    if (digest.ok()) tensors_digest_ = *digest;
    return digest.status();
  }

  Failure move_from(const std::vector<int>& senders) {
    Buffer* const idle = travelling_ ? nullptr : store_.idle(receives());
    // The first commit needs this memory.
    const bool grows = receives() && idle != nullptr && idle->capacity() < total_;
    if (grows) idle->resize(total_);
    std::span<const std::byte> sent;
    std::span<std::byte> room;
    if (held_ != nullptr) sent = travelling_ ? packed_->bytes() : held_->bytes.bytes();
    if (receives()) room = travelling_ ? packed_->bytes() : room_->bytes.bytes();
    Chunks chunks(channel_, senders, resume_.receivers, sent, room, idle, grows);
    const auto note_received = [this](std::uint64_t bytes) {
      if (receives() && watch_.on_received) watch_.on_received(bytes);
    };
    if (auto moved = chunks.move_all(bytes_to_move(), chunk_, note_received); !moved.ok()) {
      return moved;
    }
    return compare(chunks.checksum());
  }

  bool is_compared() const { return receives() || channel_.rank() == first(); }

  // All learn which receivers have something else than the first holder.
  Failure compare(std::uint64_t checksum) {
    std::vector<std::string> said;
    const auto own = WireWriter().u64(checksum).u64(tensors_digest_).take();
    if (auto failed = channel_.gather("checksum", own, said); !failed.ok()) return failed;
    const auto of = [&said](int rank) { return said[static_cast<std::size_t>(rank)]; };
    differing_.clear();
    for (const int rank : resume_.receivers) {
      if (of(rank) != of(first())) differing_.push_back(rank);
    }
    return {};
  }

  StateChannel& channel_;
  Store& store_;
  const Resume& resume_;
  const std::uint64_t chunk_;
  const TransferWatch& watch_;
  const Copy* const held_;            // null on a rank that receives
  Copy* const room_;                  // null on all others
  const std::size_t copy_;            // of the tensors of a GPU
  std::vector<std::uint64_t> sizes_;  // of the first holder's parts
  std::uint64_t total_ = 0;
  std::vector<Block> own_;  // where this rank has them
  // The blocks that travel, one after the other in *packed_; nullopt: the whole state does.
  std::optional<std::vector<Range>> travelling_;
  std::uint64_t packed_bytes_ = 0;
  Buffer own_packed_;
  Buffer* packed_ = &own_packed_;
  std::uint64_t tensors_digest_ = 0;
  std::vector<int> differing_;
};

}  // namespace

Failure CommitProtocol::transfer(Store& store, const Resume& resume, bool& received,
                                 const TransferWatch& watch) {
  received = false;
  if (resume.receivers.empty()) return {};
  Transfer transfer(channel_, store, resume, chunk_, watch);
  if (auto failed = transfer.run(); !failed.ok()) return failed;
  if (transfer.receives()) store.take_over(resume.id);
  store.let_go();
  received = transfer.receives();
  return {};
}

}  // namespace hvd::worker
