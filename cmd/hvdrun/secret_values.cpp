#include "cmd/hvdrun/secret_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <fnmatch.h>

#include "base/text.h"
#include "cmd/hvdrun/arguments.h"

namespace hvd::cli {
namespace {

// Usual names of secrets, in upper or lower case. The documentation has the same list.
constexpr auto kSecretPatterns = std::to_array<const char*>({
    "*TOKEN",
    "*_TOKENS",
    "PAT",
    "*_PAT",
    "*_JWT",
    "*_COOKIE",
    // Keys: AWS_SECRET_ACCESS_KEY, OPENAI_API_KEY, AZURE_STORAGE_KEY, SSH_PRIVATE_KEY. An id
    // without its key would stop Amazon's library from looking elsewhere.
    "*_KEY",
    "APIKEY",
    "*_APIKEY",
    "*PRIVATE_KEY*",
    "*ACCESS_KEY_ID",
    "*_KEY_BASE64",
    // Passwords: PGPASSWORD, MYSQL_PWD, SSHPASS, GPG_PASSPHRASE.
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "PASS",
    "*_PASS",
    "SSHPASS",
    "*_PWD",
    "*SECRET*",
    "*CREDENTIAL*",
    "*_AUTH",
    "*_AUTH_CONFIG",
    "*_AUTH_HEADER",
    "KUBECONFIG_DATA",
    // Addresses with credentials: DATABASE_URL, AZURE_STORAGE_CONNECTION_STRING, SENTRY_DSN,
    // Slack's webhooks.
    "DATABASE_URL",
    "*_DATABASE_URL",
    "*CONNECTION_STRING*",
    "*_DSN",
    "*WEBHOOK*",
});
// Under these names a number is a secret, too; in a token or key variable, a number is a setting of
// the program, as in MAX_TOKENS=512.
constexpr auto kSecretNumbers =
    std::to_array<const char*>({"*PASS*", "*PWD*", "*SECRET*", "*_PIN"});
constexpr auto kSwitches = std::to_array<const char*>({"true", "false", "yes", "no"});
constexpr auto kWebSchemes = std::to_array<const char*>({"http", "https"});
constexpr auto kNoSecretPatterns = std::to_array<const char*>(
    {// Locations of secrets, not secrets themselves.
     "*_FILE", "*_PATH", "*_DIR", "*_URI", "GOOGLE_APPLICATION_CREDENTIALS",
     // Special tokens of tokenizers, and columns of tables.
     "*PAD_TOKEN", "*BOS_TOKEN", "*EOS_TOKEN", "*UNK_TOKEN", "*MASK_TOKEN", "*CLS_TOKEN",
     "*SEP_TOKEN", "*SORT_KEY", "*PRIMARY_KEY", "*PARTITION_KEY"});

// The tokens of a service begin with this text, and have at least so many characters behind it.
// Other text rarely has these forms. The documentation has the same list.
struct TokenForm {
  std::string_view begin;
  std::size_t least;
};
constexpr auto kTokenForms = std::to_array<TokenForm>({
    // GitHub, GitLab.
    {"ghp_", 30},
    {"gho_", 30},
    {"ghu_", 30},
    {"ghs_", 30},
    {"ghr_", 30},
    {"github_pat_", 30},
    {"glpat-", 18},
    // Amazon, Google, DigitalOcean.
    {"AKIA", 16},
    {"ASIA", 16},
    {"AIza", 30},
    {"ya29.", 20},
    {"GOCSPX-", 20},
    {"dop_v1_", 40},
    // Hugging Face, OpenAI, Anthropic, NVIDIA, Replicate.
    {"hf_", 30},
    {"sk-", 20},
    {"nvapi-", 30},
    {"r8_", 30},
    // Slack, Stripe, SendGrid, Grafana.
    {"xoxb-", 10},
    {"xoxp-", 10},
    {"xoxa-", 10},
    {"xoxr-", 10},
    {"xoxs-", 10},
    {"xapp-", 10},
    {"sk_live_", 16},
    {"rk_live_", 16},
    {"SG.", 40},
    {"glsa_", 30},
    // Package indexes and registries.
    {"npm_", 30},
    {"pypi-", 30},
    {"dckr_pat_", 20},
    // HashiCorp's Vault.
    {"hvs.", 20},
    {"hvb.", 20},
});
// Text in which a secret follows, whatever it is. In lower case.
constexpr auto kSecretFollows = std::to_array<std::string_view>({"password=",
                                                                 "passwd=",
                                                                 "pwd=",
                                                                 "accountkey=",
                                                                 "sharedaccesskey=",
                                                                 "sharedaccesssignature=",
                                                                 "access_token=",
                                                                 "auth_token=",
                                                                 "private_token=",
                                                                 "api_key=",
                                                                 "apikey=",
                                                                 "client_secret=",
                                                                 "x-amz-signature=",
                                                                 "x-goog-signature=",
                                                                 "?sig=",
                                                                 "&sig=",
                                                                 "?token=",
                                                                 "&token=",
                                                                 "bearer ",
                                                                 "authorization: ",
                                                                 "private-token: "});

// As in postgres://me:word@db/x, or https://token@index/x.
bool is_url_with_password(std::string_view value) {
  const auto scheme = value.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string_view rest = value.substr(scheme + 3);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  const auto at = authority.rfind('@');
  if (at == std::string_view::npos || at == 0) return false;
  if (matches(std::string(value.substr(0, scheme)), kWebSchemes, FNM_CASEFOLD)) return true;
  const auto colon = authority.substr(0, at).find(':');
  return colon != std::string_view::npos && colon + 1 < at;
}

// 512, 1e-3, true.
bool is_number_or_switch(std::string_view value) {
  if (matches(std::string(value), kSwitches, FNM_CASEFOLD)) return true;
  constexpr std::size_t kLongestNumber = 9;
  return value.size() <= kLongestNumber && parse_number<double>(value).has_value();
}

bool is_of_token(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
         c == '/' || c == '+';
}

std::size_t length_of_token(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_of_token) -
                                  text.begin());
}

