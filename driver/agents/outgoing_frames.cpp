#include "driver/agents/outgoing_frames.h"

#include <algorithm>
#include <utility>

namespace hvd::driver {

void OutgoingFrames::push_urgent(SharedBytes frame) {
  waiting_.push_front({std::move(frame), {}, true});
  ++urgent_;
}

void OutgoingFrames::push_world(bool effective, SharedBytes frame, SharedBytes keys) {
  auto& waiting = effective ? waiting_effective_ : waiting_proposed_;
  if (!waiting) {
    waiting_.push_back({nullptr});
    waiting = std::prev(waiting_.end());
  }
  (*waiting)->frame = std::move(frame);
  (*waiting)->before = std::move(keys);
}

void OutgoingFrames::begin_first() {
  const Place first = waiting_.begin();
  if (waiting_effective_ == first) waiting_effective_.reset();
  if (waiting_proposed_ == first) waiting_proposed_.reset();
  if (!first->frame) first->frame = share(std::exchange(first->make, {})());
  if (first->before) begun_.push_back({std::move(first->before)});
  begun_.push_back(std::move(*first));
  waiting_.pop_front();
}

std::vector<std::string_view> OutgoingFrames::next(std::size_t most) {
  std::vector<std::string_view> pieces;
  std::size_t skip = done_;
  for (std::size_t i = 0; most > 0; ++i) {
    if (i == begun_.size()) {
      if (waiting_.empty()) break;
      begin_first();
    }
    const auto piece = std::string_view(*begun_[i].frame).substr(std::exchange(skip, 0), most);
    most -= piece.size();
    pieces.push_back(piece);
  }
  return pieces;
}

void OutgoingFrames::advance(std::size_t written) {
  while (written > 0) {
    const std::size_t left = begun_.front().frame->size() - done_;
    if (written < left) {
      done_ += written;
      return;
    }
    written -= left;
    done_ = 0;
    if (begun_.front().urgent) --urgent_;
    begun_.pop_front();
  }
}

void OutgoingFrames::clear() { *this = {}; }

}  // namespace hvd::driver
