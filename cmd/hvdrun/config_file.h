// A job's settings from a YAML file: sections of keys, Horovod's (params, autotune, timeline,
// stall_check, library_options, logging, controller) and ours (launch, output). An unknown key is
// an error, since a misspelt key that is ignored would be found only after the training.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

// `source` stands in errors: "job.yaml:3: params.cycle_time_ms: ...".
Result<Values> parse_config(std::string_view text, std::string_view source);
Result<Values> read_config_file(const std::string& path);

// The contents of a file that a person named, at most `limit` bytes; "-" is standard input. The
// error names the purpose of the file ("hostfile hosts.txt: ...").
Result<std::string> read_named_file(std::string_view what, const std::string& path,
                                    std::size_t limit = std::size_t{16} << 20);

}  // namespace hvd::cli
