// Keys that derive from a job's key, which hvdrun alone holds:
//
// - the credential of a worker, with which it signs its requests to the rendezvous service. It is
//   bound to the worker's host, slot and incarnation, and only hvdrun and this worker have it.
// - the key of a generation, with which the members of one world know each other. Each member gets
//   it from its agent, sealed with that member's credential: who is no member of a world cannot
//   take part in it, whatever worlds it was in before.
//
// Pure, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol/world_document.h"
#include "base/security/crypto.h"
#include "base/status.h"

namespace hvd {

// A key that derives from the one of `from`, for the purpose that the parts name.
Token derive_key(const Mac& from, std::initializer_list<std::string_view> parts);

// `worker`: "host#slot".
Token worker_credential(const Token& job_key, std::string_view worker, std::uint64_t incarnation);

Token generation_key(const Token& job_key, std::uint64_t generation);

// The key of this world, sealed for each member: by rank, as bytes.
std::vector<std::string> sealed_keys(const Token& job_key, const WorldDocument& world);

// The key of this generation, as its member `self` was sent it. data_loss: there is none, or it was
// sealed for another worker or for another generation.
Result<Token> open_key(std::uint64_t generation, const WorldMember& self, std::string_view sealed,
                       const Token& credential);

}  // namespace hvd
