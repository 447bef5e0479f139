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

// One key for each member and generation, which seals one text and never another: the document may
// be published twice, first as a proposal, and says the same both times.
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
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
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

void seal_keys(const Token& job_key, WorldDocument& world) {
  const Mac job(job_key);
  const Token key = generation_key(job_key, world.generation);
  world.sealed_keys.clear();
  world.sealed_keys.reserve(world.members.size());
  for (const auto& member : world.members) {
    const Token credential = credential_of(job, member.worker(), member.incarnation);
    world.sealed_keys.push_back(sealed(key, credential, world.generation));
  }
}

Result<Token> open_key(const WorldDocument& world, const WorldMember& self,
                       const Token& credential) {
  const auto wrong = [&](std::string_view what) {
    return Status(Code::data_loss, cat("the world of generation ", world.generation, " has ", what,
                                       " for ", self.worker()));
  };
  const auto rank = static_cast<std::size_t>(self.rank);
  if (rank >= world.sealed_keys.size()) return wrong("no key");

  const auto bytes = from_hex(world.sealed_keys[rank]);
  if (!bytes.ok() || bytes->size() != kSealedBytes) return wrong("a malformed key");

  const auto record = std::as_bytes(std::span(*bytes));
  RecordCipher::Tag tag{};
  std::copy(record.begin() + Token::kSize, record.end(), tag.begin());
  Digest clear{};
  std::copy_n(bytes->begin(), clear.size(), clear.begin());
  if (!cipher_for(credential, world.generation)
           .open(std::as_writable_bytes(std::span(clear)), tag)) {
    return wrong("a key that was not sealed");
  }

  auto key = Token::from_bytes(as_view(clear));
  wipe(clear);
  return key;
}

}  // namespace hvd
