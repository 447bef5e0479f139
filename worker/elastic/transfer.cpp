// How the ranks without the state receive it, in chunks. All ranks that hold it send: each chunk is
// cut by receivers and each receiver's part by holders, so that no byte is sent by two ranks, and
// every receiver gets a part of its own. Then the receivers exchange their parts. With one or two
// receivers nothing is copied on the way but into the sockets. The first holder and the receivers
// read what they have sent and received, for the checksum, while the next bytes are on their way.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/text.h"
#include "base/wire.h"
#include "worker/elastic/commit_protocol.h"
#include "worker/elastic/device_transfer.h"

namespace hvd::worker {

using runtime::Failure;

namespace {

// A GPU has more under way than a host.
constexpr std::uint64_t kDeviceChunks = 4;

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

class Chunks {
 public:
  // `idle`: memory to pack in; null: it gets some of its own. `warms_up`: receivers fault
  // in all of its pages on the way.
  Chunks(StateChannel& channel, const Resume& resume, const Copy* held, Copy* room, Buffer* idle,
         bool warms_up)
      : channel_(channel),
        holders_(resume.holders),
        receivers_(resume.receivers),
        held_(held),
        room_(room),
        packing_(idle != nullptr ? *idle : own_packing_),
        warms_up_(warms_up),
        place_(place_in(held != nullptr ? holders_ : receivers_, channel.rank())) {}

  // `on_moved` is told how many bytes have moved, after each chunk.
  Failure move_all(std::uint64_t total, std::uint64_t chunk,
                   const std::function<void(std::uint64_t)>& on_moved) {
    for (std::uint64_t at = 0; at < total; at += chunk) {
      const Range next{at, std::min(total, at + chunk)};
      if (held_ != nullptr) moved_ = next.end;
      if (auto failed = move(next); !failed.ok()) return failed;
      moved_ = next.end;
      on_moved(moved_);
    }
    read_what_is_here();
    return {};
  }
  // Of the whole, on the first holder and on the receivers.
  std::uint64_t checksum() const { return checksum_.value(); }

 private:
  Failure move(const Range& chunk) {
    if (auto failed = hand_out(chunk); !failed.ok() || receivers_.size() == 1) return failed;
    return exchange(chunk);
  }

  void read_what_is_here() {
    if (held_ != nullptr && place_ != 0) return;
    const std::span<const std::byte> all =
        held_ != nullptr ? held_->bytes.bytes() : room_->bytes.bytes();
    checksum_.add(all.subspan(read_, moved_ - read_));
    read_ = moved_;
  }
  std::vector<std::int64_t> nothing() const {
    return std::vector<std::int64_t>(static_cast<std::size_t>(channel_.size()));
  }
  static std::int64_t& at(std::vector<std::int64_t>& splits, int rank) {
    return splits[static_cast<std::size_t>(rank)];
  }
  std::span<std::byte> room(const Range& range) const {
    return room_->bytes.bytes().subspan(range.begin, range.size());
  }

  // Each holder its share of every receiver's part.
  Failure hand_out(const Range& chunk) {
    auto splits = nothing();
    const auto meanwhile = [this, &chunk] {
      read_what_is_here();
      // What was packed there has been sent.
      if (warms_up_) packing_.touch(chunk.begin, chunk.end);
    };

    if (held_ == nullptr) {
      return channel_.scatter("state", {}, std::move(splits),
                              room(part_of(chunk, place_, receivers_.size())), meanwhile);
    }

    const auto all = held_->bytes.bytes();
    if (receivers_.size() == 1) {
      const auto share = part_of(chunk, place_, holders_.size());
      at(splits, receivers_[0]) = static_cast<std::int64_t>(share.size());
      return channel_.scatter("state", all.subspan(share.begin, share.size()), std::move(splits),
                              {}, meanwhile);
    }

    begin_to_pack(chunk);
    for (std::size_t i = 0; i < receivers_.size(); ++i) {
      const auto share = part_of(part_of(chunk, i, receivers_.size()), place_, holders_.size());
      at(splits, receivers_[i]) = static_cast<std::int64_t>(share.size());
      pack(all.subspan(share.begin, share.size()));
    }
    return channel_.scatter("state", packed(), std::move(splits), {}, meanwhile);
  }

