#include "cmd/hvdrun/settings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/labels.h"
#include "base/text.h"
#include "cmd/hvdrun/elastic_setup.h"
#include "discovery/hosts.h"
#include "rendezvous/access.h"

namespace hvd::cli {

static constexpr std::array<std::string_view, 3> kHostFlags{"hosts", "hostfile",
                                                            "host-discovery-script"};

std::vector<const Knob*> all_settings() {
  std::vector<const Knob*> all;
  for (const Knob& setting : launch_settings()) all.push_back(&setting);
  for (const Knob& knob : knobs()) all.push_back(&knob);
  return all;
}

const Knob* find_setting_by_flag(std::string_view flag) {
  for (const Knob* const setting : all_settings()) {
    if (setting->flag == flag) return setting;
  }
  return nullptr;
}

bool is_list(const Knob& setting) {
  return setting.flag == "ssh-identity-file" || setting.flag == "network-interface" ||
         setting.flag == "require-label";
}

bool is_pair(const Knob& setting) { return setting.flag == "blacklist-cooldown-range"; }

std::optional<std::string> value_without_one(const Knob& setting) {
  if (setting.flag != "status-page") return std::nullopt;
  return cat(kOwnLoopback, ":0");
}

std::string list_text(const std::vector<std::string>& items) { return join(items, "\n"); }

std::vector<std::string> list_items(std::string_view text) { return split(text, '\n'); }

const Knob* find_setting_by_config_key(std::string_view key) {
  for (const Knob* const setting : all_settings()) {
    if (has_config_key(*setting, key)) return setting;
  }
  return nullptr;
}

std::optional<std::set<int>> parse_local_ranks(std::string_view text) {
  std::set<int> ranks;
  for (const auto& item : split(text, ',')) {
    const auto rank = parse_number<int>(item);
    if (!rank || *rank < 0) return std::nullopt;
    ranks.insert(*rank);
  }
  return ranks;
}

std::optional<std::vector<std::string>> parse_interfaces(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& item : list_items(text)) {
    for (const auto& name : split(item, ',')) {
      if (trim(name).empty()) return std::nullopt;
      names.emplace_back(trim(name));
    }
  }
  return names;
}

static bool is_bind_address(const Knob& setting) {
  return setting.flag == "join-bind" || setting.flag == "metrics-bind";
}

Result<SocketAddress> parse_page_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && text.substr(0, colon) == kOwnLoopback) {
    const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
    if (port) return SocketAddress{{}, *port};
  }
  auto address = rendezvous::parse_bind_address(text);
  if (address.ok()) return address;
  return Status(address.status().code(), cat(address.status().message(), ", nor ", kOwnLoopback,
                                             ":PORT (a loopback address of the job's own)"));
}

Result<std::string> setting_value(const Knob& setting, std::string_view text,
                                  std::string_view shown_as) {
  const auto refuse = [&](std::string_view what) {
    return Status(Code::invalid_argument, cat(shown_as, "=", text, ": must be ", what));
  };

  if (setting.flag == "tag-output" && text != "rank" && text != "none") {
    return refuse("rank or none");
  }
  if (setting.flag == "local-ranks-filter" && !parse_local_ranks(text)) {
    return refuse("local ranks, such as 0 or 0,2");
  }
  if (setting.flag == "ssh-host-key" && text != "accept-new" && text != "strict" && text != "off") {
    return refuse("accept-new, strict or off");
  }
  if (setting.flag == "advertise-address" && !is_ip_address(std::string(text))) {
    return refuse("an IPv4 or IPv6 address");
  }
  if (setting.flag == "network-interface" && !parse_interfaces(text)) {
    return refuse("names of interfaces, such as eth0 or eth0,ib0");
  }

  if (setting.flag == "hosts") {
    const Status hosts = discovery::parse_host_list(text).status();  // it names -H
    HVD_RETURN_IF_ERROR(shown_as == "--hosts" ? hosts : hosts.with_context(shown_as));
  }
  if (setting.flag == "require-label") {
    HVD_RETURN_IF_ERROR(check_required_labels(list_items(text)).with_context(shown_as));
  }
  if (is_bind_address(setting)) {
    HVD_RETURN_IF_ERROR(rendezvous::parse_bind_address(text).status().with_context(shown_as));
  }
  if (setting.flag == "status-page") {
    HVD_RETURN_IF_ERROR(parse_page_address(text).status().with_context(shown_as));
  }
  if (is_pair(setting) && !parse_seconds_range(text)) {
    return refuse("two numbers of seconds, the shorter first: 10 100");
  }
  return knob_environment_value(setting, text, shown_as);
}

