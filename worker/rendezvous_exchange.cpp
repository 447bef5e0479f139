#include "worker/rendezvous_exchange.h"

#include "base/text.h"

namespace hvd::worker {
namespace {

std::string key_of(int rank) { return cat("rank-", rank); }

}  // namespace

Result<std::vector<std::string>> RendezvousExchange::exchange(std::string_view blob,
                                                              TimePoint deadline) {
  auto put = client_.put(scope_, key_of(rank_), blob);
  HVD_RETURN_IF_ERROR(put.status().with_context("tell the other ranks where this one is"));
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) keys.push_back(key_of(rank));
  auto found = client_.wait_many(scope_, keys, deadline);
  HVD_RETURN_IF_ERROR(found.status().with_context("wait for the other ranks to call hvd::init()"));
  std::vector<std::string> blobs;
  for (const auto& key : keys) {
    const auto value = found->find(key);
    if (value == found->end()) {
      return Status(Code::data_loss, cat("the rendezvous gave no value of ", key));
    }
    blobs.push_back(std::move(value->second));
  }
  return blobs;
}

}  // namespace hvd::worker
