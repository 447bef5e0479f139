// Memory for keys: kept out of core dumps, and overwritten after use.
#include "base/security/secret_memory.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/frame.h"
#include "base/security/crypto.h"
#include "base/security/random.h"
#include "base/text.h"
#include "tests/support/dumpable_memory.h"

namespace hvd {
namespace {

using test::FoundBytes;
using test::Mapping;

Mapping mapping_of(const void* place) {
  const auto address = reinterpret_cast<unsigned long>(place);
  for (const Mapping& mapping : test::mappings_of(::getpid())) {
    if (mapping.begin <= address && address < mapping.end) return mapping;
  }
  return {};
}

// The bytes are only made while one looks for them, or it would be these that one finds.
FoundBytes find_here(const SecretBytes& bytes) {
  std::string wanted(reinterpret_cast<const char*>(bytes.data()), SecretBytes::kSize);
  // From another process, whose memory has them, too.
  FoundBytes found = test::find_in_memory(::getppid(), wanted);
  wipe(wanted);
  return found;
}

// Whether a core dump of this process would hold them. A child looks, which gets them by a pipe.
bool is_dumped(const SecretBytes& bytes) {
  int ends[2];
  if (::pipe(ends) != 0) return true;
  const pid_t child = ::fork();
  if (child == 0) {
    SecretBytes wanted;
    const bool came = ::read(ends[0], wanted.data(), SecretBytes::kSize) == SecretBytes::kSize;
    ::_exit(came && find_here(wanted).dumped.empty() ? 0 : 1);
  }
  EXPECT_EQ(::write(ends[1], bytes.data(), SecretBytes::kSize), 32);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(ends[0]);
  ::close(ends[1]);
  return status != 0;
}

// Sanitizers lock no memory, and keep what was freed for a while.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(SecretMemory, IsInNoCoreDump) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has copies of its own";
  SecretBytes secret;
  fill_random(secret.data(), SecretBytes::kSize);
  EXPECT_TRUE(mapping_of(secret.data()).has("dd"));
  EXPECT_FALSE(is_dumped(secret));

  // Nor in one of a child, which has the secret.
  const std::string bytes(reinterpret_cast<const char*>(secret.data()), SecretBytes::kSize);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool has_it =
        std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const char*>(secret.data()));
    ::_exit(has_it && mapping_of(secret.data()).has("dd") ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SecretMemory, IsLockedWhereTheUserMayLockMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer locks no memory";
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur < 65'536 && ::geteuid() != 0) GTEST_SKIP() << "no memory may be locked here";
  const SecretBytes secret;
  EXPECT_TRUE(mapping_of(secret.data()).has("lo"));
}

// In a child, since a limit cannot be raised again.
TEST(SecretMemory, IsThereWithoutALockToo) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_MEMLOCK, &none);
    std::vector<SecretBytes> many(5'000);
    fill_random(many.back().data(), SecretBytes::kSize);
    ::_exit(mapping_of(many.back().data()).has("dd") ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SecretMemory, IsOverwrittenWhenASecretGoes) {
  auto secret = std::make_optional<SecretBytes>();
  fill_random(secret->data(), SecretBytes::kSize);
  const unsigned char* const place = secret->data();
  secret.reset();
  // The page stays, for the next one.
  EXPECT_TRUE(std::all_of(place, place + SecretBytes::kSize, [](auto byte) { return byte == 0; }));
  const SecretBytes next;
  EXPECT_EQ(next.data(), place);
}

TEST(SecretMemory, ACopyHasMemoryOfItsOwn) {
  SecretBytes first;
  first.data()[0] = 1;
  SecretBytes second = first;
  second.data()[0] = 2;
  EXPECT_EQ(first.data()[0], 1);
  SecretBytes& same = second;
  second = same;
  EXPECT_EQ(second.data()[0], 2);
  first = second;
  EXPECT_EQ(first.data()[0], 2);
  EXPECT_NE(first.data(), second.data());
}

TEST(SecretMemory, ManyThreadsMayHaveSecrets) {
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 8; ++mark) {
    threads.emplace_back([mark] {
      for (int round = 0; round < 200; ++round) {
        std::vector<SecretBytes> some(20);
        for (auto& secret : some) std::fill_n(secret.data(), SecretBytes::kSize, mark);
        for (const auto& secret : some) ASSERT_EQ(secret.data()[SecretBytes::kSize - 1], mark);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(SecretMemory, AStringThatHeldASecretHasNothingOfIt) {
  std::string text(100, 'x');
  text.resize(10);
  const char* const place = text.data();
  wipe(text);
  EXPECT_EQ(text, "");
  EXPECT_EQ(text.data(), place);
  EXPECT_TRUE(std::all_of(place, place + 100, [](char byte) { return byte == '\0'; }));
}

// The token itself, what is made of it, and the frame in which it comes leave it nowhere else.
TEST(SecretMemory, NoOtherMemoryHasTheToken) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has copies of its own";
  const Token token = Token::random();
  const Mac mac(token);
  EXPECT_NE(mac({"a"}), mac({"b"}));
  FrameDecoder decoder;
  {
    std::string frame = encode_frame(7, token.bytes());
    for (const char byte : frame) decoder.feed({&byte, 1});
    wipe(frame);
  }
  auto frame = decoder.next();
  ASSERT_TRUE(frame.ok() && frame->has_value());
  wipe((*frame)->payload);
  std::string digits = to_hex(token.bytes());
  const auto again = Token::from_hex(digits);
  wipe(digits);
  ASSERT_TRUE(again.ok());

  SecretBytes wanted;
  std::copy_n(again->bytes().data(), SecretBytes::kSize, wanted.data());
  EXPECT_FALSE(is_dumped(wanted));
}

}  // namespace
}  // namespace hvd
