#include "driver/ssh/config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/security/trusted_file.h"
#include "base/text.h"

namespace hvd::driver::ssh {
namespace {

constexpr int kMaxIncludeDepth = 16;
constexpr std::size_t kMaxFileSize = std::size_t{4} << 20;

// A comma-separated list in which "!x" excludes.
bool matches_list(std::string_view text, std::string_view list) {
  bool matched = false;
  for (const std::string& entry : split(list, ',')) {
    std::string_view pattern = trim(entry);
    const bool negated = pattern.starts_with('!');
    if (negated) pattern.remove_prefix(1);
    if (!matches_pattern(text, pattern)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

struct ConfigLine {
  std::vector<std::string> arguments;  // the keyword first, in lower case
  std::string rest;                    // of the line after the keyword, as written
};

// "Key value", "Key=value", "Key \"a value\"".
Result<ConfigLine> parse_line(std::string_view line) {
  ConfigLine result;
  std::size_t i = 0;
  const auto blank = [&](std::size_t at) { return line[at] == ' ' || line[at] == '\t'; };
  while (i < line.size()) {
    while (i < line.size() &&
           (blank(i) || (result.arguments.size() == 1 && result.rest.empty() && line[i] == '='))) {
      ++i;
    }
    if (i == line.size() || (line[i] == '#')) break;
    if (result.arguments.size() == 1) result.rest = std::string(trim(line.substr(i)));

    std::string argument;
    if (line[i] == '"') {
      const std::size_t end = line.find('"', i + 1);
      if (end == std::string_view::npos) {
        return Status(Code::invalid_argument, "a quotation mark is not closed");
      }
      argument = std::string(line.substr(i + 1, end - i - 1));
      i = end + 1;
    } else {
      while (i < line.size() && !blank(i) && (!result.arguments.empty() || line[i] != '=')) {
        argument += line[i++];
      }
    }
    result.arguments.push_back(result.arguments.empty() ? lower_case(argument) : argument);
  }
  return result;
}

// The file may name commands to run (ProxyCommand), so no other user may be able to write it. ssh
// demands the same.
Result<std::string> read_text(const std::string& path) {
  const auto opened =
      open_trusted_file(path, "configuration", FileTrust::configuration, FileKind::any);
  HVD_RETURN_IF_ERROR(opened.status());

  const UniqueFd& fd = *opened;
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < kMaxFileSize) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::from_errno(cat("read ", path), errno);
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return Status(Code::invalid_argument,
                cat("read ", path, ": the file is too large for a configuration"));
}

std::vector<std::string> files_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> result;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) result.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  return result;
}

class Reader {
 public:
  Reader(const ConfigQuery& query, HostConfig& into) : query_(query), into_(into) {}

  Status read(std::string_view text, const std::string& source, const std::string& directory,
              bool active, int depth) {
    int number = 0;
    active_ = active;
    for (const std::string& line : split(text, '\n')) {
      const std::string place = cat(source, ":", ++number);
      auto parsed = parse_line(trim(line));
      if (!parsed.ok()) return parsed.status().with_context(place);
      if (parsed->arguments.empty()) continue;
      if (parsed->arguments.size() == 1) {
        return {Code::invalid_argument, cat(place, ": ", parsed->arguments[0], " has no value")};
      }
      place_ = place;
      HVD_RETURN_IF_ERROR(apply(*parsed, directory, depth).with_context(place));
    }
    return {};
  }

 private:
  Status apply(const ConfigLine& line, const std::string& directory, int depth) {
    const std::string& key = line.arguments[0];
    if (key == "host") {
      active_ = host_matches(line.arguments);
      return {};
    }
    if (key == "match") return match(line.arguments);
    if (!active_) return {};

    if (key == "include") return include(line.arguments, directory, depth);
    if (key == "port") {
      const auto port = parse_number<int>(line.arguments[1]);
      if (!port || *port < 1 || *port > 65535) {
        return {Code::invalid_argument, cat("invalid port ", line.arguments[1])};
      }
      if (into_.port == 0) into_.port = *port;
      return {};
    }
    if (key == "identityfile") {
      add(into_.identity_files, line.arguments[1]);
    } else if (key == "certificatefile") {
      add(into_.certificate_files, line.arguments[1]);
    } else if (key == "identitiesonly") {
      if (!identities_only_seen_) into_.identities_only = lower_case(line.arguments[1]) == "yes";
      identities_only_seen_ = true;
    } else if (key == "userknownhostsfile" || key == "globalknownhostsfile") {
      auto& files = key[0] == 'u' ? into_.user_known_hosts : into_.global_known_hosts;
      if (files.empty()) files.assign(line.arguments.begin() + 1, line.arguments.end());
    } else if (key == "proxycommand") {
      if (into_.proxy_command.empty() && into_.proxy_jump.empty()) into_.proxy_command = line.rest;
    } else if (key == "proxyjump") {
      if (into_.proxy_command.empty() && into_.proxy_jump.empty()) {
        into_.proxy_jump = line.arguments[1];
      }
    } else {
      apply_text_value(key, line.arguments[1]);
    }
    return {};
  }

