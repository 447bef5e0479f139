#include "driver/join/join_server.h"

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <gtest/gtest.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

#include "base/protocol/join_link.h"
#include "base/security/tls_psk.h"
#include "base/text.h"
#include "base/versions.h"
#include "cmd/hvdrun/join_client.h"
#include "tests/driver/join/join_point.h"
#include "tests/support/process.h"

namespace hvd::driver::join {
namespace {

using test::kGenerous;

// The client of `hvdrun agent`, with its token in a file.
class Client {
 public:
  explicit Client(const JoinPoint& join_point, char digit = 'a') {
    const auto file = directory_.file("token", std::string(64, digit) + "\n");
    std::filesystem::permissions(file, std::filesystem::perms{0600});
    arguments.join = {{join_point.address().host, join_point.address().port}};
    arguments.token_file = file;
    arguments.host = "h1";
    arguments.slots = 3;
    arguments.join_timeout = kGenerous;
  }
  Result<cli::Joined> join() {
    return cli::JoinClient(arguments, [this](std::string_view line) { said.emplace_back(line); })
        .join();
  }
  cli::AgentArguments arguments;
  std::vector<std::string> said;

 private:
  test::TemporaryDirectory directory_;
};

// The same client with a join token.
struct TokenClient : Client {
  TokenClient(JoinPoint& join_point, const PskKey& key) : Client(join_point) {
    std::ofstream(arguments.token_file) << to_text(key) << "\n";
  }
};

PskKey token_of(JoinPoint& join_point, const JoinTokenTerms& terms) {
  std::optional<PskKey> made;
  join_point.on_thread([&] { made = *join_point.join_tokens.make(terms, Clock::now()); });
  return *made;
}

// A plain connection, which can send anything.
struct RawClient {
  explicit RawClient(const JoinPoint& join_point)
      : fd(*connect_tcp(join_point.address(), soon())) {}
  void send(std::string_view bytes) const { EXPECT_TRUE(send_all(fd.get(), bytes, soon()).ok()); }
  // True once the server has closed the connection; discards all bytes before.
  bool wait_for_close() const {
    std::array<char, 4096> buffer{};
    for (;;) {
      if (!wait_for(fd.get(), POLLIN, soon()).ok()) return false;
      if (::recv(fd.get(), buffer.data(), buffer.size(), 0) <= 0) return true;
    }
  }
  UniqueFd fd;
};

// A connection with the token, which can send any frame.
struct TlsClient : RawClient {
  explicit TlsClient(const JoinPoint& join_point)
      : RawClient(join_point), tls(*TlsPsk::client({JoinPoint::token(), {}})->session()) {
    EXPECT_TRUE(tls.receive({}).ok());
    send(tls.take_outgoing());
    while (!tls.established() && receive()) {
    }
    EXPECT_TRUE(tls.established());
  }
  bool receive() {
    std::array<char, 4096> buffer{};
    if (!wait_for(fd.get(), POLLIN, soon()).ok()) return false;
    const ssize_t got = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0 || !tls.receive({buffer.data(), static_cast<std::size_t>(got)}).ok()) return false;
    send(tls.take_outgoing());
    return true;
  }
  void send_frame(std::string_view text) {
    EXPECT_TRUE(tls.send(text).ok());
    send(tls.take_outgoing());
  }
  join_link::Refused wait_for_refusal() {
    FrameDecoder frames;
    for (;;) {
      frames.feed(tls.take_received());
      const auto frame = frames.next();
      if (frame.ok() && frame->has_value()) return *join_link::Refused::decode((*frame)->payload);
      if (!receive()) return {"nothing was said", false};
    }
  }
  TlsSession tls;
};

std::string read_some(int fd) {
  std::array<char, 65536> buffer{};
  if (!wait_for(fd, POLLIN, soon()).ok()) return "nothing in time";
  const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
  return got <= 0 ? "the end" : std::string(buffer.data(), static_cast<std::size_t>(got));
}

TEST(JoinServer, AnAgentWithTheTokenIsAcceptedAndItsLinkCarriesBothWays) {
  JoinPoint join_point;
  Client client(join_point);
  auto joined = client.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_TRUE(join_point.wait_for_joined(1));
  auto& agent = join_point.joined(0);
  EXPECT_EQ(agent.host, "h1");
  EXPECT_EQ(agent.slots, 3);
  EXPECT_EQ(agent.connection.peer_address, "127.0.0.1");
  EXPECT_EQ(agent.connection.local_address, "127.0.0.1");
  const int link = agent.connection.link.get();

  // The driver's first bytes are the agent's turn.
  ASSERT_TRUE(send_all(link, "to the agent", soon()).ok());
  ASSERT_EQ(cli::wait_for_turn(*joined, -1).how, cli::Turn::How::begun);
  std::string heard = joined->received;
  while (heard.size() < 12) {
    ASSERT_TRUE(joined->tls.receive(read_some(joined->socket.get())).ok());
    heard += joined->tls.take_received();
  }
  EXPECT_EQ(heard, "to the agent");

  // Far more than fits into all buffers together, and read late.
  const std::string much(std::size_t{8} << 20, 'y');
  ASSERT_TRUE(joined->tls.send(much).ok());
  std::thread sender([&] {
    EXPECT_TRUE(send_all(joined->socket.get(), joined->tls.take_outgoing(), soon()).ok());
  });
  std::string got;
  while (got.size() < much.size()) {
    const std::string piece = read_some(link);
    if (piece == "the end" || piece == "nothing in time") break;
    got += piece;
  }
  sender.join();
  EXPECT_EQ(got, much);
}

TEST(JoinServer, TheEndOfOneSideIsTheEndOfTheOther) {
  JoinPoint join_point;
  Client client(join_point);
  auto first = client.join();
  ASSERT_TRUE(first.ok() && join_point.wait_for_joined(1));
  client.arguments.host = "h2";
  auto second = client.join();
  ASSERT_TRUE(second.ok() && join_point.wait_for_joined(2));

  // The agent's side disconnects.
  first->socket.reset();
  auto& gone = join_point.joined(0).connection;
  EXPECT_EQ(read_some(gone.link.get()), "the end");
  ASSERT_TRUE(wait_for(gone.handle->ended_fd(), POLLIN, soon()).ok());
  join_point.on_thread(
      [&] { EXPECT_NE(gone.handle->reap().find("connection"), std::string::npos); });

  // The driver's side closes the connection, also after the server was closed.
  join_point.close();
  auto& held = join_point.joined(1).connection;
  EXPECT_FALSE(wait_for(held.handle->ended_fd(), POLLIN, Clock::now()).ok());
  held.link.reset();
  EXPECT_EQ(cli::wait_for_turn(*second, -1).how, cli::Turn::How::dismissed);
  join_point.on_thread([&] { held.handle->kill(); });
  EXPECT_TRUE(wait_for(held.handle->ended_fd(), POLLIN, soon()).ok());
}

// ---- an agent waits for its turn ----

constexpr std::chrono::milliseconds kSilence{200};

// Answers the server's heartbeats by hand, and judges nobody.
struct WaitingClient : TlsClient {
  explicit WaitingClient(const JoinPoint& join_point) : TlsClient(join_point) {
    send_frame(join_link::Join{std::string(build_id()), "h1", 1}.encode());
    EXPECT_TRUE(wait_for(join_link::Kind::accepted));
  }
  bool wait_for(join_link::Kind kind) {
    for (;;) {
      frames.feed(tls.take_received());
      const auto frame = frames.next();
      if (!frame.ok()) return false;
      if (frame->has_value() && (*frame)->kind == static_cast<std::uint16_t>(kind)) return true;
      if (!frame->has_value() && !receive()) return false;
    }
  }
  FrameDecoder frames;
};

bool ends_in_time(const AgentConnection& agent) {
  return wait_for(agent.handle->ended_fd(), POLLIN, soon()).ok();
}
bool has_ended(const AgentConnection& agent) {
  return wait_for(agent.handle->ended_fd(), POLLIN, Clock::now()).ok();
}
std::string end_of(JoinPoint& join_point, const AgentConnection& agent) {
  std::string how;
  join_point.on_thread([&] { how = agent.handle->reap(); });
  return how;
}

TEST(JoinServer, AWaitingAgentThatIsSilentIsLost) {
  JoinPoint join_point({.silence = kSilence});
  const WaitingClient client(join_point);
  ASSERT_TRUE(join_point.wait_for_joined(1));
  const auto& agent = join_point.joined(0).connection;
  ASSERT_TRUE(ends_in_time(agent));
  EXPECT_EQ(end_of(join_point, agent), "gave no sign of life for 0.2 s");
}

TEST(JoinServer, AWaitingAgentThatAnswersStaysAndHasItsTurn) {
  JoinPoint join_point({.silence = kSilence});
  WaitingClient client(join_point);
  ASSERT_TRUE(join_point.wait_for_joined(1));
  for (int i = 0; i < 30; ++i) {  // at least three times the limit
    ASSERT_TRUE(client.wait_for(join_link::Kind::heartbeat)) << i;
    client.send_frame(join_link::HeartbeatAck{}.encode());
  }
  auto& agent = join_point.joined(0).connection;
  EXPECT_FALSE(has_ended(agent));

  ASSERT_TRUE(send_all(agent.link.get(), "to the agent", soon()).ok());
  ASSERT_TRUE(client.wait_for(join_link::Kind::begin));
  client.send_frame(join_link::HeartbeatAck{}.encode() + join_link::Begun{}.encode() + "hello");
  EXPECT_EQ(read_some(agent.link.get()), "hello");
}

// The silence of its agents meanwhile is its own fault.
TEST(JoinServer, ADriverThatWasHeldUpLosesNoWaitingAgent) {
  JoinPoint join_point({.silence = kSilence});
  WaitingClient client(join_point);
  ASSERT_TRUE(join_point.wait_for_joined(1));
  ASSERT_TRUE(client.wait_for(join_link::Kind::heartbeat));
  client.send_frame(join_link::HeartbeatAck{}.encode());
  join_point.on_thread([] { std::this_thread::sleep_for(5 * kSilence); });
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.wait_for(join_link::Kind::heartbeat)) << i;
    client.send_frame(join_link::HeartbeatAck{}.encode());
  }
  EXPECT_FALSE(has_ended(join_point.joined(0).connection));
}

