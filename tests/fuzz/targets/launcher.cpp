// The answers of a launcher that speaks PMI, which the processes that it has started read from a
// descriptor. They are all there before the first question.
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <sys/socket.h>

#include "base/descriptors.h"
#include "base/text.h"
#include "tests/fuzz/input.h"
#include "worker/launch/launcher_store.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd;
  const fuzz::Input input(data, size);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return 0;
  const UniqueFd process(ends[0]);
  const UniqueFd launcher(ends[1]);
  const auto answers = input.rest();
  static_cast<void>(::send(launcher.get(), answers.data(), answers.size(), MSG_DONTWAIT));
  ::shutdown(launcher.get(), SHUT_WR);

  const auto lookup = [&process](std::string_view name) -> std::optional<std::string> {
    if (name == "PMI_FD") return cat(process.get());
    if (name == "PMI_RANK") return "1";
    if (name == "PMI_SIZE") return "3";
    return std::nullopt;
  };
  if (!worker::has_pmi(lookup)) return 0;
  const auto store = worker::open_pmi_store(lookup);
  if (!store.ok()) {
    fuzz::must_explain(store.status());
    return 0;
  }
  const auto values = (*store)->gather("own", Clock::now() + std::chrono::seconds(10));
  if (!values.ok()) {
    fuzz::must_explain(values.status());
  } else {
    fuzz::must(values->size() == 3, "there is a value of each process");
  }
  return 0;
}
