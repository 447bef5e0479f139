#include "base/protocol/world_document.h"

#include <functional>
#include <gtest/gtest.h>
#include <random>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace hvd {
namespace {

using Json = nlohmann::json;

WorldDocument two_hosts() {
  WorldDocument world;
  world.job_id = "job-1";
  world.generation = 0xffffffffffffffff;
  world.state = WorldState::proposed;
  world.members = {
      {0, "a", 0, 11, "10.0.0.1", 0, 2, 0, 2},
      {1, "a", 1, 0xffffffffffffffff, "10.0.0.1", 1, 2, 0, 1},
      {2, "b", 0, 13, "fe80::1", 0, 1, 1, 2},
  };
  return world;
}

TEST(WorldDocument, ComesBackFromItsJson) {
  for (const auto state : {WorldState::proposed, WorldState::effective}) {
    auto world = two_hosts();
    world.state = state;
    const auto again = WorldDocument::from_json(world.to_json());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, world);
  }
  EXPECT_EQ(two_hosts().members[1].worker(), "a#1");
}

TEST(WorldDocument, TheLastWorldComesBackAsTheLast) {
  for (const auto state : {WorldState::proposed, WorldState::effective}) {
    auto world = two_hosts();
    world.state = state;
    world.last = true;
    const std::string text = world.to_json();
    EXPECT_EQ(Json::parse(text)["last"], true);
    const auto again = WorldDocument::from_json(text);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(*again, world);
    EXPECT_TRUE(again->last);
  }
}

// Readers of older versions know nothing of it.
TEST(WorldDocument, OnlyTheLastWorldSaysThatItIs) {
  auto json = Json::parse(two_hosts().to_json());
  EXPECT_FALSE(json.contains("last"));
  json["last"] = false;
  const auto world = WorldDocument::from_json(json.dump());
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  EXPECT_EQ(*world, two_hosts());
}

TEST(WorldDocument, RefusesALastThatIsNeitherTrueNorFalse) {
  auto json = Json::parse(two_hosts().to_json());
  for (const Json& wrong :
       {Json(nullptr), Json(1), Json(0), Json("true"), Json::array({1}), Json::object()}) {
    json["last"] = wrong;
    const auto world = WorldDocument::from_json(json.dump());
    ASSERT_FALSE(world.ok()) << wrong;
    EXPECT_EQ(world.status().code(), Code::data_loss) << wrong;
  }
}

// A world that ends a job is checked as any other.
TEST(WorldDocument, TheLastWorldHasMembersToo) {
  auto world = two_hosts();
  world.last = true;
  world.members.clear();
  EXPECT_FALSE(WorldDocument::from_json(world.to_json()).ok());
}

TEST(WorldDocument, SaysItsSizeToOtherReaders) {
  const auto json = Json::parse(two_hosts().to_json());
  EXPECT_EQ(json["size"], 3);
  EXPECT_EQ(json["members"][2]["host"], "b");
}

TEST(WorldDocument, AHostNameThatIsNoUtf8DoesNotThrow) {
  auto world = two_hosts();
  world.members[0].host = "\xff\xfe";
  EXPECT_TRUE(WorldDocument::from_json(world.to_json()).ok());
}

struct Defect {
  const char* name;
  std::function<void(Json&)> make;
  const char* word;  // stands in the message
};

TEST(WorldDocument, RefusesEveryDefect) {
  const std::vector<Defect> defects = {
      {"no members", [](Json& j) { j["members"] = Json::array(), j["size"] = 0; }, "no members"},
      {"members is no list", [](Json& j) { j["members"] = Json::object(), j["size"] = 0; }, "type"},
      {"a member is no object", [](Json& j) { j["members"][0] = 5; }, "type"},
      {"unknown state", [](Json& j) { j["state"] = "perhaps"; }, "type"},
      {"size says otherwise", [](Json& j) { j["size"] = 4; }, "type"},
      {"ranks with a hole", [](Json& j) { j["members"][2]["rank"] = 3; },
       "rank 3 stands at place 2"},
      {"ranks out of order", [](Json& j) { std::swap(j["members"][0], j["members"][1]); },
       "rank 1 stands at place 0"},
      {"one rank twice", [](Json& j) { j["members"][1]["rank"] = 0; }, "rank 0 stands at place 1"},
      {"one worker twice", [](Json& j) { j["members"][1]["slot"] = 0; }, "a#0 stands in it twice"},
      {"local rank too large", [](Json& j) { j["members"][0]["local_rank"] = 2; }, "impossible"},
      {"cross rank too large", [](Json& j) { j["members"][2]["cross_rank"] = 2; }, "impossible"},
      {"no local size", [](Json& j) { j["members"][2]["local_size"] = 0; }, "impossible"},
      {"negative slot", [](Json& j) { j["members"][0]["slot"] = -1; }, "type"},
      {"negative generation", [](Json& j) { j["generation"] = -1; }, "type"},
      {"broken number", [](Json& j) { j["members"][1]["rank"] = 1.5; }, "type"},
      {"number that does not fit", [](Json& j) { j["members"][1]["rank"] = 4294967297; }, "type"},
  };
  for (const auto& defect : defects) {
    auto json = Json::parse(two_hosts().to_json());
    defect.make(json);
    const auto world = WorldDocument::from_json(json.dump());
    ASSERT_FALSE(world.ok()) << defect.name;
    EXPECT_EQ(world.status().code(), Code::data_loss) << defect.name;
    EXPECT_NE(world.status().message().find("world document"), std::string::npos);
    EXPECT_NE(world.status().message().find(defect.word), std::string::npos)
        << defect.name << ": " << world.status().message();
  }
}

