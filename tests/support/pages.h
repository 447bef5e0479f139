// The pages of docs/, whose commands tests run.
#pragma once

#include <filesystem>
#include <string>

namespace hvd::test {

// The commands of a page: its blocks of ```sh, except those after a comment that begins with
// "<!-- not run:" and says why. Throws std::runtime_error if there is no such page.
std::string commands_of(const std::filesystem::path& page);

}  // namespace hvd::test