TEST(JoinServer, AWaitingAgentThatSaysSomethingElseIsLost) {
  JoinPoint join_point;
  for (const auto& wrong : {join_link::Begun{}.encode(), std::string(4, '\0'),
                            encode_frame(1, std::string(100, 'x'))}) {
    WaitingClient client(join_point);
    ASSERT_TRUE(join_point.wait_for_joined(1));
    client.send_frame(wrong);
    const auto& agent = join_point.joined(0).connection;
    ASSERT_TRUE(ends_in_time(agent));
    EXPECT_EQ(end_of(join_point, agent), "sent a malformed message");
    join_point.forget_joined();
  }
}

TEST(JoinServer, AnAgentThatIsGivenUpBeforeItsTurnIsDismissed) {
  JoinPoint join_point;
  Client client(join_point);
  auto joined = client.join();
  ASSERT_TRUE(joined.ok() && join_point.wait_for_joined(1));
  join_point.forget_joined();
  EXPECT_EQ(cli::wait_for_turn(*joined, -1).how, cli::Turn::How::dismissed);
}

// Its acceptance may still be on the way out.
TEST(JoinServer, AnAgentThatIsGivenUpAsSoonAsItHasJoinedIsDismissed) {
  JoinPoint join_point;
  join_point.gives_up_at_once = true;
  Client client(join_point);
  auto joined = client.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_EQ(cli::wait_for_turn(*joined, -1).how, cli::Turn::How::dismissed);
}

