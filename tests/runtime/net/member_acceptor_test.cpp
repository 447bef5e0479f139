// An acceptor of the runtime in a process that has no descriptors left.
#include "runtime/net/member_acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "runtime/net/member_connector.h"
#include "tests/support/process.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kPurpose = "test";
constexpr std::chrono::milliseconds kWhile{300};

class AcceptorWithoutDescriptors : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "UndefinedBehaviorSanitizer reads objects through a pipe, for which it needs "
                    "descriptors";
#endif
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    ASSERT_TRUE(poller_.open().ok());
    const auto where = acceptor_.listen("127.0.0.1", {});
    ASSERT_TRUE(where.ok()) << where.status().to_string();
    where_ = *where;
  }
  void TearDown() override { allow(before_.rlim_cur); }

  static void allow(rlim_t files) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = files;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  // Limits descriptors to those that are open now, and `more`.
  void leave_free(rlim_t more) const {
    allow(before_.rlim_cur);
    const UniqueFd lowest_free(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    allow(static_cast<rlim_t>(lowest_free.get()) + more);
  }
  UniqueFd stranger() const {
    auto fd = connect_tcp(where_, Clock::now() + test::kGenerous);
    EXPECT_TRUE(fd.ok()) << fd.status().to_string();
    return std::move(*fd);
  }
  // Serves the acceptor until a member has proved its identity or the time is up; returns the
  // number of wake-ups.
  int serve(TimePoint until) {
    int turns = 0;
    while (!arrival_ && Clock::now() < until) {
      ++turns;
      for (const auto& event : poller_.wait(std::min(until, acceptor_.expire(Clock::now())))) {
        if (!acceptor_.owns(event.fd)) continue;
        if (auto arrival = acceptor_.handle(event, Clock::now())) arrival_ = std::move(arrival);
      }
    }
    return turns;
  }
  std::jthread prove(int fd) {
    return std::jthread([this, fd] {
      const Status proved = authenticate(fd, token_, kPurpose, {"rank 1", 7}, {"rank 0", 7},
                                         Clock::now() + test::kGenerous)
                                .status();
      EXPECT_TRUE(proved.ok()) << proved.to_string();
    });
  }

  Token token_ = Token::random();
  Poller poller_;
  MemberAcceptor acceptor_{poller_, token_, {"rank 0", 7}, std::chrono::seconds(60), kPurpose, 1};
  SocketAddress where_;
  std::optional<MemberAcceptor::Arrival> arrival_;
  rlimit before_{};
};

TEST_F(AcceptorWithoutDescriptors, SilentStrangersMakeRoomForAMember) {
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 60; ++i) strangers.push_back(stranger());
  const UniqueFd member = stranger();
  leave_free(8);
  const auto proof = prove(member.get());
  serve(Clock::now() + test::kGenerous);
  ASSERT_TRUE(arrival_.has_value());
  EXPECT_EQ(arrival_->name, "rank 1");
}

TEST_F(AcceptorWithoutDescriptors, TheListenerRestsAndComesBack) {
  const UniqueFd member = stranger();
  leave_free(0);
  EXPECT_LT(serve(Clock::now() + kWhile), 30) << "the loop spins";
  EXPECT_FALSE(arrival_.has_value());
  EXPECT_TRUE(acceptor_.cannot_accept().ok()) << "it was not long";
  leave_free(8);
  const auto proof = prove(member.get());
  serve(Clock::now() + test::kGenerous);
  EXPECT_TRUE(arrival_.has_value());
}

TEST_F(AcceptorWithoutDescriptors, SaysSoWhenItLasts) {
  const UniqueFd member = stranger();
  leave_free(0);
  const auto until = Clock::now() + test::kGenerous;
  while (acceptor_.cannot_accept().ok() && Clock::now() < until) serve(Clock::now() + kWhile);
  const Status why = acceptor_.cannot_accept();
  EXPECT_EQ(why.code(), Code::resource_exhausted);
  EXPECT_EQ(why.message(), "accept: Too many open files");
  leave_free(8);
  const auto proof = prove(member.get());
  serve(Clock::now() + test::kGenerous);
  EXPECT_TRUE(arrival_.has_value());
  EXPECT_TRUE(acceptor_.cannot_accept().ok());
}

}  // namespace
}  // namespace hvd::runtime
