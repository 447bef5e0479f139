// Files by which a person, or a script, tells a training that runs what to do. Any thread.
#pragma once

#include <filesystem>

namespace train {

// True once the file is there; never for an empty path.
bool is_there(const std::filesystem::path& file);

// If the file is there, takes it away and ends this process with code 1 as it stands, to show what
// a job does when one of its workers fails; or by exit(0), if "exit 0" stands in the file. Of those
// who look at the same file one ends.
void fail_if_there(const std::filesystem::path& file);

}  // namespace train
