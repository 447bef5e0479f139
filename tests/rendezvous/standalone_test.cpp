#include "rendezvous/standalone.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/text.h"
#include "rendezvous/client.h"
#include "tests/support/process.h"

namespace hvd::rendezvous {
namespace {

using hvd::test::binary;
using hvd::test::Process;
using hvd::test::TemporaryDirectory;

unsigned mode_of(const std::string& path) {
  struct stat about {};
  EXPECT_EQ(::stat(path.c_str(), &about), 0);
  return about.st_mode & 0777;
}

TEST(BindAddress, IsAnIpAddressAndAPort) {
  EXPECT_EQ(parse_bind_address("127.0.0.1:80")->to_string(), "127.0.0.1:80");
  EXPECT_EQ(parse_bind_address("[::1]:0")->to_string(), "[::1]:0");
  for (const auto* const text : {"", ":", "127.0.0.1", "127.0.0.1:", "localhost:80", "::1:80",
                                 "[127.0.0.1]:80", "127.0.0.1:65536", "127.0.0.1:-1", "[]:1"}) {
    const auto address = parse_bind_address(text);
    EXPECT_FALSE(address.ok()) << text;
  }
}

TEST(TokenFile, IsMadeOnceAndForItsOwnerOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() / "token";
  const auto made = load_or_create_token(path);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(mode_of(path), 0600u);
  const auto read = load_or_create_token(path);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->bytes(), made->bytes());
}

TEST(TokenFile, IsRefusedWhenOthersCouldReadItOrItHoldsNoToken) {
  const TemporaryDirectory directory;
  const std::string open = directory.file("open", to_hex(random_bytes(32)) + "\n");
  ASSERT_EQ(::chmod(open.c_str(), 0640), 0);
  const auto readable = load_or_create_token(open);
  EXPECT_EQ(readable.status().code(), Code::failed_precondition);
  EXPECT_NE(readable.status().message().find("chmod 600"), std::string::npos);

  const std::string rubbish = directory.file("rubbish", "not a token\n");
  ASSERT_EQ(::chmod(rubbish.c_str(), 0600), 0);
  const auto wrong = load_or_create_token(rubbish);
  EXPECT_EQ(wrong.status().code(), Code::invalid_argument);
  EXPECT_NE(wrong.status().message().find(rubbish), std::string::npos);

  EXPECT_FALSE(load_or_create_token(directory.path()).ok());
  EXPECT_FALSE(load_or_create_token(directory.path() / "none" / "token").ok());
}

TEST(Standalone, ServesUntilItIsToldToStop) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TemporaryDirectory directory;
    const std::string path = directory.path() / "token";
    Process server({binary("hvd_rendezvous_standalone"), "127.0.0.1:0", path});
    ASSERT_TRUE(server.wait_for_output("\n"));
    const std::string start = "rendezvous ready at http://127.0.0.1:";
    ASSERT_TRUE(server.out().starts_with(start)) << server.out();
    ClientOptions options;
    options.host = "127.0.0.1";
    options.port = parse_number<std::uint16_t>(trim(server.out().substr(start.size()))).value_or(0);
    Client client(options, *load_or_create_token(path));
    const auto put = client.put("s", "k", "v");
    EXPECT_TRUE(put.ok()) << put.status().to_string();
    server.signal(signal);
    EXPECT_EQ(server.wait().code, 0);
  }
}

TEST(Standalone, SaysWhyItCannotStart) {
  const TemporaryDirectory directory;
  const auto listener = listen_tcp({"127.0.0.1", 0});
  const auto address = local_address(listener->get());
  const auto ended = hvd::test::run(
      {binary("hvd_rendezvous_standalone"), address->to_string(), directory.path() / "token"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find(address->to_string()), std::string::npos) << ended.err;
}

// Nobody could learn its port.
TEST(Standalone, EndsIfItCannotSayWhereItServes) {
  const TemporaryDirectory directory;
  const auto ended = hvd::test::run({"sh", "-c", "exec \"$0\" \"$@\" >/dev/full",
                                     binary("hvd_rendezvous_standalone"), "127.0.0.1:0",
                                     directory.path() / "token"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("write to standard output: No space left on device"), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace hvd::rendezvous
