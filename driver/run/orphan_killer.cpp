#include "driver/run/orphan_killer.h"

#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::chrono::seconds kLimit{5};
// In the loop, where leases wait to be renewed.
constexpr std::chrono::milliseconds kMoment{50};

}  // namespace

void OrphanKiller::kill() {
  until_ = Clock::now() + kLimit;
  kill_within(kMoment);
}

void OrphanKiller::kill_within(std::chrono::milliseconds moment) {
  const std::size_t left = subreaper_.kill_orphans(moment);
  if (left == 0) return;
  if (Clock::now() >= until_) return warn(left);
  timer_.expires_after(kMoment);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) kill_within(std::chrono::milliseconds(0));
  });
}

void OrphanKiller::kill_all() {
  if (Subreaper::any_child()) warn(subreaper_.kill_orphans(kLimit));
}

void OrphanKiller::warn(std::size_t left) {
  if (left == 0) return;
  context_.observer.on_warning(
      cat("could not kill ", left, " processes left by an agent that died"));
}

}  // namespace hvd::driver