  // A keyword with one value, of which the first one found wins.
  void apply_text_value(const std::string& key, const std::string& value) {
    struct Keyword {
      std::string_view name;
      std::string HostConfig::*field;
    };
    static constexpr std::array<Keyword, 18> kKeywords{{
        {"hostname", &HostConfig::host_name},
        {"user", &HostConfig::user},
        {"identityagent", &HostConfig::identity_agent},
        {"stricthostkeychecking", &HostConfig::strict_host_key_checking},
        {"hostkeyalias", &HostConfig::host_key_alias},
        {"hashknownhosts", &HostConfig::hash_known_hosts},
        {"addressfamily", &HostConfig::address_family},
        {"bindaddress", &HostConfig::bind_address},
        {"ciphers", &HostConfig::ciphers},
        {"macs", &HostConfig::macs},
        {"kexalgorithms", &HostConfig::kex_algorithms},
        {"hostkeyalgorithms", &HostConfig::host_key_algorithms},
        {"pubkeyacceptedalgorithms", &HostConfig::pubkey_algorithms},
        {"pubkeyacceptedkeytypes", &HostConfig::pubkey_algorithms},
        {"compression", &HostConfig::compression},
        {"gssapiauthentication", &HostConfig::gssapi_authentication},
        {"gssapidelegatecredentials", &HostConfig::gssapi_delegate_credentials},
        {"gssapiserveridentity", &HostConfig::gssapi_server_identity},
    }};

    const auto* const found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                           [&](const Keyword& k) { return k.name == key; });
    if (found == kKeywords.end()) return warn_if_unsupported(key, lower_case(value));
    std::string& field = into_.*(found->field);
    if (field.empty()) field = value;
  }

  // Warns of keywords without effect that would change which host is reached, how its key is
  // checked, or which key is offered. Others, such as ControlMaster, mean nothing to a launcher.
  void warn_if_unsupported(const std::string& key, const std::string& value) const {
    static constexpr std::array<std::string_view, 8> kNames{"BindInterface",
                                                            "CanonicalizeHostname",
                                                            "KnownHostsCommand",
                                                            "PKCS11Provider",
                                                            "ProxyUseFdpass",
                                                            "RevokedHostKeys",
                                                            "Tag",
                                                            "VerifyHostKeyDNS"};
    if (value == "no" || value == "none") return;
    const auto* const found =
        std::find_if(kNames.begin(), kNames.end(),
                     [&](std::string_view name) { return lower_case(name) == key; });
    if (found != kNames.end()) warn(cat(*found, " is not supported and has no effect"));
  }

  void warn(std::string_view text) const {
    if (query_.warn) query_.warn(cat(place_, ": ", text));
  }

  static void add(std::vector<std::string>& list, const std::string& value) {
    if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
  }

  bool host_matches(const std::vector<std::string>& arguments) const {
    bool matched = false;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      std::string_view pattern = arguments[i];
      const bool negated = pattern.starts_with('!');
      if (negated) pattern.remove_prefix(1);
      if (!matches_pattern(query_.host, pattern)) continue;
      if (negated) return false;
      matched = true;
    }
    return matched;
  }

