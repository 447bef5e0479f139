// The file of --config-file (YAML, and so JSON).
#include "cmd/hvdrun/config_file.h"

#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hvd;
  const fuzz::Input input(data, size);
  const auto values = cli::parse_config(input.rest(), "job.yaml");
  if (!values.ok()) {
    fuzz::must_explain(values.status());
    fuzz::must(values.status().message().find("job.yaml") != std::string::npos ||
                   values.status().message().find("--") != std::string::npos,
               "an error names the file, or the flags that exclude each other");
    return 0;
  }
  for (const auto& [flag, value] : *values) {
    const Knob* const setting = cli::find_setting_by_flag(flag);
    fuzz::must(setting != nullptr, "a key of the file is a setting");
    // Values are in the form that they have in the environment of the workers.
    const auto again = knob_from_environment(
        *setting, [&value = value](std::string_view /*name*/) { return value.text; });
    fuzz::must(again.ok(), "a value is one by the rules of its variable");
    fuzz::must(!again->has_value() || **again == value.text, "a value stays as it is");
  }
  return 0;
}
