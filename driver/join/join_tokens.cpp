#include "driver/join/join_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/protocol/credentials.h"
#include "base/text.h"

namespace hvd::driver::join {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr int kSchema = 1;

Token secret_from(const Token& job_key, std::string_view id) {
  return derive_key(Mac(job_key), {"hvd join token", id});
}

Status no_such_token(std::string_view id) {
  return {Code::not_found, cat("there is no join token ", quoted(id),
                               "; hvdrun token list shows "
                               "those of a job")};
}

double seconds_of(Duration time) { return std::chrono::duration<double>(time).count(); }

std::string count_text(const std::string& host, std::uint32_t used, std::uint32_t uses) {
  const std::string of = uses == 0 ? "" : cat(" of ", uses);
  const std::uint32_t last_number = uses == 0 ? used : uses;
  return cat(used, of, last_number == 1 ? " use" : " uses",
             host.empty() ? "" : cat(", host ", host));
}

// A number of `json`, at most `most`; nothing: it has none.
std::optional<std::uint64_t> number_in(const Json& json, const char* field, std::uint64_t most) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto number = found->get<std::uint64_t>();
  return number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string JoinTokens::to_json(TimePoint now, WallTime wall_time) const {
  Json tokens = Json::array();
  for (const auto& [number, token] : made_) {
    Json one{{"id", number},
             {"host", token.terms.host},
             {"seconds", token.terms.time.count()},
             {"uses", token.terms.uses},
             {"used", token.used},
             {"revoked", token.is_revoked}};
    if (token.until != kNever) {
      const auto until =
          std::chrono::ceil<milliseconds>(wall_time.time_since_epoch() + (token.until - now));
      one["until"] = std::max<std::int64_t>(until.count(), 0);
    }
    tokens.push_back(std::move(one));
  }
  return Json{{"schema", kSchema}, {"last", last_}, {"tokens", std::move(tokens)}}.dump(
      -1, ' ', true, Json::error_handler_t::replace);
}

Status JoinTokens::restore(std::string_view json, TimePoint now, WallTime wall_time) {
  constexpr std::uint64_t kMostNumber = std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint64_t kMostTime = 9'000'000'000'000;  // ms since 1970, which the clock can hold
  Status wrong(Code::data_loss, "it is not the file of a job's join tokens");
  const Json all = Json::parse(json, nullptr, false);
  if (!all.is_object() || number_in(all, "schema", kSchema) != kSchema) return wrong;
  const auto last = number_in(all, "last", kMostNumber);
  const auto tokens = all.find("tokens");
  if (!last || tokens == all.end() || !tokens->is_array() || tokens->size() > kMost) return wrong;

  std::map<std::uint32_t, Made> made;
  for (const auto& one : *tokens) {
    if (!one.is_object()) return wrong;
    const auto id = number_in(one, "id", *last);
    const auto seconds = number_in(one, "seconds", JoinTokenTerms::kMost);
    const auto uses = number_in(one, "uses", JoinTokenTerms::kMost);
    const auto used = number_in(one, "used", kMostNumber);
    const auto until = number_in(one, "until", kMostTime);
    const auto host = one.find("host");
    const auto revoked = one.find("revoked");
    const bool is_sound = id && *id > 0 && seconds && uses && used && host != one.end() &&
                          host->is_string() && revoked != one.end() && revoked->is_boolean() &&
                          until.has_value() == (*seconds > 0);
    if (!is_sound) return wrong;
    Made token{.terms = {.host = host->get<std::string>(),
                         .time = std::chrono::seconds(*seconds),
                         .uses = static_cast<std::uint32_t>(*uses)},
               .used = static_cast<std::uint32_t>(*used),
               .is_revoked = revoked->get<bool>()};
    if (until) {
      const auto left = milliseconds(*until) - wall_time.time_since_epoch();
      token.until = now + std::chrono::duration_cast<Duration>(left);
    }
    if (!made.emplace(static_cast<std::uint32_t>(*id), std::move(token)).second) return wrong;
  }
  made_ = std::move(made);
  last_ = static_cast<std::uint32_t>(*last);
  return {};
}

Result<PskKey> JoinTokens::make(const JoinTokenTerms& terms, TimePoint now) {
  if (made_.size() >= kMost) forget_one(now);
  if (made_.size() >= kMost) {
    return Status(Code::resource_exhausted, cat("the job has ", with_thousands(kMost),
                                                " join tokens that hold, which is the limit"));
  }
  Made token{.terms = terms};
  if (terms.time.count() > 0) token.until = now + terms.time;
  made_.emplace(++last_, std::move(token));
  if (const Status kept = keep_(); !kept.ok()) {
    made_.erase(last_);
    return kept;
  }
  const std::string id = cat(last_);
  return PskKey{secret_from(job_key_, id), id};
}

Status JoinTokens::revoke(std::string_view id) {
  Made* const token = find(id);
  if (token == nullptr) return no_such_token(id);
  token->is_revoked = true;
  return keep_().with_context("the next hvdrun of the job does not know that it is revoked");
}

Result<PskKey> JoinTokens::rotate(std::string_view id, TimePoint now) {
  const Made* const old = find(id);
  if (old == nullptr) return no_such_token(id);
  const JoinTokenTerms terms = old->terms;
  auto made = make(terms, now);
  const bool is_forgotten = find(id) == nullptr;
  if (made.ok() && !is_forgotten) HVD_RETURN_IF_ERROR(revoke(id));
  return made;
}

std::string JoinTokens::to_text(TimePoint now) const {
  std::string text;
  for (const auto& [number, token] : made_) {
    const std::string left =
        token.until == kNever
            ? ""
            : cat(", ", duration_text(seconds_of(std::max(token.until - now, Duration()))),
                  " left");
    text += cat(text.empty() ? "" : "\n", number, "  ", state_of(token, now), "  ",
                count_text(token.terms.host, token.used, token.terms.uses), left);
  }
  return text.empty() ? "there are no join tokens" : text;
}

std::optional<Token> JoinTokens::secret_of(std::string_view id) const {
  return find(id) == nullptr ? std::nullopt : std::optional(secret_from(job_key_, id));
}

bool JoinTokens::holds(std::string_view id, TimePoint now) const {
  const Made* const token = find(id);
  return token != nullptr && state_of(*token, now) == "valid";
}

Status JoinTokens::check(std::string_view id, std::string_view host, std::string_view pass,
                         TimePoint now) const {
  const Made* const token = find(id);
  if (token == nullptr) return no_such_token(id);
  if (comes_back(id, host, pass)) return {};
  const auto refused = [&](std::string_view why) {
    return Status(Code::permission_denied, cat("join token ", id, " ", why));
  };
  const std::string state = state_of(*token, now);
  if (state == "used up") {
    return refused(cat("is used up: it has let ", token->used,
                       token->used == 1 ? " agent" : " agents", " join"));
  }
  if (state != "valid") return refused(state == "expired" ? "has expired" : "was revoked");
  if (!token->terms.host.empty() && token->terms.host != host) {
    return refused(cat("is for host ", token->terms.host, ", and this is host ", host));
  }
  return {};
}

Status JoinTokens::use(std::string_view id, std::string_view host, std::string_view pass) {
  Made* const token = find(id);
  if (token == nullptr) return no_such_token(id);
  if (!comes_back(id, host, pass)) {
    ++token->used;
    if (const Status kept = keep_(); !kept.ok()) {
      --token->used;
      return kept.with_context(cat("join token ", id));
    }
  }
  joined_.emplace(id, host);
  return {};
}

std::string JoinTokens::pass_for(std::string_view id, std::string_view host) const {
  return std::string(as_view(Mac(job_key_)({"hvd join pass", id, host})));
}

bool JoinTokens::comes_back(std::string_view id, std::string_view host,
                            std::string_view pass) const {
  return !pass.empty() && !joined_.contains({std::string(id), std::string(host)}) &&
         equal_in_constant_time(pass, pass_for(id, host));
}

void JoinTokens::forget_one(TimePoint now) {
  const auto oldest = std::find_if(made_.begin(), made_.end(), [now](const auto& one) {
    return state_of(one.second, now) != "valid";
  });
  if (oldest != made_.end()) made_.erase(oldest);
}

JoinTokens::Made* JoinTokens::find(std::string_view id) {
  return const_cast<Made*>(std::as_const(*this).find(id));  // NOLINT: the object is not const
}

const JoinTokens::Made* JoinTokens::find(std::string_view id) const {
  const auto number = parse_number<std::uint32_t>(id);
  const auto found = number && cat(*number) == id ? made_.find(*number) : made_.end();
  return found == made_.end() ? nullptr : &found->second;
}

std::string JoinTokens::state_of(const Made& token, TimePoint now) {
  if (token.is_revoked) return "revoked";
  if (token.until <= now) return "expired";
  return token.terms.uses != 0 && token.used >= token.terms.uses ? "used up" : "valid";
}

}  // namespace hvd::driver::join
