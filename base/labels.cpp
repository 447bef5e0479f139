#include "base/labels.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/printable.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr std::size_t kLongest = 63;
constexpr const char* kCharacters =
    ", each of at most 63 letters, digits and . - _ (and / in the key)";

bool consists_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](const char character) {
    return std::isalnum(static_cast<unsigned char>(character)) != 0 ||
           others.find(character) != std::string_view::npos;
  });
}

bool is_key(std::string_view text) {
  return !text.empty() && text.size() <= kLongest && consists_of(text, ".-_/");
}

bool is_value(std::string_view text) { return text.size() <= kLongest && consists_of(text, ".-_"); }

std::string_view key_of(std::string_view label) { return label.substr(0, label.find('=')); }

Status check(const std::vector<std::string>& labels, bool may_lack_value) {
  if (labels.size() > kMaxLabels) {
    return {Code::invalid_argument,
            cat(labels.size(), " labels; there may be at most ", kMaxLabels)};
  }

  std::set<std::string_view> keys;
  for (const auto& label : labels) {
    const auto equals = label.find('=');
    const bool has_value = equals != std::string::npos;
    const bool is_well_formed =
        is_key(key_of(label)) &&
        (has_value ? is_value(std::string_view(label).substr(equals + 1)) : may_lack_value);
    if (!is_well_formed) {
      return {Code::invalid_argument,
              cat("label ", quoted(label), ": must be ",
                  may_lack_value ? "KEY or KEY=VALUE" : "KEY=VALUE", kCharacters)};
    }
    if (!keys.insert(key_of(label)).second) {
      return {Code::invalid_argument, cat("label ", key_of(label), " is given twice")};
    }
  }
  return {};
}

}  // namespace

Status check_labels(const std::vector<std::string>& labels) { return check(labels, false); }

Status check_required_labels(const std::vector<std::string>& required) {
  return check(required, true);
}

std::string labels_text(const std::vector<std::string>& labels) {
  return labels.empty() ? std::string() : cat(" (", join(labels, ", "), ")");
}

Status require_labels(const std::vector<std::string>& required,
                      const std::vector<std::string>& labels) {
  std::vector<std::string> missing;
  for (const auto& one : required) {
    const bool any_value = one.find('=') == std::string::npos;
    const bool is_there = std::any_of(labels.begin(), labels.end(), [&](const std::string& label) {
      return any_value ? key_of(label) == one : label == one;
    });
    if (!is_there) missing.push_back(one);
  }
  if (missing.empty()) return {};
  return {Code::permission_denied,
          cat("the job requires the label", missing.size() == 1 ? " " : "s ", join(missing, ", "),
              ", which the host does not have")};
}

}  // namespace hvd
