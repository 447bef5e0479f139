// Two ranks give up an attempt to form their world together. One is a real elastic worker; the test
// plays the other.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

#include "base/protocol/credentials.h"
#include "base/socket.h"
#include "rendezvous/client.h"
#include "runtime/control/introduction.h"
#include "runtime/net/member_connector.h"
#include "tests/support/process.h"
#include "tests/worker/elastic/elastic_workers.h"
#include "worker/launch/rendezvous_exchange.h"

namespace hvd::test {
namespace {

class OneOfTwo : public ElasticWorkers {
 protected:
  OneOfTwo() {
    environment_["HVD_START_TIMEOUT"] = "3600";  // no attempt ends by itself
    options_.host = "127.0.0.1";
    options_.port = server_.address().port;
  }

  std::string read(const std::string& scope, const std::string& key) {
    const auto found =
        rendezvous::Client(options_, job_key_).wait(scope, key, Clock::now() + kGenerous);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? found->value : std::string();
  }
  void write(const std::string& scope, const std::string& key, const std::string& value) {
    const auto put = rendezvous::Client(options_, job_key_).put(scope, key, value);
    EXPECT_TRUE(put.ok()) << put.status().to_string();
  }
  // The other rank comes to this attempt. `control`: where it listens, as it says.
  void come(const std::string& scope, int worker_rank, const std::string& control) {
    auto of_worker =
        runtime::Introduction::decode(read(scope, cat("rank-", worker_rank)), worker_rank);
    ASSERT_TRUE(of_worker.ok()) << of_worker.status().to_string();
    of_worker->control = control;
    of_worker->host.clear();  // without shared memory
    write(scope, cat("rank-", 1 - worker_rank), of_worker->encode());
  }

  rendezvous::ClientOptions options_;
};

TEST_F(OneOfTwo, BeginsTheNextAttemptWhenTheOtherHasGivenUp) {
  start_in(world_of(1, {0, 1}), "train");
  come("world.1.1", 0, "");
  write("world.1.1", "given-up", "rank 1 on a#1");
  EXPECT_NE(read("world.1.2", "rank-0"), "");
  EXPECT_TRUE(worker(0).wait_for_error("rank 1 on a#1 has given up this attempt"));
}

TEST_F(OneOfTwo, IsNotHeldUpByAParentThatSaysNothing) {
  auto silent = listen_tcp({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok());
  const auto where = local_address(silent->get());
  ASSERT_TRUE(where.ok());
  start_in(world_of(1, {1, 0}), "train");
  come("world.1.1", 1, cat(where->port));
  write("world.1.1", "given-up", "rank 0 on a#1");
  EXPECT_NE(read("world.1.2", "rank-1"), "");
  EXPECT_TRUE(worker(0).wait_for_error("rank 0 on a#1 has given up this attempt"));
}

// Its request was altered on the way, so that nobody knows where it is.
TEST_F(OneOfTwo, BeginsTheNextAttemptWhenTheOtherHasGivenUpBeforeItCame) {
  start_in(world_of(1, {0, 1}), "train");
  EXPECT_NE(read("world.1.1", "rank-0"), "");
  rendezvous::Client other(options_, job_key_);
  const Status told = worker::RendezvousExchange::withdraw(other, "world.1.1", 1);
  EXPECT_TRUE(told.ok()) << told.to_string();
  EXPECT_NE(read("world.1.2", "rank-0"), "");
  EXPECT_TRUE(worker(0).wait_for_error("rank 1 on a#1 has given up this attempt"));
}

// Whoever was a member of another world of the job has that one's key and a credential of its own.
TEST_F(OneOfTwo, LetsInNobodyWithoutTheKeyOfItsWorld) {
  start_in(world_of(1, {0, 1}), "train");
  const auto own = runtime::Introduction::decode(read("world.1.1", "rank-0"), 0);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  const auto port = parse_number<std::uint16_t>(own->control);
  ASSERT_TRUE(port) << own->control;
  come("world.1.1", 0, "");

  const auto knock = [&](const Token& key) {
    return runtime::connect_and_authenticate({"127.0.0.1", *port}, key, {"rank 1", 1},
                                             {"rank 0", 1}, Clock::now() + kGenerous, -1,
                                             std::chrono::milliseconds(0))
        .status();
  };
  EXPECT_EQ(knock(generation_key(job_key_, 2)).code(), Code::unauthenticated);
  EXPECT_EQ(knock(worker_credential(job_key_, "a#1", 101)).code(), Code::unauthenticated);
  EXPECT_EQ(knock(job_key_).code(), Code::unauthenticated);
  const Status member = knock(generation_key(job_key_, 1));
  EXPECT_TRUE(member.ok()) << member.to_string();
}

// The key that comes with it is another member's.
TEST_F(OneOfTwo, DoesNotComeIntoAWorldWhoseKeyItIsNotGiven) {
  const auto self = world_of(1, {0}).members.front();
  start(greeting_of(self, frame_of(world_of(1, {1, 0}), 101), true), "train");
  EXPECT_TRUE(worker(0).wait_for_error(
      "the world of generation 1 came with a key that was not sealed for a#0"))
      << worker(0).err();
}

TEST_F(OneOfTwo, SaysThatItHasGivenUp) {
  // Bound, but not listening: a connection is refused, and no other process gets the port.
  const UniqueFd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  const auto where = local_address(bound.get());
  ASSERT_TRUE(where.ok());
  start_in(world_of(1, {1, 0}), "train");
  come("world.1.1", 1, cat(where->port));
  EXPECT_EQ(read("world.1.1", "given-up"), "rank 1 on a#0");
  EXPECT_NE(read("world.1.2", "rank-1"), "");
}

}  // namespace
}  // namespace hvd::test
