// Flags of Horovod and torchrun that hvdrun does not have, and what it has in their place. To
// ignore one would promise what does not happen.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::cli {

// `flag` as it was typed, without a value, such as "--nproc_per_node". `value`: what was given with
// it; empty if nothing was. nullopt if neither Horovod nor torchrun has such a flag.
std::optional<std::string> answer_to_foreign_flag(std::string_view flag, std::string_view value);

}  // namespace hvd::cli
