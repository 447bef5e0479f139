#include "worker/launch/rendezvous_exchange.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/protocol/world_document.h"
#include "base/text.h"

namespace hvd::worker {
namespace {

constexpr std::chrono::minutes kLongestPause{10};  // between two reports
constexpr std::size_t kNamed = 4;                  // of those that are missing

std::string key_of(std::size_t rank) { return cat(kRankKeyPrefix, rank); }

}  // namespace

std::string RendezvousExchange::names_of(const std::vector<std::string>& missing) const {
  const std::set<std::string> keys(missing.begin(), missing.end());
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (keys.contains(key_of(rank)) && names.size() < kNamed) names.push_back(members_[rank]);
  }
  if (keys.size() > names.size()) names.push_back(cat(keys.size() - names.size(), " more"));
  return join(names, ", ");
}

bool RendezvousExchange::is_lowest_but(const std::vector<std::string>& missing) const {
  for (int rank = 0; rank < rank_; ++rank) {
    const auto key = key_of(static_cast<std::size_t>(rank));
    if (std::find(missing.begin(), missing.end(), key) == missing.end()) return false;
  }
  return true;
}

Status RendezvousExchange::withdraw(rendezvous::Client& client, const std::string& scope,
                                    int rank) {
  const auto key = key_of(static_cast<std::size_t>(rank));
  const Status withdrawn = client.compare_and_set(scope, key, "", 0).status();
  return withdrawn.code() == Code::already_exists ? Status() : withdrawn;
}

Result<std::vector<std::string>> RendezvousExchange::exchange(std::string_view blob,
                                                              TimePoint deadline) {
  // Whether an answer comes or not: others may read it from now on.
  announced_ = true;
  auto put = client_.put(scope_, key_of(static_cast<std::size_t>(rank_)), blob);
  if (put.status().code() == Code::resource_exhausted) announced_ = false;  // it was never sent
  HVD_RETURN_IF_ERROR(put.status().with_context("tell the other ranks where this one is"));
  std::vector<std::string> keys;
  keys.reserve(members_.size());
  for (std::size_t rank = 0; rank < members_.size(); ++rank) keys.push_back(key_of(rank));

  const TimePoint begun = Clock::now();
  std::chrono::milliseconds pause = first_report_;
  TimePoint report_at = pause.count() == 0 ? kNever : begun + pause;
  for (;;) {
    std::vector<std::string> missing;
    auto found = client_.wait_many(scope_, keys, std::min(deadline, report_at), &missing);
    if (found.ok()) {
      std::vector<std::string> blobs;
      blobs.reserve(keys.size());
      for (const auto& key : keys) blobs.push_back(std::move(found->at(key)));
      const auto gone = std::find(blobs.begin(), blobs.end(), "");
      if (gone == blobs.end()) return blobs;
      const auto& name = members_[static_cast<std::size_t>(gone - blobs.begin())];
      return Status(Code::unavailable, cat(name, " has given up this attempt"));
    }
    const Code code = found.status().code();
    const bool over = Clock::now() >= deadline;
    if (over && !missing.empty()) {
      return Status(Code::deadline_exceeded,
                    cat("not there in time (--init-timeout): ", names_of(missing)));
    }
    if (over || (code != Code::deadline_exceeded && code != Code::unavailable)) {
      return found.status().with_context("wait for the other ranks to come");
    }
    if (!missing.empty() && is_lowest_but(missing)) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun);
      HVD_LOG(warning, "waiting for " << names_of(missing) << " to come to " << scope_ << ", for "
                                      << waited.count() << " s so far");
    }
    pause = std::min(2 * pause, std::chrono::milliseconds(kLongestPause));
    report_at = Clock::now() + pause;
  }
}

}  // namespace hvd::worker
