#include "base/protocol/credentials.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "base/security/sealing.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr std::size_t kSealedBytes = Token::kSize + RecordCipher::kTagBytes;

Token credential_of(const Mac& job, std::string_view worker, std::uint64_t incarnation) {
  return derive_key(job, {"hvd worker credential", worker, cat(incarnation)});
}

// One key for each member and generation, which seals one text and never another: a world may be
// published twice, first as a proposal, and its keys are the same both times.
RecordCipher cipher_for(const Token& credential, std::uint64_t generation) {
  const Token key =
      derive_key(Mac(credential), {"hvd key around a generation's key", cat(generation)});
  return {key, Protection::encrypted};
}

std::string sealed(const Token& key, const Token& credential, std::uint64_t generation) {
  std::array<std::byte, kSealedBytes> bytes{};
  const auto clear = std::as_bytes(std::span(key.bytes()));
  const auto tag = cipher_for(credential, generation).seal(clear, bytes.data());
  std::copy(tag.begin(), tag.end(), bytes.begin() + Token::kSize);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Token derive_key(const Mac& from, std::initializer_list<std::string_view> parts) {
  Digest bytes = from(parts);
  auto key = Token::from_bytes(as_view(bytes));
  wipe(bytes);
  return *std::move(key);
}

Token worker_credential(const Token& job_key, std::string_view worker, std::uint64_t incarnation) {
  return credential_of(Mac(job_key), worker, incarnation);
}

Token generation_key(const Token& job_key, std::uint64_t generation) {
  return derive_key(Mac(job_key), {"hvd key of a generation", cat(generation)});
}

std::vector<std::string> sealed_keys(const Token& job_key, const WorldDocument& world) {
  const Mac job(job_key);
  const Token key = generation_key(job_key, world.generation);
  std::vector<std::string> keys;
  keys.reserve(world.members.size());
  for (const auto& member : world.members) {
    const Token credential = credential_of(job, member.worker(), member.incarnation);
    keys.push_back(sealed(key, credential, world.generation));
  }
  return keys;
}

Result<Token> open_key(std::uint64_t generation, const WorldMember& self, std::string_view sealed,
                       const Token& credential) {
  const auto wrong = [&](std::string_view what) {
    return Status(Code::data_loss, cat("the world of generation ", generation, " came with ", what,
                                       " for ", self.worker()));
  };
  if (sealed.empty()) return wrong("no key");
  if (sealed.size() != kSealedBytes) return wrong("a malformed key");

  const auto record = std::as_bytes(std::span(sealed));
  RecordCipher::Tag tag{};
  std::copy(record.begin() + Token::kSize, record.end(), tag.begin());
  Digest clear{};
  std::copy_n(sealed.begin(), clear.size(), clear.begin());
  if (!cipher_for(credential, generation).open(std::as_writable_bytes(std::span(clear)), tag)) {
    return wrong("a key that was not sealed");
  }

  auto key = Token::from_bytes(as_view(clear));
  wipe(clear);
  return key;
}

}  // namespace hvd
