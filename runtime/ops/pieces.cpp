#include "runtime/ops/pieces.h"

#include <algorithm>
#include <utility>

namespace hvd::runtime {

std::vector<std::vector<Piece>> pieces_of(const std::vector<Block>& blocks) {
  std::vector<std::vector<Piece>> all;
  all.reserve(blocks.size());
  for (const auto& block : blocks) {
    auto& pieces = all.emplace_back();
    for (const auto& part : block) {
      for (std::size_t at = 0; at < part.bytes; at += kPieceBytes) {
        pieces.push_back({part.input == nullptr ? nullptr : part.input + at, part.result + at,
                          std::min(kPieceBytes, part.bytes - at)});
      }
    }
  }
  return all;
}

void reduce_piece(const Reduction& reduction, const Piece& piece, const std::byte* arrived,
                  bool from_input) {
  reduction.reduce(piece.result, arrived, from_input ? piece.input : piece.result,
                   piece.bytes / reduction.element_size);
}

void finish_piece(const Reduction& reduction, const Piece& piece) {
  if (reduction.finish) reduction.finish(piece.result, piece.bytes / reduction.element_size);
}

void Departures::send(int to, const std::byte* data, std::size_t bytes) {
  messages_.push_back(peers_.memory(data, bytes));
  messages_.back().send(to, 0, bytes);
}

void Departures::await() {
  for (auto& message : messages_) message.wait_all_sent();
  messages_.clear();
}

Arrivals::Arrivals(const Peers& peers, int from, std::vector<Place> places, FusionBuffer* scratch)
    : peers_(peers), from_(from), places_(std::move(places)) {
  std::size_t longest = 0;
  for (const auto& place : places_) {
    if (place.to == nullptr) longest = std::max(longest, place.bytes);
  }
  if (longest > 0) {
    std::byte* const memory = scratch->reserve(std::min(kAhead, places_.size()) * longest);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i].to == nullptr) places_[i].to = memory + i % kAhead * longest;
    }
  }
  expect_up_to(kAhead);
}

void Arrivals::expect_up_to(std::size_t end) {
  for (; expected_ < std::min(end, places_.size()); ++expected_) {
    const auto& [to, bytes] = places_[expected_];
    messages_.push_back(peers_.memory(to, bytes));
    messages_.back().receive(from_, 0, bytes);
  }
}

const std::byte* Arrivals::next() {
  expect_up_to(arrived_ + kAhead);
  messages_.front().wait_received();
  messages_.pop_front();
  return places_[arrived_++].to;
}

}  // namespace hvd::runtime