  // Each receiver its part to the other, or to all, itself included.
  Failure exchange(const Range& chunk) {
    auto splits = nothing();
    if (held_ != nullptr) return channel_.scatter("parts", {}, std::move(splits), {});
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

  // What goes to several ranks lies one after the other, in memory that serves for all chunks.
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
  const std::vector<int>& holders_;
  const std::vector<int>& receivers_;
  const Copy* held_;
  Copy* room_;
  Buffer own_packing_;
  Buffer& packing_;
  bool warms_up_;
  std::size_t place_;  // among the holders, or among the receivers
  std::size_t packed_ = 0;
  // Bytes that have arrived, and on a holder those that are on their way, too.
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

}  // namespace

Failure CommitProtocol::transfer(Store& store, const Resume& resume, bool& received,
                                 const std::function<void(std::uint64_t)>& on_received) {
  received = false;
  if (resume.receivers.empty()) return {};
  const bool holds = std::find(resume.holders.begin(), resume.holders.end(), channel_.rank()) !=
                     resume.holders.end();
  const Copy* const held = holds ? &store.to_send() : nullptr;
  Copy* const room = holds ? nullptr : &store.to_receive();
  const int first = resume.holders.front();
  DeviceParts& device = store.device();
  const std::size_t copy = store.number_of(holds ? *held : *room);
  const auto tensor_sizes = device.sizes();

  std::vector<std::uint64_t> sizes(store.parts());
  if (holds) sizes = held->sizes;
  sizes.insert(sizes.end(), tensor_sizes.begin(), tensor_sizes.end());
  const auto own_sizes = sizes;
  if (auto told = tell(channel_, "description", first, sizes); !told.ok()) return told;
  if (holds && sizes != own_sizes) {
    return Status(Code::data_loss,
                  cat("the state of commit ", to_text(resume.id), " on rank ", channel_.rank(),
                      " is of another size than that on rank ", first));
  }

  const auto of_tensors = sizes.begin() + static_cast<std::ptrdiff_t>(store.parts());
  if (!std::equal(tensor_sizes.begin(), tensor_sizes.end(), of_tensors)) {
    return Status(
        Code::invalid_argument,
        cat("the state's tensors on the GPU of rank ", channel_.rank(),
            " have other sizes than those of rank ", first, "; all ranks must add the same"));
  }
  sizes.erase(of_tensors, sizes.end());
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});

  if (!holds) {
    room->sizes = sizes;
    room->bytes.resize(total);
  }
  Buffer* const idle = store.idle(!holds);
  // The first commit needs this memory.
  const bool grows = !holds && idle != nullptr && idle->capacity() < total;
  if (grows) idle->resize(total);

  const auto note_received = [&](std::uint64_t bytes) {
    if (!holds && on_received) on_received(bytes);
  };
  Chunks chunks(channel_, resume, held, room, idle, grows);
  if (auto moved = chunks.move_all(total, chunk_, note_received); !moved.ok()) return moved;
  std::vector<std::uint64_t> own{chunks.checksum()};
  if (!device.empty()) {
    auto moved = transfer_device_parts(channel_, device, copy, resume, kDeviceChunks * chunk_);
    if (!moved.ok()) return moved;
    // Ranks that neither send nor receive need no checksum.
    const bool matters = !holds || channel_.rank() == first;
    auto digest = matters ? device.digest(copy) : Result<std::uint64_t>(0);
    if (!digest.ok()) return digest.status();
    own.push_back(*digest);
  }

  std::vector<std::uint64_t> sent = own;
  if (auto told = tell(channel_, "checksum", first, sent); !told.ok()) return told;
  if (holds) {
    store.let_go();
    return {};
  }
  if (own != sent) {
    return Status(Code::internal,
                  cat("the state of commit ", to_text(resume.id),
                      " did not arrive whole: what "
                      "rank ",
                      channel_.rank(), " received has another checksum than what was sent"));
  }
  store.take_over(resume.id);
  store.let_go();
  received = true;
  return {};
}

}  // namespace hvd::worker