TEST(JoinClient, ADriverThatIsSilentIsLostAndMayBeJoinedAgain) {
  JoinPoint join_point({.silence = kSilence});
  Client client(join_point);
  auto joined = client.join();
  ASSERT_TRUE(joined.ok() && join_point.wait_for_joined(1));
  std::promise<void> goes_on;
  join_point.post([&] { goes_on.get_future().wait(); });
  const auto turn = cli::wait_for_turn(*joined, -1);
  goes_on.set_value();
  EXPECT_EQ(turn.how, cli::Turn::How::lost);
  EXPECT_EQ(turn.why, "it gave no sign of life for 0.2 s");
  joined->socket.reset();
  EXPECT_TRUE(ends_in_time(join_point.joined(0).connection));
  EXPECT_TRUE(client.join().ok());
}

TEST(JoinServer, AJoinTokenLetsInAsManyAsItIsFor) {
  JoinPoint join_point;
  const auto key = token_of(join_point, {.uses = 2});
  for (int time = 0; time < 2; ++time) {
    const auto joined = TokenClient(join_point, key).join();
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  }
  const auto refused = TokenClient(join_point, key).join();
  EXPECT_EQ(refused.status().code(), Code::permission_denied);
  EXPECT_NE(refused.status().message().find("join token 1 is used up: it has let 2 agents join"),
            std::string::npos)
      << refused.status().to_string();
  EXPECT_TRUE(join_point.wait_for_refusal("join token 1 is used up"));
  EXPECT_TRUE(join_point.wait_for_joined(2));
}

