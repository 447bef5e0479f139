// SPDX-License-Identifier: Apache-2.0
#include "corpus.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "options.h"
#include "random.h"

namespace train {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> markdown_files(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".md" && at->is_regular_file(error)) found.push_back(at->path());
  }
  if (error) throw UsageError("--text " + directory.string() + ": " + error.message());
  if (found.empty()) throw UsageError("--text " + directory.string() + ": holds no *.md file");
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Corpus::Corpus(const std::vector<fs::path>& paths, std::size_t context) : context_(context) {
  for (const auto& path : paths) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::is_directory(status)) {
      for (const auto& file : markdown_files(path)) add(file);
    } else if (fs::exists(status)) {
      add(path);
    } else {
      throw UsageError("--text " + path.string() + ": " +
                       (error ? error.message() : std::strerror(ENOENT)));
    }
  }
  if (bytes_.empty()) {
    throw UsageError("--text " + paths.front().string() + ": there is nothing in it to learn from");
  }
  if (bytes_.size() <= context_) {
    throw UsageError("--text " + paths.front().string() + ": " + std::to_string(bytes_.size()) +
                     " bytes in all, but --context " + std::to_string(context_) +
                     " needs at least " + std::to_string(context_ + 1));
  }
}

void Corpus::add(const fs::path& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  bytes_.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  if (!in.is_open() || in.bad()) {
    throw UsageError("--text " + path.string() + ": " + std::strerror(errno != 0 ? errno : EIO));
  }
  ++files_;
}

Corpus::Sample Corpus::sample(std::size_t place) const {
  const auto* const text = reinterpret_cast<const unsigned char*>(bytes_.data());
  return {text + place, text[place + context_]};
}

Shard shard_of(std::size_t batch, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank);
  const auto n = static_cast<std::size_t>(size);
  return {batch * r / n, batch * (r + 1) / n};
}

}  // namespace train