// A token of this form, alone or in other text.
bool has_token(std::string_view value, const TokenForm& form) {
  for (std::size_t at = value.find(form.begin); at != std::string_view::npos;
       at = value.find(form.begin, at + 1)) {
    const bool begins_word = at == 0 || !is_of_token(value[at - 1]) || value[at - 1] == '/';
    if (begins_word && length_of_token(value.substr(at + form.begin.size())) >= form.least) {
      return true;
    }
  }
  return false;
}

// Three parts of base64 between dots, of which the first two are JSON objects: RFC 7519.
bool has_json_web_token(std::string_view value) {
  constexpr std::string_view kObject = "eyJ";
  for (std::size_t at = value.find(kObject); at != std::string_view::npos;
       at = value.find(kObject, at + 1)) {
    const std::string_view token = value.substr(at, length_of_token(value.substr(at)));
    const auto payload = token.find('.');
    if (payload != std::string_view::npos && token.substr(payload + 1).starts_with(kObject) &&
        token.find('.', payload + 1) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

// A private key as in a file: RFC 7468, and PGP's.
bool has_private_key(std::string_view value) {
  const auto begin = value.find("-----BEGIN ");
  return begin != std::string_view::npos &&
         value.find("PRIVATE KEY", begin) != std::string_view::npos;
}

// Words in which a secret follows, and something does.
bool names_secret(std::string_view value) {
  const std::string lower = lower_case(value);
  return std::any_of(kSecretFollows.begin(), kSecretFollows.end(), [&](std::string_view word) {
    const auto at = lower.find(word);
    return at != std::string::npos && at + word.size() < lower.size();
  });
}

bool is_secret_value(std::string_view value) {
  return is_url_with_password(value) || has_private_key(value) || has_json_web_token(value) ||
         names_secret(value) ||
         std::any_of(kTokenForms.begin(), kTokenForms.end(),
                     [&](const TokenForm& form) { return has_token(value, form); });
}

}  // namespace

bool looks_like_secret(const std::string& name, std::string_view value) {
  if (value.empty()) return false;
  if (is_secret_value(value)) return true;
  if (is_number_or_switch(value) && !matches(name, kSecretNumbers, FNM_CASEFOLD)) return false;
  return matches(name, kSecretPatterns, FNM_CASEFOLD) &&
         !matches(name, kNoSecretPatterns, FNM_CASEFOLD);
}

}  // namespace hvd::cli