TEST(JoinServer, AJoinTokenIsNotUsedUpByAnAgentThatMayNotJoin) {
  JoinPoint join_point;
  join_point.admit = [](const std::string& host, const JoinPoint::Labels&) {
    return host == "h2" ? Status() : Status(Code::not_found, "not this one");
  };
  const auto key = token_of(join_point, {.uses = 1});
  EXPECT_EQ(TokenClient(join_point, key).join().status().code(), Code::permission_denied);
  TokenClient second(join_point, key);
  second.arguments.host = "h2";
  EXPECT_TRUE(second.join().ok());
}

TEST(JoinServer, AJoinTokenOfAnotherJobOpensNothing) {
  JoinPoint join_point;
  token_of(join_point, {});
  const auto stranger = JoinTokens(Token::random()).make({}, Clock::now());
  const auto refused = TokenClient(join_point, *stranger).join();
  EXPECT_EQ(refused.status().code(), Code::unauthenticated);
  EXPECT_NE(refused.status().message().find("join token 1 may be of another job"),
            std::string::npos)
      << refused.status().to_string();
}

TEST(JoinServer, AnotherTokenIsRefusedAndBothSidesSaySo) {
  JoinPoint join_point;
  Client client(join_point, 'b');
  const auto joined = client.join();
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(joined.status().message().find("does not hold the same token"), std::string::npos)
      << joined.status().message();
  EXPECT_TRUE(join_point.wait_for_refusal("127.0.0.1: it does not hold the same token"));
}

TEST(JoinServer, StrangersAreSentAwayAndHarmNobody) {
  JoinPoint join_point({.handshake = std::chrono::milliseconds(100), .report_every = {}});
  const RawClient web(join_point);
  web.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(web.wait_for_close());
  EXPECT_TRUE(join_point.wait_for_refusal("it does not speak TLS"));
  const RawClient slow(join_point);
  slow.send("\x16");
  EXPECT_TRUE(slow.wait_for_close());
  EXPECT_TRUE(join_point.wait_for_refusal("it did not authenticate in time"));
  { const RawClient disconnects(join_point); }
  EXPECT_TRUE(join_point.wait_for_refusal("it disconnected before"));
  const TlsClient silent(join_point);
  EXPECT_TRUE(silent.wait_for_close());
  TlsClient rude(join_point);
  rude.send_frame(encode_frame(1, std::string(5000, 'x')));
  EXPECT_TRUE(rude.wait_for_close());

  Client client(join_point);
  EXPECT_TRUE(client.join().ok());
}

