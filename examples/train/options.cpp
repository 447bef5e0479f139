// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include <hvd/shards.h>

namespace train {
namespace {

template <typename T>
T parse_count(const std::string& flag, const std::string& text, T least, T most) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    throw UsageError(flag + " " + text + ": expected a whole number from " + std::to_string(least) +
                     " to " + std::to_string(most));
  }
  return value;
}

double parse_rate(const std::string& flag, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 10) {
    throw UsageError(flag + " " + text + ": expected a number above 0, at most 10");
  }
  return value;
}

// A person who stands in a repository and names no text means its README and docs.
std::vector<std::filesystem::path> default_texts() {
  std::vector<std::filesystem::path> texts;
  for (const char* const name : {"README.md", "docs"}) {
    std::error_code ignored;
    if (std::filesystem::exists(name, ignored)) texts.emplace_back(name);
  }
  if (texts.empty()) {
    throw UsageError(
        "no --text was given, and the working directory holds neither README.md nor docs/");
  }
  return texts;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  constexpr std::size_t kMany = 1'000'000'000;
  Options options;
  using Setter = std::function<void(const std::string& flag, const std::string& value)>;
  const auto count = [](std::size_t& target, std::size_t least, std::size_t most) -> Setter {
    return [&target, least, most](const std::string& flag, const std::string& value) {
      target = parse_count(flag, value, least, most);
    };
  };
  const auto path = [](std::filesystem::path& target) -> Setter {
    return [&target](const auto&, const auto& value) { target = value; };
  };

  const std::map<std::string, Setter> setters = {
      {"--text", [&](const auto&, const auto& value) { options.texts.emplace_back(value); }},
      {"--steps", count(options.steps, 1, kMany)},
      {"--batch", count(options.batch, 1, 1 << 20)},
      {"--shards", count(options.shards, 1, hvd::kMaxShards)},
      {"--context", count(options.context, 1, 1024)},
      {"--hidden", count(options.hidden, 1, 1 << 14)},
      {"--embedding", count(options.embedding, 1, 1024)},
      {"--lr", [&](const auto& flag,
                   const auto& value) { options.learning_rate = parse_rate(flag, value); }},
      {"--seed",
       [&](const auto& flag, const auto& value) {
         options.seed = parse_count<std::uint64_t>(flag, value, 0, UINT64_MAX);
       }},
      {"--log-every", count(options.log_every, 1, kMany)},
      {"--ledger", path(options.ledger)},
      {"--until", path(options.until)},
      {"--fail-on", path(options.fail_on)},
  };

  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string flag = arguments[i];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      return options;
    }
    if (flag == "--deterministic") {
      options.deterministic = true;
      continue;
    }
    const auto equals = flag.find('=');
    const bool joined = flag.starts_with("--") && equals != std::string::npos;
    std::string value = joined ? flag.substr(equals + 1) : "";
    if (joined) flag.resize(equals);

    const auto setter = setters.find(flag);
    if (setter == setters.end()) {
      throw UsageError("unknown argument " + flag + "; train --help names all");
    }
    if (!joined) {
      if (++i == arguments.size()) throw UsageError(flag + " needs a value");
      value = arguments[i];
    }
    if (value.empty()) throw UsageError(flag + " needs a value");
    setter->second(flag, value);
  }

  if (options.shards > options.batch) {
    throw UsageError("--shards " + std::to_string(options.shards) + ": a batch of " +
                     std::to_string(options.batch) + " has fewer samples");
  }
  if (options.deterministic && options.shards == 0) {
    throw UsageError("--deterministic needs --shards");
  }
  if (options.texts.empty()) options.texts = default_texts();
  return options;
}

std::string usage() {
  const Options defaults;
  const auto line = [](const std::string& flag, const std::string& meaning, auto value) {
    std::string text = "  " + flag;
    text.resize(std::max<std::size_t>(text.size() + 1, 20), ' ');
    std::string shown = std::to_string(value);
    if (shown.find('.') != std::string::npos) shown.erase(shown.find_last_not_of('0') + 1);
    return text + meaning + " (" + shown + ")\n";
  };
  return "train: a language model over the bytes of text files, trained by all workers of an hvd "
         "job\n\n"
         "  --text PATH       a file, or a directory whose *.md files are read; may be given more "
         "than\n"
         "                    once (README.md and docs/ of the working directory)\n" +
         line("--steps N", "steps of training", defaults.steps) +
         line("--batch N", "samples of a step, over all workers together", defaults.batch) +
         "  --shards N        parts of a batch that the workers share out (as many as there are "
         "workers)\n"
         "  --deterministic   add the gradients of shards in an order of their own, so that the "
         "weights\n"
         "                    have the same bits with any number of workers\n" +
         line("--context N", "bytes seen before the one to predict", defaults.context) +
         line("--hidden N", "width of the hidden layer", defaults.hidden) +
         line("--embedding N", "numbers that stand for one byte", defaults.embedding) +
         line("--lr X", "learning rate", defaults.learning_rate) +
         line("--seed N", "of the first weights and of the order of the samples", defaults.seed) +
         line("--log-every N", "steps between two lines of output", defaults.log_every) +
         "  --until FILE      end, as after the last step, when FILE is there on some worker's "
         "host\n"
         "  --fail-on FILE    when FILE is there, one worker of its host takes it away and exits "
         "with 1\n"
         "  --ledger DIR      each worker writes into a file there which steps it committed, with "
         "which\n"
         "                    samples, and a digest of its weights\n";
}

}  // namespace train
