// SPDX-License-Identifier: Apache-2.0
// Files by which a person, or a script, tells a training that runs what to do. Any thread.
#pragma once

#include <filesystem>

namespace train {

// True once the file is there; never for an empty path.
bool is_there(const std::filesystem::path& file);

// If the file exists, removes it and ends this process with code 1 at once, to show how a job
// handles the failure of a worker; or by exit(0), if the file contains "exit 0". Only one of the
// processes that look for the same file ends.
void fail_if_there(const std::filesystem::path& file);

}  // namespace train