  // The criteria after one that does not hold are read, but not asked: a command runs only where
  // the others hold.
  Status match(const std::vector<std::string>& arguments) {
    active_ = true;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      std::string criterion = lower_case(arguments[i]);
      const bool negated = criterion.starts_with('!');
      if (negated) criterion.erase(0, 1);
      const bool is_bare = criterion == "all" || criterion == "canonical" || criterion == "final";
      if (!is_bare && ++i == arguments.size()) {
        return {Code::invalid_argument, cat("Match ", criterion, " has no value")};
      }
      if (!active_) continue;
      const auto holds = criterion_holds(criterion, negated, arguments[i]);
      if (!holds.ok()) return holds.status();
      active_ = holds->has_value() && **holds != negated;
    }
    return {};
  }

  // Nothing: the criterion is not supported.
  Result<std::optional<bool>> criterion_holds(const std::string& criterion, bool negated,
                                              const std::string& value) {
    const auto matches = [&](const std::string& subject) {
      return std::optional(matches_list(subject, value));
    };
    const std::string& host = into_.host_name.empty() ? query_.host : into_.host_name;
    std::string user = query_.user.empty() ? into_.user : query_.user;
    if (user.empty()) user = query_.local_user;

    if (criterion == "all") return std::optional(true);
    // There is no second pass.
    if (criterion == "canonical" || (criterion == "final" && negated)) return std::optional(false);
    if (criterion == "host") return matches(host);
    if (criterion == "originalhost") return matches(query_.host);
    if (criterion == "localuser") return matches(query_.local_user);
    if (criterion == "user") return matches(user);
    if (criterion == "exec" && query_.run_command) {
      auto succeeded =
          query_.run_command(expand(value, {.home = query_.home,
                                            .local_user = query_.local_user,
                                            .host = host,
                                            .original_host = query_.host,
                                            .user = user,
                                            .port = into_.port == 0 ? 22 : into_.port}));
      if (!succeeded.ok())
        return succeeded.status().with_context(cat("Match exec \"", value, "\""));
      return std::optional(*succeeded);
    }
    warn(cat("Match ", criterion, " is not supported: the block is skipped"));
    return std::optional<bool>();
  }

  Status include(const std::vector<std::string>& arguments, const std::string& directory,
                 int depth) {
    if (depth >= kMaxIncludeDepth) return {Code::invalid_argument, "too many nested Include"};
    for (std::size_t i = 1; i < arguments.size(); ++i) {
      std::string path = expand_path(
          arguments[i],
          {.home = query_.home, .local_user = {}, .host = {}, .original_host = {}, .user = {}});
      if (!path.starts_with('/')) path = cat(directory, "/", path);
      for (const std::string& file : files_of(path)) {
        auto text = read_text(file);
        if (text.status().code() == Code::failed_precondition) return text.status();
        if (!text.ok()) continue;  // ssh ignores it as well
        HVD_RETURN_IF_ERROR(read(*text, file, directory, true, depth + 1));
        active_ = true;  // as before: Include is only applied in active blocks
      }
    }
    return {};
  }

  const ConfigQuery& query_;
  HostConfig& into_;
  std::string place_;  // "FILE:LINE"
  bool active_ = true;
  bool identities_only_seen_ = false;
};

std::string token_value(char token, const Tokens& tokens) {
  switch (token) {
    case '%':
      return "%";
    case 'd':
      return tokens.home;
    case 'u':
      return tokens.local_user;
    case 'h':
      return tokens.host;
    case 'n':
      return tokens.original_host;
    case 'r':
      return tokens.user;
    case 'p':
      return std::to_string(tokens.port);
    case 'i':
      return std::to_string(::geteuid());
    default:
      return {'%', token};
  }
}

}  // namespace

bool matches_pattern(std::string_view text, std::string_view pattern) {
  std::size_t t = 0;
  std::size_t p = 0;
  // The last '*' seen, and the end of the text that it matches so far.
  std::size_t star = std::string_view::npos;
  std::size_t star_end = 0;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };

  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || same(pattern[p], text[t]))) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Status apply_config_text(std::string_view text, const std::string& source,
                         const std::string& include_directory, const ConfigQuery& query,
                         HostConfig& into) {
  return Reader(query, into).read(text, source, include_directory, true, 0);
}

Result<HostConfig> read_host_config(const ConfigQuery& query, const std::string& file) {
  HostConfig config;
  const std::string own = query.home + "/.ssh";
  Reader reader(query, config);
  if (file == "none") {
    // Nothing is read, as with ssh -F none.
  } else if (!file.empty()) {
    auto text = read_text(file);
    if (!text.ok()) return text.status().with_context("the configuration of SSH");
    HVD_RETURN_IF_ERROR(reader.read(*text, file, own, true, 0));
  } else {
    for (const auto& [path, directory] : {std::pair<std::string, std::string>{own + "/config", own},
                                          {"/etc/ssh/ssh_config", "/etc/ssh"}}) {
      auto text = read_text(path);
      if (text.status().code() == Code::failed_precondition) {
        return text.status().with_context("the configuration of SSH");
      }
      if (!text.ok()) continue;
      HVD_RETURN_IF_ERROR(reader.read(*text, path, directory, true, 0));
    }
  }

  if (config.host_name.empty()) {
    config.host_name = query.host;
  } else {
    config.host_name = expand(config.host_name, {.home = query.home,
                                                 .local_user = query.local_user,
                                                 .host = query.host,
                                                 .original_host = query.host,
                                                 .user = query.user});
  }
  return config;
}

std::string expand(std::string_view text, const Tokens& tokens) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 1 < text.size()) {
      result += token_value(text[++i], tokens);
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string expand_path(std::string_view path, const Tokens& tokens) {
  std::string result;
  if (path == "~" || path.starts_with("~/")) {
    result = tokens.home;
    path.remove_prefix(1);
  }

  std::string with_variables;
  while (!path.empty()) {
    const std::size_t end = path.starts_with("${") ? path.find('}') : std::string_view::npos;
    if (end == std::string_view::npos) {
      with_variables += path.front();
      path.remove_prefix(1);
      continue;
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): hvdrun does not change its environment
    const char* const value = std::getenv(std::string(path.substr(2, end - 2)).c_str());
    if (value != nullptr) with_variables += value;
    path.remove_prefix(end + 1);
  }
  return result + expand(with_variables, tokens);
}

}  // namespace hvd::driver::ssh