TEST(JoinServer, BeyondTheLimitTheStrangerThatWaitsLongestIsClosed) {
  JoinPoint join_point({.max_pending = 3, .report_every = {}});
  const RawClient first(join_point);
  const RawClient second(join_point);
  const RawClient third(join_point);
  const RawClient fourth(join_point);
  EXPECT_TRUE(first.wait_for_close());
  Client client(join_point);
  EXPECT_TRUE(client.join().ok());
  EXPECT_TRUE(second.wait_for_close());
  EXPECT_FALSE(wait_for(fourth.fd.get(), POLLIN, Clock::now()).ok()) << "it was sent away";
}

// A stranger who has sent nothing goes before it, also if it is the older one.
TEST(JoinServer, BeyondTheLimitAnAgentThatHasGreetedStays) {
  JoinPoint join_point({.max_pending = 2, .report_every = {}});
  TlsClient agent(join_point);
  const RawClient first(join_point);
  const RawClient second(join_point);
  EXPECT_TRUE(first.wait_for_close());
  agent.send_frame(encode_frame(1000, {}));
  EXPECT_EQ(agent.wait_for_refusal().reason, "its first message is not Join");
}

// Each record is in order, and the greeting that they are parts of does not end.
TEST(JoinServer, AStrangerThatSendsMuchIsClosedBeforeItsTimeIsUp) {
  JoinPoint join_point({.report_every = {}});
  constexpr std::size_t kRecord = std::size_t{16} << 10;
  const std::string head("\x16\x03\x01\x40\x00", 5);
  std::string greeting("\x01\x00\xFF\xFF", 4);
  greeting.resize(3 * kRecord);
  const RawClient stranger(join_point);
  for (std::size_t at = 0; at < greeting.size(); at += kRecord) {
    // The server may have gone before it has all.
    (void)send_all(stranger.fd.get(), head + greeting.substr(at, kRecord), soon());
  }
  EXPECT_TRUE(stranger.wait_for_close());
  ASSERT_EQ(join_point.refused().size(), 1U);
  EXPECT_NE(join_point.refused().front().find("it sent too many bytes"), std::string::npos)
      << join_point.refused().front();
}

TEST(JoinServer, ManyStrangersAreReportedInOneLine) {
  JoinPoint join_point;
  for (int i = 0; i < 20; ++i) {
    const RawClient client(join_point);
    client.send("nonsense, of which there is enough\n");
    EXPECT_TRUE(client.wait_for_close());
  }
  EXPECT_EQ(join_point.refused().size(), 1U);
}

// As the kubelet asks, in one piece or in many.
TEST(JoinServer, AHealthProbeIsAnsweredWithoutATokenAndWithoutAWarning) {
  constexpr std::string_view kProbe =
      "GET /healthz HTTP/1.1\r\nHost: 10.0.0.1:4000\r\nUser-Agent: kube-probe/1.33\r\n"
      "Accept: */*\r\nConnection: close\r\n\r\n";
  JoinPoint join_point;
  for (const std::size_t first :
       {kProbe.size(), std::size_t{1}, std::size_t{10}, std::size_t{40}}) {
    const RawClient client(join_point);
    client.send(kProbe.substr(0, first));
    if (first < kProbe.size()) client.send(kProbe.substr(first));
    std::string answer;
    for (auto some = read_some(client.fd.get()); some != "the end";
         some = read_some(client.fd.get())) {
      ASSERT_NE(some, "nothing in time") << answer;
      answer += some;
    }
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nok\n")) << answer;
  }
  EXPECT_TRUE(join_point.refused().empty()) << hvd::join(join_point.refused(), "\n");

  // Beside it agents join as ever.
  Client agent(join_point);
  EXPECT_TRUE(agent.join().ok());
}