Result<Values> values_from_environment(const EnvironmentLookup& lookup) {
  Values values;
  for (const Knob* const setting : all_settings()) {
    auto text = knob_from_environment(*setting, lookup);
    if (!text.ok()) return text.status();
    if (!text->has_value()) continue;
    values[std::string(setting->flag)] = {**text,
                                          "environment variable " + std::string(setting->variable)};
  }
  return values;
}

Status check_one_host_source(const Values& values) {
  std::vector<std::string> said;
  for (const auto flag : kHostFlags) {
    const auto found = values.find(flag);
    if (found != values.end()) said.push_back(found->second.source);
  }
  if (said.size() < 2) return {};
  return {Code::invalid_argument,
          cat(join(said, " and "), ": give one of them, not ", said.size() == 2 ? "both" : "all")};
}

Values merge(Values stronger, const Values& weaker) {
  const auto says_hosts = [](std::string_view flag) {
    return std::find(kHostFlags.begin(), kHostFlags.end(), flag) != kHostFlags.end();
  };
  const bool hosts_said = std::any_of(stronger.begin(), stronger.end(),
                                      [&](const auto& value) { return says_hosts(value.first); });
  for (const auto& [flag, value] : weaker) {
    if (hosts_said && says_hosts(flag)) continue;
    stronger.emplace(flag, value);
  }
  return stronger;
}

namespace {

// The first one changes nothing while the text of `other` is this one.
struct Pair {
  std::string_view flag;
  std::string_view other;
  std::string_view text;
  std::string_view why;
};

constexpr std::string_view kNoTuner = "without --autotune";
constexpr std::string_view kNoCheck = "with --no-stall-check";

constexpr std::array kPairs{
    Pair{"autotune-log-file", "autotune", "0", kNoTuner},
    Pair{"autotune-warmup-samples", "autotune", "0", kNoTuner},
    Pair{"autotune-steps-per-sample", "autotune", "0", kNoTuner},
    // The variable of --stall-check is inverted.
    Pair{"stall-check-warning-time-seconds", "stall-check", "1", kNoCheck},
    Pair{"stall-check-shutdown-time-seconds", "stall-check", "1", kNoCheck},
    Pair{"prefix-output-with-timestamp", "tag-output", "none", "with --tag-output none"},
    Pair{"timeline-mark-cycles", "timeline-filename", "", "without --timeline-filename"},
    Pair{"timeline-mark-cycles", "timeline-filename", "DYNAMIC",
         "with --timeline-filename DYNAMIC: the program chooses when it starts the timeline"},
    Pair{"ssh-known-hosts", "ssh-host-key", "off", "with --ssh-host-key off"},
};

bool is_given(const Values& values, std::string_view flag) {
  const auto found = values.find(flag);
  if (found == values.end() || found->second.source.starts_with("environment variable")) {
    return false;
  }
  return find_setting_by_flag(flag)->type != KnobType::boolean || found->second.text == "1";
}

}  // namespace

std::vector<std::string> warnings_of_useless_settings(const Values& values) {
  const SettingsReader settings(values);
  std::vector<std::string> warnings;
  for (const Pair& pair : kPairs) {
    if (!is_given(values, pair.flag) || settings.text(pair.other) != pair.text) continue;
    warnings.push_back(cat(settings.name(pair.flag), " has no effect ", pair.why));
  }
  return warnings;
}

}  // namespace hvd::cli
