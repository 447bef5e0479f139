// Settings that were given and change nothing, because another one turns off what they are for.
// Horovod accepts most of these pairs, so they are no errors.
#pragma once

#include <string>
#include <vector>

#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

// A line for each; variables of the environment, which hold for many jobs, are left out.
std::vector<std::string> warnings_of_useless_settings(const Values& values);

}  // namespace hvd::cli
