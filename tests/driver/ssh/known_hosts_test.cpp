#include "driver/ssh/known_hosts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "base/text.h"
#include "tests/support/process.h"

namespace hvd::driver::ssh {
namespace {

class KnownHosts : public testing::Test {
 protected:
  KeyPtr make_key(const std::string& name, const std::string& type = "ed25519") {
    const auto file = (directory_.path() / name).string();
    EXPECT_EQ(test::run({"ssh-keygen", "-q", "-t", type, "-N", "", "-f", file}).code, 0);
    ssh_key key = nullptr;
    EXPECT_EQ(ssh_pki_import_pubkey_file((file + ".pub").c_str(), &key), SSH_OK);
    return KeyPtr(key);
  }
  std::string text_of(const std::string& name) {
    const auto words = split(test::read_file(directory_.path() / (name + ".pub")), ' ');
    return words.at(0) + " " + words.at(1);
  }
  std::string file() const { return directory_.path() / "deep" / "known_hosts"; }

  test::TemporaryDirectory directory_;
};

TEST_F(KnownHosts, AppendedKeysAreFoundByUsAndBySsh) {
  for (const std::string type : {"ed25519", "ecdsa", "rsa"}) {
    const auto key = make_key(type, type);
    const auto name = known_hosts_name("Node-" + type, type == "rsa" ? 2222 : 22);
    ASSERT_TRUE(append_known_host(file(), name, key.get()).ok());
    const auto found = look_up({file()}, name, key.get());
    ASSERT_EQ(found.size(), 1U) << type;
    EXPECT_TRUE(found[0].same);
    EXPECT_EQ(found[0].type, split(text_of(type), ' ')[0]);
    const auto seen = test::run({"ssh-keygen", "-lf", file(), "-F", name});
    EXPECT_EQ(seen.code, 0) << name << seen.err;
    EXPECT_NE(seen.out.find(found[0].fingerprint), std::string::npos) << seen.out;
  }
}

TEST_F(KnownHosts, HashedNamesPatternsAndPortsAreUnderstood) {
  const auto key = make_key("key");
  const auto path = directory_.file(
      "file", cat("# comment\n\n", "*.cluster,!bad.cluster ", text_of("key"), "\n[a]:2222 ",
                  text_of("key"), " somebody\nhidden ", text_of("key"), "\n"));
  ASSERT_EQ(test::run({"sh", "-c", cat("ssh-keygen -Hf ", path.string())}).code, 0);
  ASSERT_EQ(test::run({"sh", "-c", cat("echo rubbish >>", path.string())}).code, 0);
  const auto count = [&](const std::string& name) {
    return look_up({path.string()}, name, key.get()).size();
  };
  EXPECT_EQ(count("hidden"), 1U);
  EXPECT_EQ(count("[a]:2222"), 1U);
  EXPECT_EQ(count("a"), 0U);
  EXPECT_EQ(count("x.cluster"), 1U);
  EXPECT_EQ(look_up({path.string()}, "[a]:2222", nullptr).at(0).line, 4);
}

TEST_F(KnownHosts, ARevokedKeyIsMarked) {
  const auto key = make_key("key");
  const auto path = directory_.file(
      "file", cat("@revoked * ", text_of("key"), "\n@cert-authority * ", text_of("key"), "\n"));
  const auto found = look_up({path.string()}, "any", key.get());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].revoked);
  EXPECT_TRUE(found[0].same);
  const auto authority = find_authority({path.string()}, "any");
  ASSERT_TRUE(authority.has_value());
  EXPECT_EQ(authority->place(), cat(path.string(), ":2"));
}

TEST_F(KnownHosts, AHashedNameIsFoundByUsAndBySshAndByNobodyElse) {
  const auto key = make_key("key");
  const std::string name = "[hidden]:2222";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(append_known_host(file(), name, key.get(), true).ok());
  const auto text = test::read_file(file());
  EXPECT_TRUE(text.starts_with("|1|")) << text;
  EXPECT_EQ(text.find("hidden"), std::string::npos) << text;
  EXPECT_EQ(look_up({file()}, name, key.get()).size(), 1U);
  EXPECT_EQ(test::run({"ssh-keygen", "-f", file(), "-F", name}).code, 0);
}

TEST_F(KnownHosts, ManyAppendAtOnceAndEachLineIsWhole) {
  constexpr int kThreads = 8;
  const auto key = make_key("key");
  std::filesystem::create_directory(directory_.path() / "deep");
  directory_.file("deep/known_hosts", "unfinished");
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 10; ++j) {
        EXPECT_TRUE(append_known_host(file(), cat("host", i, "x", j), key.get()).ok());
        EXPECT_TRUE(append_known_host(file(), "same", key.get()).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto lines = split(test::read_file(file()), '\n');
  EXPECT_EQ(lines.size(), 1U + kThreads * 10 + 1 + 1);  // and the empty one at the end
  EXPECT_EQ(lines[0], "unfinished");
  EXPECT_EQ(look_up({file()}, "same", key.get()).size(), 1U);
}

TEST_F(KnownHosts, AFileOfSomebodyElseIsNeitherReadNorWritten) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const auto key = make_key("key");
  const auto mine = directory_.file("mine", cat("host ", text_of("key"), "\n")).string();
  EXPECT_TRUE(check_known_hosts({mine, "/dev/null", "/proc/none"}).ok());

  const auto theirs = directory_.file("theirs", cat("host ", text_of("key"), "\n")).string();
  ASSERT_EQ(::chown(theirs.c_str(), 65534, 65534), 0);
  const auto link = (directory_.path() / "link").string();
  ASSERT_EQ(::symlink(mine.c_str(), link.c_str()), 0);
  ASSERT_EQ(::lchown(link.c_str(), 65534, 65534), 0);
  const auto open = directory_.file("open", "").string();
  ASSERT_EQ(::chmod(open.c_str(), 0666), 0);
  for (const auto& file : {theirs, link, open}) {
    const auto before = test::read_file(file);
    EXPECT_EQ(check_known_hosts({mine, file}).code(), Code::failed_precondition) << file;
    EXPECT_TRUE(look_up({file}, "host", key.get()).empty()) << file;
    EXPECT_FALSE(append_known_host(file, "new", key.get()).ok()) << file;
    EXPECT_EQ(test::read_file(file), before) << file;
  }
}

// A pipe without a writer would keep its reader waiting, and a device without an end fill memory.
TEST_F(KnownHosts, APipeAndADeviceAreRefusedAndNotRead) {
  const auto key = make_key("key");
  const auto pipe = (directory_.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/full")}) {
    const Status refused = check_known_hosts({"/dev/null", file});
    ASSERT_EQ(refused.message(), cat("known hosts ", file, " is not a regular file"));
    EXPECT_TRUE(look_up({file}, "host", key.get()).empty());
    EXPECT_FALSE(append_known_host(file, "host", key.get()).ok());
  }
  EXPECT_TRUE(append_known_host("/dev/null", "host", key.get()).ok());
}

TEST_F(KnownHosts, AFileThatCannotBeWrittenIsNamed) {
  const auto key = make_key("key");
  const auto status = append_known_host("/proc/none", "host", key.get());
  EXPECT_TRUE(status.message().starts_with("open /proc/none: ")) << status.message();
}

}  // namespace
}  // namespace hvd::driver::ssh
