// One lane, whose members are threads that share its memory and nothing else.
#include "runtime/lane/lane.h"

#include <barrier>
#include <deque>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/text.h"
#include "tests/runtime/ranks.h"

namespace hvd::runtime {
namespace {

constexpr std::size_t kChunk = 4096;

Entry entry_of(std::vector<float>& data) {
  Entry entry;
  entry.request.type = DataType::float32;
  entry.request.shape = {static_cast<std::int64_t>(data.size())};
  entry.input = entry.output = data.data();
  return entry;
}

// The members of one lane, to be used by one thread.
class LaneMembers {
 public:
  LaneMembers(int size, std::size_t bytes) {
    auto memory = ShmLayout::create(size, kChunk);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    const LaneSpot spot{3, 0, Lane::room_for(bytes)};
    for (int position = 0; position < size; ++position) {
      lanes_.emplace_back(*memory, size);
      members_.push_back(&lanes_.back().open(spot, position, size));
    }
  }
  Lane& operator[](int position) { return *members_[static_cast<std::size_t>(position)]; }

 private:
  std::deque<Lanes> lanes_;
  std::vector<Lane*> members_;
};

TEST(Lane, AUseIsCompleteForAllWhenTheLastMemberHasPublished) {
  for (const std::size_t elements : {1, 14, 15, 2048}) {
    LaneMembers lane(3, elements * sizeof(float));
    for (int use = 0; use < 5; ++use) {
      std::vector<std::vector<float>> data;
      for (int member = 0; member < 3; ++member) {
        data.emplace_back(elements, static_cast<float>(member + use));
      }
      for (int member = 0; member < 3; ++member) {
        ASSERT_TRUE(lane[member].publish(entry_of(data[static_cast<std::size_t>(member)])));
      }
      for (int member = 0; member < 3; ++member) {
        ASSERT_EQ(lane[member].look(), Lane::State::complete);
        auto& own = data[static_cast<std::size_t>(member)];
        auto entry = entry_of(own);
        lane[member].add_up(entry);
        lane[member].end();
        EXPECT_EQ(own, std::vector<float>(elements, static_cast<float>(3 + 3 * use)));
      }
    }
  }
}

TEST(Lane, AMemberThatClosesItMakesThoseLeaveThatWait) {
  LaneMembers lane(3, 4);
  std::vector<float> data(1, 1);
  ASSERT_TRUE(lane[0].publish(entry_of(data)));
  lane[1].close();
  EXPECT_FALSE(lane[1].is_open());
  EXPECT_EQ(lane[0].look(), Lane::State::closed);
  lane[0].leave();
  EXPECT_FALSE(lane[2].publish(entry_of(data)));
  EXPECT_FALSE(lane[2].is_open());

  // They count on from the same use.
  for (int member = 0; member < 3; ++member) lane[member].open();
  for (int member = 0; member < 3; ++member) EXPECT_TRUE(lane[member].publish(entry_of(data)));
  EXPECT_EQ(lane[1].look(), Lane::State::complete);
}

TEST(Lane, AMemberThatIsLateIsLeftBehindAndLeavesToo) {
  LaneMembers lane(3, 4);
  std::vector<float> data(1, 1);
  ASSERT_TRUE(lane[0].publish(entry_of(data)));
  ASSERT_TRUE(lane[2].publish(entry_of(data)));
  EXPECT_EQ(lane[0].settle(), Lane::State::closed);
  EXPECT_EQ(lane[2].look(), Lane::State::closed);
  EXPECT_FALSE(lane[1].publish(entry_of(data)));
}

TEST(Lane, WhatAllHavePublishedCannotBeClosed) {
  LaneMembers lane(2, 4);
  std::vector<float> data(1, 1);
  ASSERT_TRUE(lane[0].publish(entry_of(data)));
  ASSERT_TRUE(lane[1].publish(entry_of(data)));
  EXPECT_EQ(lane[0].settle(), Lane::State::complete);
  lane[0].end();
  lane[0].close();  // for the next use
  EXPECT_EQ(lane[1].look(), Lane::State::complete);
}

// One member's life: it publishes use after use, closes the lane now and then, or gives up a wait,
// and comes back together with the others.
class LaneProgram {
 public:
  LaneProgram(int size, unsigned seed) : size_(size), seed_(seed), left_at_(size), back_(size) {}

  void run(const ShmLayout& memory, int position) {
    std::mt19937 random(seed_ * 100 + static_cast<unsigned>(position));
    const std::size_t elements = 1 + 40 * (seed_ % 3);
    Lanes lanes(memory, size_);
    Lane& lane = lanes.open({0, 0, Lane::room_for(elements * sizeof(float))}, position, size_);
    constexpr int kUses = 300;
    int use = 0;
    while (use < kUses) {
      while (use < kUses && try_use(lane, lanes.event(), position, use, elements, random)) {
        ++use;
      }
      left_at_[static_cast<std::size_t>(position)] = use;
      back_.arrive_and_wait();
      for (const int other : left_at_) ASSERT_EQ(other, use) << "they left at different uses";
      back_.arrive_and_wait();
      ++use;  // it is done in another way
      lane.open();
    }
  }

 private:
  bool try_use(Lane& lane, FutexEvent& event, int position, int use, std::size_t elements,
               std::mt19937& random) {
    if (random() % 20 == 0) {
      lane.close();
      return false;
    }
    std::vector<float> data(elements, static_cast<float>(position + use));
    auto entry = entry_of(data);
    if (!lane.publish(entry)) return false;
    const bool is_patient = random() % 20 != 0;
    if (is_patient) {
      EXPECT_TRUE(event.sleep_until(Clock::now() + test::kLong,
                                    [&] { return lane.look() != Lane::State::waiting; }));
    }
    const auto state = lane.settle();
    if (state == Lane::State::closed) {
      lane.leave();
      return false;
    }
    lane.add_up(entry);
    lane.end();
    const int wanted = size_ * (size_ - 1) / 2 + size_ * use;
    EXPECT_EQ(data, std::vector<float>(elements, static_cast<float>(wanted))) << "use " << use;
    return true;
  }

  int size_;
  unsigned seed_;
  std::vector<int> left_at_;
  std::barrier<> back_;
};

TEST(Lane, NoTwoMembersEverDisagreeAboutAUse) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const int size = 2 + static_cast<int>(seed % 4);
    SCOPED_TRACE(cat(size, " members, seed ", seed));
    auto memory = ShmLayout::create(size, kChunk);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    LaneProgram program(size, seed);
    std::vector<std::thread> threads;
    for (int position = 0; position < size; ++position) {
      threads.emplace_back([&, position] { program.run(*memory, position); });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace hvd::runtime
