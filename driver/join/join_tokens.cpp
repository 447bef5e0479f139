#include "driver/join/join_tokens.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/protocol/credentials.h"
#include "base/text.h"

namespace hvd::driver::join {
namespace {

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

}  // namespace

Result<PskKey> JoinTokens::make(const JoinTokenTerms& terms, TimePoint now) {
  if (made_.size() >= kMost) forget_one(now);
  if (made_.size() >= kMost) {
    return Status(Code::resource_exhausted, cat("the job has ", with_thousands(kMost),
                                                " join tokens that hold, which is the limit"));
  }
  Made token{.terms = terms};
  if (terms.time.count() > 0) token.until = now + terms.time;
  made_.emplace(++last_, std::move(token));
  const std::string id = cat(last_);
  return PskKey{secret_from(job_key_, id), id};
}

Status JoinTokens::revoke(std::string_view id) {
  Made* const token = find(id);
  if (token == nullptr) return no_such_token(id);
  token->is_revoked = true;
  return {};
}

Result<PskKey> JoinTokens::rotate(std::string_view id, TimePoint now) {
  const Made* const old = find(id);
  if (old == nullptr) return no_such_token(id);
  const JoinTokenTerms terms = old->terms;
  auto made = make(terms, now);
  if (made.ok()) static_cast<void>(revoke(id));
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

Status JoinTokens::check(std::string_view id, std::string_view host, TimePoint now) const {
  const Made* const token = find(id);
  if (token == nullptr) return no_such_token(id);
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

void JoinTokens::use(std::string_view id) {
  if (Made* const token = find(id); token != nullptr) ++token->used;
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
