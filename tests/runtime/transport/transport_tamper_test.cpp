// A relay between two ranks that alters what passes. Without protection nobody would notice.
#include <cstring>

#include "runtime/transport/message_header.h"
#include "tests/runtime/transport/relay.h"

namespace hvd::test {
namespace {

using runtime::MessageHeader;
using runtime::TcpMesh;

constexpr std::size_t kTag = RecordCipher::kTagBytes;
constexpr std::size_t kHeader = sizeof(MessageHeader);
constexpr std::size_t kRecord = MessageHeader::kRecordBytes;
constexpr std::size_t kTampered = 2 * kRecord + 1000;

// Changes one bit of the byte with this number.
std::function<void(Relay::Way, std::size_t, std::string&)> flip(Relay::Way way, std::size_t place) {
  return [=](Relay::Way passes, std::size_t at, std::string& bytes) {
    if (passes != way || place < at || place >= at + bytes.size()) return;
    bytes[place - at] = static_cast<char>(bytes[place - at] ^ 4);
  };
}

struct Outcome {
  std::string error;   // of the receiver
  bool whole = false;  // it got what was sent
};

// Rank 1 - `to` sends one message to rank `to` through a relay that edits.
Outcome send_through(const Relay::Options& relay, int to, std::size_t message = kTampered) {
  Outcome outcome;
  over_relay(relay, [&](int rank, TcpMesh& mesh, TcpMesh& /*other*/) {
    Bytes bytes(mesh, message, rank == to ? 0 : 5);
    if (rank != to) {
      // The connection may break before everything is sent.
      error_of([&] {
        bytes.send(to, 1);
        bytes.wait_sent();
      });
      return;
    }
    outcome.error = error_of([&] {
      bytes.receive(1 - to, 1);
      bytes.wait_received();
    });
    outcome.whole = bytes.is_from(5);
  });
  return outcome;
}

class TamperedMessages : public ::testing::TestWithParam<Protection> {
 protected:
  MeshSockets sockets_{1, 4096, GetParam()};

  static void expect_found(const Outcome& outcome, const std::string& what) {
    EXPECT_NE(outcome.error.find("is not what rank"), std::string::npos)
        << what << ": " << outcome.error;
    EXPECT_NE(outcome.error.find("it was altered on the way"), std::string::npos) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Protection, TamperedMessages,
                         ::testing::Values(Protection::integrity, Protection::encrypted),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST_P(TamperedMessages, AnyByteThatWasChangedIsFoundAtEitherEnd) {
  const std::size_t first = kHeader + kTag;
  const std::size_t second = first + kRecord + kTag;
  for (const std::size_t place :
       {std::size_t{0}, std::size_t{8}, kHeader - 1, kHeader, kHeader + kTag - 1, first,
        first + 7777, first + kRecord - 1, first + kRecord, second - 1, second, second + 100,
        first + kTampered + 2 * kTag, first + kTampered + 3 * kTag - 1}) {
    expect_found(send_through({.edit = flip(Relay::Way::to_rank_0, place)}, 0),
                 cat("byte ", place));
    expect_found(send_through({.edit = flip(Relay::Way::to_rank_1, place)}, 1),
                 cat("byte ", place));
  }
}

TEST_P(TamperedMessages, ArriveAsTheyAreIfNobodyChangesThem) {
  for (const int to : {0, 1}) {
    const auto outcome = send_through({}, to);
    EXPECT_EQ(outcome.error, "nothing was thrown");
    EXPECT_TRUE(outcome.whole);
  }
}

// What passes is collected until all of it is there, and goes on in another order.
std::function<void(Relay::Way, std::size_t, std::string&)> rearrange(
    std::string& all, std::size_t wire_bytes, const std::function<void(std::string&)>& change) {
  return [&all, wire_bytes, change](Relay::Way way, std::size_t /*at*/, std::string& bytes) {
    if (way != Relay::Way::to_rank_0) return;
    all += std::exchange(bytes, "");
    if (all.size() != wire_bytes) return;
    bytes = all;
    change(bytes);
  };
}

TEST_P(TamperedMessages, RecordsThatWereMovedRepeatedOrTakenOutAreFound) {
  const std::size_t wire = kHeader + kTag + kTampered + 3 * kTag;
  const std::size_t first = kHeader + kTag;
  const std::size_t record = kRecord + kTag;
  const std::vector<std::pair<const char*, std::function<void(std::string&)>>> changes{
      {"two records in another order",
       [=](std::string& bytes) {
         std::rotate(bytes.begin() + first, bytes.begin() + first + record,
                     bytes.begin() + first + 2 * record);
       }},
      {"a record again in place of the next one",
       [=](std::string& bytes) {
         std::memcpy(bytes.data() + first + record, bytes.data() + first, record);
       }},
      {"no first record", [=](std::string& bytes) { bytes.erase(first, record); }},
      {"a header in front", [=](std::string& bytes) { bytes.insert(0, bytes.substr(0, first)); }},
  };
  for (const auto& [what, change] : changes) {
    std::string all;
    Outcome outcome = send_through({.edit = rearrange(all, wire, change)}, 0);
    expect_found(outcome, what);
  }
}

TEST(UnprotectedMessages, AreTakenAsTheyCome) {
  const MeshSockets sockets(1, 4096, Protection::none);
  const auto outcome = send_through({.edit = flip(Relay::Way::to_rank_0, kHeader + 5)}, 0);
  EXPECT_EQ(outcome.error, "nothing was thrown");
  EXPECT_FALSE(outcome.whole);
}

// --- what can be read on the way ----------------------------------------------------------------

// Whether the relay saw the message's own bytes.
bool is_legible(Protection protection) {
  const MeshSockets sockets(1, 4096, protection);
  std::string all;
  const auto collect = [&](Relay::Way /*way*/, std::size_t /*at*/, std::string& bytes) {
    all += bytes;
  };
  const auto outcome = send_through({.edit = collect}, 0);
  EXPECT_TRUE(outcome.whole) << outcome.error;

  std::string sample;
  for (std::size_t i = 0; i < 64; ++i) {
    sample.push_back(static_cast<char>(Bytes::byte_of(5, kRecord + i)));
  }
  EXPECT_GE(all.size(), kTampered);
  return all.find(sample) != std::string::npos;
}

TEST(EncryptedMessages, CannotBeReadOnTheWay) {
  EXPECT_FALSE(is_legible(Protection::encrypted));
  EXPECT_TRUE(is_legible(Protection::integrity));
}

TEST(DataSecurity, MustBeTheSameForAllRanks) {
  const auto one = make_tcp_mesh(mesh_options(0, 2));
  const MeshSockets sockets(1, 4096, Protection::encrypted);
  const auto other = make_tcp_mesh(mesh_options(1, 2));
  const Status connected = one->connect({one->address(), other->address()});
  EXPECT_EQ(connected.code(), Code::invalid_argument);
  EXPECT_EQ(connected.message(),
            "rank 1 and rank 0 protect their data connections in different ways: "
            "HVD_DATA_SECURITY must be the same for all");
}

}  // namespace
}  // namespace hvd::test
