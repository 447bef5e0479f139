// The configuration of ssh, and the list of keys that its agent sends. The first byte says which.
#include "base/text.h"
#include "driver/ssh/agent_filter.h"
#include "driver/ssh/config.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using namespace hvd::driver::ssh;

void read_config(std::string_view text) {
  ConfigQuery query{.host = "node7", .user = {}, .local_user = "me", .home = "/home/me"};
  query.run_command = [](const std::string& command) { return Result(command.size() % 2 == 0); };
  query.warn = [](const std::string& warning) {
    fuzz::must(warning.starts_with("config:"), "a warning names its line");
  };
  HostConfig config;
  // Include is relative to a folder that does not exist; an absolute path would read real files.
  const auto status = apply_config_text(text, "config", "/nonexistent", query, config);
  if (!status.ok()) return fuzz::must(status.message().starts_with("config:"), "its line is named");
  fuzz::must(config.port >= 0 && config.port <= 65'535, "a port is one");
  (void)expand(config.proxy_command, {.home = "/home/me",
                                      .local_user = "me",
                                      .host = "h",
                                      .original_host = "node7",
                                      .user = "u",
                                      .port = 22});
}

void read_keys(std::string_view message) {
  const auto keys = parse_identities(message);
  if (keys.empty()) return;
  const auto again = parse_identities(identities_message(keys));
  fuzz::must(again.size() == keys.size(), "keys that are written are read again");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    fuzz::must(again[i].blob == keys[i].blob && again[i].key == keys[i].key, "the same key");
  }
}

// Without those, no real file is read.
bool has_include(std::string_view text) {
  return lower_case(text).find("include") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.byte() % 2 == 1) {
    read_keys(input.rest());
  } else if (!has_include(input.rest())) {
    read_config(input.rest());
  }
  return 0;
}
