// The credentials of a job's workers are visible neither in a host's list of processes nor on the
// wire; the latter does not see the workers' environment, either.
#include <cctype>

#include "base/security/crypto.h"
#include "base/text.h"
#include "tests/many_hosts/many_hosts_test.h"

namespace hvd::test {
namespace {

class SecretsOnHostsTest : public ManyHostsTest {
 protected:
  // The usual encodings of these bytes.
  static Words forms_of(const std::string& bytes) {
    std::string upper = to_hex(bytes);
    for (char& digit : upper) digit = static_cast<char>(std::toupper(digit));
    return {bytes, to_hex(bytes), upper, to_base64(bytes).substr(0, 42)};
  }
};

TEST_F(SecretsOnHostsTest, NoHostAndNoWireShowsTheTokenOrTheEnvironment) {
  make_bed({.hosts = 2});
  place({"looks"});
  for (int number = 1; number <= 2; ++number) {
    host(number).place(binary("placed_works"), "/root/works");
  }
  const TemporaryDirectory directory;
  const auto wire = directory.path() / "wire.pcap";
  bed().capture(wire);
  const std::string secret = to_hex(random_bytes(16));
  Process& job = start({"--verbose", "--env", "SECRET", "-H", bed().host_list(2), "bash", "-c",
                        "echo it is ${#SECRET} long; exec ./looks token$HVD_RANK ./works"},
                       {.environment = {{"SECRET", secret}}});
  wait_for_workers(job, "working", 4);
  EXPECT_NE(job.out().find("it is 32 long"), std::string::npos) << job.out();

  const std::string token = read_file(host(1).files() / "root/token0");
  const std::string other = read_file(host(2).files() / "root/token3");
  EXPECT_NE(token, other) << "each worker has its own";
  Words forms;
  for (const auto& digits : {token, other}) {
    const auto bytes = from_hex(digits);
    ASSERT_TRUE(bytes.ok());
    ASSERT_EQ(bytes->size(), Token::kSize);
    for (auto& form : forms_of(*bytes)) forms.push_back(std::move(form));
  }

  int workers = 0;
  for (const Host* one : {&host(1), &host(2), &bed().head()}) {
    for (const auto& seen : one->processes()) {
      workers += seen.command_line.starts_with("./works") ? 1 : 0;
      EXPECT_EQ(seen.command_line.find(secret), std::string::npos) << seen.command_line;
      for (const auto& form : forms) {
        EXPECT_EQ(seen.command_line.find(form), std::string::npos) << seen.command_line;
        EXPECT_EQ(seen.environment.find(form), std::string::npos) << seen.command_line;
      }
    }
  }
  EXPECT_EQ(workers, 4);

  job.signal(SIGINT);
  const ExitStatus end = job.wait();
  bed().end_capture();
  const std::string crossed = read_file(wire);
  EXPECT_GT(crossed.size(), 100000U);                      // an agent, at least
  EXPECT_NE(crossed.find("HTTP/1.1"), std::string::npos);  // so the rendezvous was heard
  EXPECT_EQ(crossed.find(secret), std::string::npos);
  for (const auto& form : forms) {
    EXPECT_EQ(crossed.find(form), std::string::npos);
    EXPECT_EQ(end.out.find(form), std::string::npos);
    EXPECT_EQ(end.err.find(form), std::string::npos);
  }
  EXPECT_EQ(end.err.find(secret), std::string::npos) << end.err;
}

}  // namespace
}  // namespace hvd::test
