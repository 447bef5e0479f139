// Two sides, every way in which one of them may be somebody else.
#include "base/security/handshake.h"

#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "base/wire.h"

namespace hvd {
namespace {

Frame frame_of(const std::string& bytes) {
  FrameDecoder decoder(kMaxHandshakeFrame);
  decoder.feed(bytes);
  auto frame = decoder.next();
  EXPECT_TRUE(frame.ok() && frame->has_value());
  return std::move(**frame);
}

struct Sides {
  explicit Sides(const Token& token) : acceptor_token(token), connector_token(token) {}
  Token acceptor_token;
  Token connector_token;
  std::string acceptor_purpose = "coordinator";
  std::string connector_purpose = "coordinator";
  HandshakeIdentity acceptor{"rank 0", 5};
  HandshakeIdentity connector{"rank 3", 5};
  HandshakeIdentity expected{"rank 0", 5};

  HandshakeAcceptor make_acceptor() const { return {acceptor_token, acceptor_purpose, acceptor}; }
  HandshakeConnector make_connector() const {
    return {connector_token, connector_purpose, connector, expected};
  }
};

struct Outcome {
  Status at_acceptor;
  HandshakeIdentity who;
  Status at_connector;
  std::optional<SessionKeys> acceptor_keys = {};
  std::optional<SessionKeys> connector_keys = {};
};

Outcome shake_hands(const Sides& sides) {
  const auto acceptor = sides.make_acceptor();
  auto connector = sides.make_connector();
  const auto proof = connector.prove(frame_of(acceptor.challenge()));
  EXPECT_TRUE(proof.ok());
  std::string reply;
  const auto accepted = acceptor.accept(frame_of(*proof), reply);
  Outcome outcome;
  outcome.at_acceptor = accepted.status();
  if (accepted.ok()) {
    outcome.who = *accepted;
    outcome.acceptor_keys = accepted->keys;
  }
  const auto checked = connector.check(frame_of(reply));
  outcome.at_connector = checked.status();
  if (checked.ok()) outcome.connector_keys = *checked;
  return outcome;
}

TEST(Handshake, GivesKeysThatNoOtherConnectionAndNoOtherDirectionHas) {
  const Sides sides(Token::random());
  std::set<std::string> all;
  const auto collect = [&all](const Sides& of) {
    const auto outcome = shake_hands(of);
    ASSERT_TRUE(outcome.acceptor_keys && outcome.connector_keys);
    EXPECT_EQ(outcome.acceptor_keys->to_send.bytes(), outcome.connector_keys->to_receive.bytes());
    EXPECT_EQ(outcome.acceptor_keys->to_receive.bytes(), outcome.connector_keys->to_send.bytes());
    all.emplace(outcome.acceptor_keys->to_send.bytes());
    all.emplace(outcome.acceptor_keys->to_receive.bytes());
  };
  collect(sides);
  collect(sides);
  EXPECT_EQ(all.size(), 4U) << "two connections, two directions";
  EXPECT_FALSE(all.contains(std::string(sides.acceptor_token.bytes())));
}

TEST(Handshake, MembersKnowEachOther) {
  const auto outcome = shake_hands(Sides(Token::random()));
  EXPECT_TRUE(outcome.at_acceptor.ok()) << outcome.at_acceptor.to_string();
  EXPECT_TRUE(outcome.at_connector.ok()) << outcome.at_connector.to_string();
  EXPECT_EQ(outcome.who.name, "rank 3");
  EXPECT_EQ(outcome.who.generation, 5U);
}

TEST(Handshake, AStrangerIsRefused) {
  Sides sides(Token::random());
  sides.connector_token = Token::random();
  const auto outcome = shake_hands(sides);
  EXPECT_EQ(outcome.at_acceptor.code(), Code::unauthenticated);
  EXPECT_EQ(outcome.at_connector.code(), Code::unauthenticated);
  EXPECT_EQ(outcome.at_acceptor.message(),
            "coordinator: the peer did not prove that it holds this world's key");
  EXPECT_NE(outcome.at_connector.message().find("rank 0 refused us"), std::string::npos);
}

TEST(Handshake, AnEarlierAndALaterGenerationAreToldApartFromStrangers) {
  for (const std::uint64_t generation : {4U, 6U}) {
    Sides sides(Token::random());
    sides.connector.generation = generation;
    const auto outcome = shake_hands(sides);
    EXPECT_EQ(outcome.at_acceptor.code(), Code::failed_precondition);
    EXPECT_NE(outcome.at_acceptor.message().find("generation " + std::to_string(generation)),
              std::string::npos);
    EXPECT_EQ(outcome.at_connector.code(), Code::failed_precondition);
  }
}

TEST(Handshake, AProofForOnePurposeServesNoOther) {
  Sides sides(Token::random());
  sides.connector_purpose = "data";
  const auto outcome = shake_hands(sides);
  EXPECT_EQ(outcome.at_acceptor.code(), Code::unauthenticated);
  EXPECT_FALSE(outcome.at_connector.ok());
}

TEST(Handshake, TheOneThatAnswersMustBeTheOneThatWasMeant) {
  Sides sides(Token::random());
  sides.expected.name = "rank 1";  // its old address now belongs to rank 0
  const auto outcome = shake_hands(sides);
  EXPECT_FALSE(outcome.at_acceptor.ok());
  EXPECT_FALSE(outcome.at_connector.ok());
}

TEST(Handshake, AReplayedProofIsRefused) {
  const Sides sides(Token::random());
  const auto first = sides.make_acceptor();
  auto connector = sides.make_connector();
  const auto proof = connector.prove(frame_of(first.challenge()));
  std::string reply;
  ASSERT_TRUE(first.accept(frame_of(*proof), reply).ok());
  const auto second = sides.make_acceptor();
  EXPECT_EQ(second.accept(frame_of(*proof), reply).status().code(), Code::unauthenticated);
  EXPECT_FALSE(connector.check(frame_of(reply)).ok());
}

TEST(Handshake, AReplayedWelcomeIsRefused) {
  const Sides sides(Token::random());
  const auto acceptor = sides.make_acceptor();
  auto first = sides.make_connector();
  std::string welcome;
  ASSERT_TRUE(
      acceptor.accept(frame_of(*first.prove(frame_of(acceptor.challenge()))), welcome).ok());
  ASSERT_TRUE(first.check(frame_of(welcome)).ok());
  // An impostor at the same address repeats what it overheard, to the letter.
  auto second = sides.make_connector();
  ASSERT_TRUE(second.prove(frame_of(acceptor.challenge())).ok());
  EXPECT_EQ(second.check(frame_of(welcome)).status().code(), Code::unauthenticated);
}

TEST(Handshake, AProofSentBackIsNoWelcome) {
  const Sides sides(Token::random());
  auto connector = sides.make_connector();
  auto proof = frame_of(*connector.prove(frame_of(sides.make_acceptor().challenge())));
  WireReader reader(proof.payload);
  reader.str();
  reader.str();
  reader.u64();
  Frame reflected;
  reflected.kind = static_cast<std::uint16_t>(HandshakeFrame::welcome);
  reflected.payload = WireWriter().str(reader.view()).take();
  EXPECT_FALSE(connector.check(reflected).ok());
}

TEST(Handshake, EveryChangedByteIsNoticed) {
  const Sides sides(Token::random());
  const auto acceptor = sides.make_acceptor();
  auto connector = sides.make_connector();
  const auto proof = frame_of(*connector.prove(frame_of(acceptor.challenge())));
  std::string welcome_bytes;
  ASSERT_TRUE(acceptor.accept(proof, welcome_bytes).ok());
  const auto welcome = frame_of(welcome_bytes);
  for (std::size_t i = 0; i < proof.payload.size(); ++i) {
    Frame changed = proof;
    changed.payload[i] = static_cast<char>(changed.payload[i] ^ 1);
    std::string reply;
    EXPECT_EQ(acceptor.accept(changed, reply).status().code(), Code::unauthenticated) << i;
    EXPECT_EQ(frame_of(reply).kind, static_cast<std::uint16_t>(HandshakeFrame::refusal));
    changed.payload = proof.payload.substr(0, i);
    EXPECT_EQ(acceptor.accept(changed, reply).status().code(), Code::unauthenticated) << i;
  }
  for (std::size_t i = 0; i < welcome.payload.size(); ++i) {
    Frame changed = welcome;
    changed.payload[i] = static_cast<char>(changed.payload[i] ^ 1);
    EXPECT_FALSE(connector.check(changed).ok()) << i;
    changed.payload = welcome.payload.substr(0, i);
    EXPECT_FALSE(connector.check(changed).ok()) << i;
  }
}

TEST(Handshake, ARefusalIsNeverTakenForAWelcome) {
  const Sides sides(Token::random());
  auto connector = sides.make_connector();
  ASSERT_TRUE(connector.prove(frame_of(sides.make_acceptor().challenge())).ok());
  Frame refusal;
  refusal.kind = static_cast<std::uint16_t>(HandshakeFrame::refusal);
  refusal.payload = WireWriter().u8(0).str("all is well").take();  // code 0 would be ok
  EXPECT_FALSE(connector.check(refusal).ok());
  refusal.payload = "";
  EXPECT_FALSE(connector.check(refusal).ok());
}

TEST(Handshake, AForeignProtocolIsRefused) {
  const Sides sides(Token::random());
  const auto acceptor = sides.make_acceptor();
  auto connector = sides.make_connector();
  EXPECT_EQ(connector.prove({1, ""}).status().code(), Code::unauthenticated);
  EXPECT_EQ(connector.prove({99, frame_of(acceptor.challenge()).payload}).status().code(),
            Code::unauthenticated);
  const std::string short_nonce = WireWriter().u32(1).str("short").take();
  EXPECT_EQ(connector.prove({1, short_nonce}).status().code(), Code::unauthenticated);
  const std::string later_version = WireWriter().u32(2).str(std::string(16, 'n')).take();
  EXPECT_EQ(connector.prove({1, later_version}).status().code(), Code::unauthenticated);
}

TEST(Handshake, RandomFramesAreRefused) {
  const Sides sides(Token::random());
  const auto acceptor = sides.make_acceptor();
  auto connector = sides.make_connector();
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    Frame frame;
    frame.kind = static_cast<std::uint16_t>(random() % 6);
    frame.payload.resize(random() % 200);
    for (auto& c : frame.payload) c = static_cast<char>(random() % 4 == 0 ? random() : 0);
    std::string reply;
    EXPECT_FALSE(acceptor.accept(frame, reply).ok());
    EXPECT_FALSE(connector.check(frame).ok());
  }
}

TEST(Handshake, NothingSecretIsInWhatTravels) {
  const Sides sides(Token::random());
  const auto acceptor = sides.make_acceptor();
  auto connector = sides.make_connector();
  const auto proof = connector.prove(frame_of(acceptor.challenge()));
  std::string reply;
  ASSERT_TRUE(acceptor.accept(frame_of(*proof), reply).ok());
  const std::string all = acceptor.challenge() + *proof + reply;
  EXPECT_EQ(all.find(sides.acceptor_token.bytes().substr(0, 8)), std::string::npos);
}

}  // namespace
}  // namespace hvd