TEST(JoinServer, OtherRequestsAreRefusedAsStrangersAre) {
  const std::string much(5000, 'x');
  for (const auto& request :
       {std::string("GET /secret HTTP/1.1\r\n\r\n"), std::string("POST /healthz HTTP/1.1\r\n\r\n"),
        cat("GET /healthz HTTP/1.1\r\nX: ", much, "\r\n\r\n")}) {
    JoinPoint join_point;
    const RawClient client(join_point);
    client.send(request);
    EXPECT_TRUE(client.wait_for_close());
    EXPECT_TRUE(join_point.wait_for_refusal("refused a connection from 127.0.0.1"));
  }
}

TEST(JoinServer, AJoinMessageIsCheckedAndAnswered) {
  const struct {
    join_link::Join join;
    const char* reason;
  } rows[] = {
      {{"another build", "h1", 1}, "its build is \"another build\""},
      {{std::string(build_id()), "", 1}, "the host's name is missing"},
      {{std::string(build_id()), "a\nb", 1}, "the host's name \"a\\nb\" may only have"},
      {{std::string(build_id()), "-a", 1}, "the host's name \"-a\" begins with '-'"},
      {{std::string(build_id()), std::string(301, 'a'), 1}, "is longer than 253 characters"},
      // As `hvdrun token --host` and `hvdrun agent --host` refuse them.
      {{std::string(build_id()), "a:1", 1}, "the host's name \"a:1\" may only have"},
      {{std::string(build_id()), "[::1]", 1}, "the host's name \"[::1]\" may only have"},
      {{std::string(build_id()), "a%eth0", 1}, "the host's name \"a%eth0\" may only have"},
      {{std::string(build_id()), "h1", 0}, "it has 0 slots"},
      {{std::string(build_id()), "h1", -1}, "it has -1 slots"},
      {{std::string(build_id()), "h1", 1, {"zone=\x1b[31m"}}, "label \"zone="},
      {{std::string(build_id()), "h1", 1, {"zone=a", "zone=b"}}, "label zone is given twice"},
      {{std::string(build_id()), "h1", 1, std::vector<std::string>(33, "a=")}, "33 labels"},
  };
  JoinPoint join_point;
  for (const auto& row : rows) {
    TlsClient client(join_point);
    client.send_frame(row.join.encode());
    const auto refused = client.wait_for_refusal();
    EXPECT_NE(refused.reason.find(row.reason), std::string::npos) << refused.reason;
    EXPECT_TRUE(refused.final);
    EXPECT_TRUE(client.wait_for_close());
    EXPECT_TRUE(join_point.wait_for_refusal(row.reason));
  }
  // Of a build whose Join has other fields.
  TlsClient older(join_point);
  older.send_frame(encode_frame(static_cast<std::uint16_t>(join_link::Kind::join),
                                WireWriter().str("older build").str("h1").take()));
  EXPECT_NE(older.wait_for_refusal().reason.find("its build is \"older build\""),
            std::string::npos);

  TlsClient impatient(join_point);
  impatient.send_frame(join_link::Join{std::string(build_id()), "h1", 1}.encode() + "more");
  EXPECT_EQ(impatient.wait_for_refusal().reason, "its first message is not Join");
}

TEST(JoinServer, AnAgentThatIsRefusedForNowTriesAgainAndIsToldOnce) {
  JoinPoint join_point;
  std::atomic<int> asked = 0;
  join_point.admit = [&](const std::string& host, const JoinPoint::Labels& labels) {
    EXPECT_EQ(labels, (JoinPoint::Labels{"zone=eu", "spot="}));
    return ++asked < 4 ? Status(Code::already_exists, cat("a host ", host, " is there already"))
                       : Status();
  };
  Client client(join_point);
  client.arguments.labels = {"zone=eu", "spot="};
  const auto joined = client.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_EQ(client.said.size(), 1U);
  EXPECT_NE(client.said[0].find("a host h1 is there already; trying again"), std::string::npos)
      << client.said[0];
  EXPECT_EQ(join_point.refused().size(), 1U);
}

