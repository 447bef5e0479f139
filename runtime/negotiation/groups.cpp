#include "runtime/negotiation/groups.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace hvd::runtime {
namespace {

Status in_group(const Status& error, const GroupKey& key) {
  return error.with_context(cat("group \"", key.name, "\" of ", key.size));
}

}  // namespace

std::vector<ReadyTensor> Groups::decided(const std::vector<GroupKey>& keys, ReadyTensor tensor) {
  std::vector<ReadyTensor> released;
  bool waits = false;
  for (const auto& key : keys) {
    auto& group = groups_[key];
    ++group.decided;
    group.disputed = group.disputed || keys.size() > 1;
    if (group.error.ok() && !tensor.error.ok()) {
      group.error = in_group(tensor.error, key);
      for (auto& other : group.waiting) {
        other.error = group.error;
        released.push_back(std::move(other));
      }
      group.waiting.clear();
    } else if (tensor.error.ok() && !group.error.ok()) {
      tensor.error = group.error;
    } else if (tensor.error.ok()) {
      waits = true;
    }
  }

  if (waits && tensor.error.ok()) {
    groups_[keys.front()].waiting.push_back(std::move(tensor));
  } else {
    released.push_back(std::move(tensor));
  }

  for (const auto& key : keys) {
    const auto found = groups_.find(key);
    if (found == groups_.end() || found->second.decided < key.size) continue;
    if (found->second.failed_for_good) continue;
    auto& waiting = found->second.waiting;
    std::sort(waiting.begin(), waiting.end(), [](const ReadyTensor& a, const ReadyTensor& b) {
      return a.request().name < b.request().name;
    });
    std::move(waiting.begin(), waiting.end(), std::back_inserter(released));
    groups_.erase(found);
  }
  return released;
}

Groups::Progress Groups::progress(const GroupKey& key) const {
  const auto found = groups_.find(key);
  return found == groups_.end() ? Progress()
                                : Progress{found->second.decided, found->second.disputed};
}

std::vector<ReadyTensor> Groups::fail(const GroupKey& key, const Status& why) {
  auto group = groups_.extract(key);
  if (group.empty()) return {};
  for (auto& tensor : group.mapped().waiting) tensor.error = in_group(why, key);
  return std::move(group.mapped().waiting);
}

std::vector<ReadyTensor> Groups::fail_for_good(const GroupKey& key, const Status& why) {
  auto failed = fail(key, why);
  auto& group = groups_[key];
  group.error = in_group(why, key);
  group.failed_for_good = true;
  return failed;
}

void Groups::set_removed(int process_set) {
  std::erase_if(groups_, [&](const auto& group) { return group.first.process_set == process_set; });
}

}  // namespace hvd::runtime
