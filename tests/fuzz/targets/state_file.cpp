// The file in which the state of a suspended job is kept. With an odd first byte its checksum is
// made right, so that what stands behind that is reached, too.
#include <fstream>
#include <sstream>

#include "base/checksum.h"
#include "base/wire.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/scratch.h"
#include "worker/elastic/saved_state.h"

namespace {

using namespace hvd;
using namespace hvd::worker;

constexpr std::size_t kHead =
    8 + 4 + 8 + 8 + 8 + 2 * 8;  // of a state of two parts, to its checksum

struct Program {
  std::string weights;
  std::int64_t step = 0;
  Store store{elastic::CommitMode::copy};

  Program() {
    fuzz::must(store.add("weights", elastic::detail::handler_of(weights)).ok(), "it is added");
    fuzz::must(store.add("step", elastic::detail::handler_of(step)).ok(), "it is added");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

std::string content(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void put(std::string& bytes, std::size_t at, std::uint64_t number) {
  if (bytes.size() >= at + 8) bytes.replace(at, 8, WireWriter().u64(number).take());
}

// The numbers that a program cannot guess.
void make_right(std::string& bytes) {
  if (bytes.size() < kHead + 8) return;
  put(bytes, 12, Program().store.shape());
  Checksum checksum;
  const auto all = std::as_bytes(std::span(bytes));
  checksum.add(all.first(kHead));
  checksum.add(all.subspan(kHead + 8));
  put(bytes, kHead, checksum.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Scratch scratch;
  fuzz::Input input(data, size);
  const bool is_right = input.byte() % 2 == 1;
  std::string bytes(input.rest());
  if (is_right) make_right(bytes);
  const std::string file = scratch.path() + "/state";
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;

  Program program;
  const auto step = read_saved_state(file, program.store);
  if (!step.ok()) {
    fuzz::must_explain(step.status());
    fuzz::must(step.status().message().find(file) != std::string::npos, "an error names the file");
    return 0;
  }
  try {
    program.store.take_over({1, 1});
  } catch (const std::exception&) {
    return 0;  // the program's own objects cannot take it
  }
  SaveMeter meter;
  fuzz::must(save_state(file, program.store, *step, meter, false).ok(), "a state is written");
  fuzz::must(content(file) == bytes, "a state that was read is written as it was");
  return 0;
}