TEST(JoinServer, AnAgentThatIsRefusedForGoodGivesUp) {
  JoinPoint join_point;
  join_point.admit = [](const std::string& host, const JoinPoint::Labels&) {
    return Status(Code::not_found, cat("this job has no host ", host));
  };
  Client client(join_point);
  const auto joined = client.join();
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(joined.status().message().find("does not let this machine in as h1: this job has no "
                                           "host h1"),
            std::string::npos)
      << joined.status().message();
}

TEST(JoinClient, WaitsForTheTokenFileAndForTheServer) {
  test::TemporaryDirectory directory;
  cli::AgentArguments arguments;
  arguments.token_file = directory.path() / "token";
  arguments.host = "h1";
  arguments.join_timeout = kGenerous;
  // A port without a listener, until the server starts.
  auto listener = *listen_tcp({"127.0.0.1", 0});
  const std::uint16_t port = local_address(listener.get())->port;
  arguments.join = {{"localhost", port}};
  listener.reset();
  std::optional<JoinPoint> join_point;
  std::vector<std::string> said;
  cli::JoinClient client(arguments, [&](std::string_view line) {
    said.emplace_back(line);
    if (said.size() == 1) {
      std::filesystem::permissions(directory.file("token", std::string(64, 'a')),
                                   std::filesystem::perms{0600});
    } else if (!join_point) {
      join_point.emplace(Limits{}, port);
    }
  });
  const auto joined = client.join();
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_GE(said.size(), 2U);
  EXPECT_NE(said[0].find("No such file"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("Connection refused"), std::string::npos) << said[1];
}

TEST(JoinClient, TriesEachOfItsAddresses) {
  JoinPoint join_point;
  JoinPoint gone;
  Client client(join_point);
  const auto there = client.arguments.join.front();
  client.arguments.join = {
      {"no-such-host.invalid", 1}, {gone.address().host, gone.address().port}, there};
  gone.close();
  EXPECT_TRUE(client.join().ok());
}

TEST(JoinClient, AnotherJobAtOneOfItsAddressesEndsNothing) {
  JoinPoint other;
  Client client(other, 'b');
  EXPECT_EQ(client.join().status().code(), Code::unauthenticated) << "it is the only one";
  client.arguments.join.push_back({"no-such-host.invalid", 1});
  client.arguments.join_timeout = std::chrono::milliseconds(500);
  const auto late = client.join();
  EXPECT_NE(late.status().message().find("could not join in time"), std::string::npos)
      << late.status().message();
}

TEST(JoinClient, GivesUpInTimeAndSaysWhatItWaitedFor) {
  JoinPoint join_point;
  Client client(join_point);
  join_point.close();
  client.arguments.join_timeout = std::chrono::milliseconds(300);
  const auto refused = client.join();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("could not join in time (--join-timeout): connect to "
                                            "127.0.0.1:"),
            std::string::npos)
      << refused.status().message();
  client.arguments.join.front().host = "no-such-host.invalid";
  const auto unknown = client.join();
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("resolve no-such-host.invalid"), std::string::npos);
}

TEST(JoinServer, AnAddressThatCannotBeListenedOnIsNamed) {
  boost::asio::io_context io;
  JoinServer server(io, JoinPoint::token(), {"192.0.2.1", 0}, {});
  const Status started = server.start();
  ASSERT_FALSE(started.ok());
  EXPECT_NE(started.message().find("192.0.2.1"), std::string::npos) << started.message();
}

}  // namespace
}  // namespace hvd::driver::join
