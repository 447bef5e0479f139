// The document of a world, which workers read from their agents.
#include "base/protocol/world_document.h"

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hvd::WorldDocument;
  const hvd::fuzz::Input input(data, size);
  const auto world = WorldDocument::decode(input.rest());
  if (!world.ok()) {
    hvd::fuzz::must_explain(world.status());
    return 0;
  }

  for (std::size_t rank = 0; rank < world->members.size(); ++rank) {
    const auto& member = world->members[rank];
    hvd::fuzz::must(member.rank == static_cast<int>(rank), "ranks are dense and in order");
    // Each search goes through all members, of which a few bytes can make many.
    constexpr std::size_t kLookedFor = 100;
    hvd::fuzz::must(rank >= kLookedFor || world->find(member.incarnation) == &member,
                    "identities are unique");
    hvd::fuzz::must(member.local_rank >= 0 && member.local_rank < member.local_size,
                    "a rank on its host is one of those there");
  }
  const auto again = WorldDocument::decode(world->encode());
  hvd::fuzz::must(again.ok() && *again == *world, "a document is read as it was written");
  return 0;
}
