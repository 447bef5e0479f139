// What workers tell each other before their world is formed, and the texts that they keep in the
// rendezvous. The first byte says which.
#include "base/protocol/world_document.h"
#include "runtime/control/introduction.h"
#include "runtime/gpu/capability_exchange.h"
#include "tests/fuzz/input.h"
#include "worker/launch/launched_world.h"
#include "worker/process/set_table.h"

namespace {

using namespace hvd;
using fuzz::must;
using fuzz::must_explain;

void read_introduction(std::string_view bytes) {
  const auto own = runtime::Introduction::decode(bytes, 1);
  if (!own.ok()) return must_explain(own.status());
  const auto again = runtime::Introduction::decode(own->encode(), 1);
  must(again.ok() && again->encode() == own->encode(), "an introduction is read as it was written");
}

// One of each rank in a line, of processes that another launcher has started.
void read_launched(fuzz::Input input) {
  std::vector<worker::Introduction> all;
  while (!input.at_end()) {
    auto own = worker::Introduction::from_json(input.line());
    if (!own.ok()) return must_explain(own.status());
    const auto again = worker::Introduction::from_json(own->to_json());
    must(again.ok() && again->to_json() == own->to_json(), "an introduction is read as written");
    all.push_back(std::move(*own));
  }
  if (all.empty()) return;
  const auto members = worker::arrange(all);
  if (!members.ok()) return must_explain(members.status());
  must(members->size() == all.size(), "each process is a member");
}

void read_capabilities(std::string_view bytes) {
  std::string whole(bytes);
  whole.resize(runtime::gpu::Capabilities::kBytes, '\0');
  const auto own = runtime::gpu::Capabilities::decode(whole);
  if (!own.ok()) return must_explain(own.status());
  const auto again = runtime::gpu::Capabilities::decode(own->encode());
  must(again.ok() && again->encode() == own->encode(), "capabilities are read as written");
}

void read_sets(std::string_view bytes) {
  auto table = worker::SetTable::decode(bytes);
  if (!table.ok()) return must_explain(table.status());
  const auto written = table->encode();
  const auto again = worker::SetTable::decode(written);
  must(again.ok() && again->encode() == written, "process sets are read as they were written");
  (void)table->ranks();
  WorldDocument next;
  next.job_id = "j";
  next.generation = 2;
  next.members.push_back(
      {.rank = 0, .host = "a", .slot = 0, .incarnation = 1, .address = "127.0.0.1"});
  table->enter(next);
  (void)table->ranks();
}

void read_commit(std::string_view text) {
  const auto id = commit_id_from_text(text);
  if (!id.ok()) return must_explain(id.status());
  const auto again = commit_id_from_text(to_text(*id));
  must(again.ok() && *again == *id, "the number of a commit is read as it was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 5) {
    case 0:
      read_introduction(input.rest());
      break;
    case 1:
      read_launched(input);
      break;
    case 2:
      read_capabilities(input.rest());
      break;
    case 3:
      read_sets(input.rest());
      break;
    default:
      read_commit(input.rest());
      break;
  }
  return 0;
}
