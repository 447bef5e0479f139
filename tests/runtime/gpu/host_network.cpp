#include "tests/runtime/gpu/host_network.h"

#include "base/text.h"

namespace hvd::test {

class Fabric::Table {
 public:
  explicit Table(int size)
      : size_(size), gone_(static_cast<std::size_t>(size)), left_(static_cast<std::size_t>(size)) {}

  bool meet(std::size_t rank, std::string mine, std::vector<std::string>& all) {
    std::unique_lock lock(mutex_);
    const auto round = round_;
    left_[rank] = std::move(mine);
    if (!broken_ && ++here_ == size_) {
      complete_ = left_;
      here_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || gone_[rank]; });
    if (round_ == round) return false;
    all = complete_;
    return true;
  }
  void leave(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    gone_[rank] = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_;
  int here_ = 0;
  std::uint64_t round_ = 0;
  bool broken_ = false;
  std::vector<bool> gone_;
  // The next round cannot be complete before all have taken what there was in this one.
  std::vector<std::string> left_, complete_;
};

class Fabric::Seat final : public Room {
 public:
  Seat(std::shared_ptr<Table> table, int rank)
      : table_(std::move(table)), rank_(static_cast<std::size_t>(rank)) {}
  bool meet(std::string mine, std::vector<std::string>& all) override {
    return table_->meet(rank_, std::move(mine), all);
  }
  void leave() override { table_->leave(rank_); }

 private:
  std::shared_ptr<Table> table_;
  std::size_t rank_;
};

std::string Fabric::new_id() {
  const std::lock_guard lock(mutex_);
  std::string id = cat("room ", ++ids_);
  id.resize(kIdSize);
  return id;
}

std::shared_ptr<Room> Fabric::enter(const std::string& id, int rank, int size) {
  const std::lock_guard lock(mutex_);
  auto& table = tables_[id];
  if (!table) table = std::make_shared<Table>(size);
  return std::make_shared<Seat>(table, rank);
}

}  // namespace hvd::test