TEST(WorldDocument, RefusesEveryMissingOrMistypedField) {
  const auto sound = Json::parse(two_hosts().to_json());
  const auto refused = [](const Json& json) { return !WorldDocument::from_json(json.dump()).ok(); };
  for (const auto& [name, value] : sound.items()) {
    auto json = sound;
    json.erase(name);
    EXPECT_TRUE(refused(json)) << "without " << name;
    for (const Json& wrong : {Json(nullptr), Json(true), Json::array({1})}) {
      json[name] = wrong;
      EXPECT_TRUE(refused(json)) << name << " as " << wrong;
    }
  }
  for (const auto& [name, value] : sound["members"][1].items()) {
    auto json = sound;
    json["members"][1].erase(name);
    EXPECT_TRUE(refused(json)) << "a member without " << name;
    for (const Json& wrong : {Json(nullptr), Json(true), Json::array({1})}) {
      json["members"][1][name] = wrong;
      EXPECT_TRUE(refused(json)) << "a member's " << name << " as " << wrong;
    }
  }
}

TEST(WorldDocument, RefusesEveryTruncation) {
  const std::string text = two_hosts().to_json();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(WorldDocument::from_json(text.substr(0, length)).ok()) << length;
  }
}

TEST(WorldDocument, ChangedBytesNeverCrashNorBreakWhatReadersRelyOn) {
  const std::string text = two_hosts().to_json();
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string changed = text;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    const auto world = WorldDocument::from_json(changed);
    if (!world.ok()) continue;
    for (std::size_t r = 0; r < world->members.size(); ++r) {
      EXPECT_EQ(world->members[r].rank, static_cast<int>(r));
    }
  }
}

TEST(CommitId, OfALaterWorldIsNewerWhateverItsSequence) {
  EXPECT_LT((CommitId{2, 900}), (CommitId{3, 0}));
  EXPECT_LT((CommitId{3, 0}), (CommitId{3, 1}));
  EXPECT_LT(CommitId(), (CommitId{1, 0}));
  EXPECT_LT((CommitId{3, 17}), (CommitId{3, 0, 1}));
  EXPECT_LT((CommitId{4, 17, 1}), (CommitId{3, 0, 2}));
  EXPECT_TRUE(CommitId().none());
  EXPECT_FALSE((CommitId{1, 0}).none());
}

TEST(CommitId, IsReadAsItIsWritten) {
  for (const CommitId id :
       {CommitId{}, CommitId{3, 17}, CommitId{~std::uint64_t{0}, 1}, CommitId{3, 0, 2}}) {
    const auto read = commit_id_from_text(to_text(id));
    ASSERT_TRUE(read.ok()) << to_text(id);
    EXPECT_EQ(*read, id);
  }
  EXPECT_EQ(to_text({3, 17}), "3.17");
  EXPECT_EQ(to_text({3, 17, 1}), "3.17.1");
}

TEST(CommitId, IsNotMadeOfAnythingElse) {
  for (const char* const text :
       {"", ".", "3", "3.", ".17", "3.17 ", " 3.17", "3.-1", "-3.1", "3.1.", "3.1.7.1", "a.b",
        "3,17", "99999999999999999999.1", "+3.1", "0x3.1"}) {
    const auto read = commit_id_from_text(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::data_loss) << text;
    EXPECT_NE(read.status().message().find(cat("\"", text, "\"")), std::string::npos)
        << read.status().message();
  }
}

}  // namespace
}  // namespace hvd
