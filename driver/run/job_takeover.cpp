// JobRunner goes on with a job whose driver has died: it goes through the steps of the past, takes
// the addresses at which that driver was reached, and finds the agents again, which have held the
// workers meanwhile.
#include <algorithm>
#include <utility>
#include <variant>

#include "base/protocol/world_document.h"
#include "base/text.h"
#include "driver/run/job_runner.h"
#include "rendezvous/access.h"

namespace hvd::driver {

Status JobRunner::relive(JournalReader& journal) {
  HVD_RETURN_IF_ERROR(relive_steps(journal).with_context(context_.state->journal_file()));
  if (const std::string commit = context_.state->commit(); !commit.empty()) on_commit_mark(commit);
  const auto tokens = context_.state->join_tokens();
  HVD_RETURN_IF_ERROR(tokens.status());
  if (tokens->empty()) return {};
  return join_tokens_.restore(*tokens, Clock::now(), std::chrono::system_clock::now())
      .with_context(context_.state->tokens_file());
}

Status JobRunner::relive_steps(JournalReader& journal) {
  takeover_.emplace();
  record_.relive_head(journal.text());
  for (;;) {
    auto step = journal.next(loop_.job());
    HVD_RETURN_IF_ERROR(step.status());
    if (!*step) break;
    const auto& [event, then, decided] = **step;
    const auto actions = loop_.relive(event, then);
    hosts_.on_event(event);
    work_.on_event(event);
    record_.relive(journal.text(), event, actions, loop_.job(), then);
    takeover_->relive(event, actions);
    for (const auto& action : actions) recall(action);
  }
  return {};
}

Status JobRunner::keep_join_tokens() const {
  if (context_.state == nullptr) return {};
  return context_.state->keep_join_tokens(
      join_tokens_.to_json(Clock::now(), std::chrono::system_clock::now()));
}

void JobRunner::keep_state() {
  if (context_.state == nullptr) return;
  record_.keep();
  const std::string commit = server_.get(kCommitScope, kHighWaterKey);
  if (commit.empty() || commit == kept_commit_) return;
  kept_commit_ = commit;
  context_.state->keep_commit(commit);
}

// Those actions of the past are done again whose results this process itself keeps.
void JobRunner::recall(const Action& action) {
  if (const auto* const published = std::get_if<action::PublishWorld>(&action)) {
    keep_world(*published);
  } else if (const auto* const voided = std::get_if<action::VoidCommits>(&action)) {
    perform(*voided);
  }
}

Status JobRunner::take_over() {
  for (const auto& text : takeover_->rendezvous_addresses()) {
    const auto where = rendezvous::parse_bind_address(text);
    HVD_RETURN_IF_ERROR(where.status());
    HVD_RETURN_IF_ERROR(
        addresses_.listen_again(*where).with_context("take the place of the hvdrun that has died"));
  }
  const Duration without_driver = std::max(loop_.since_past(), Duration::zero());
  context_.observer.on_notice(cat("goes on with job ", context_.job_id(), ", whose hvdrun died ",
                                  seconds_text(without_driver), " ago or less"));
  handle(event::TakenOver{context_.epoch, without_driver});
  for (const HostIndex host : takeover_->hosts()) find_agent(host);
  return {};
}

void JobRunner::find_agent(HostIndex host) {
  // Nothing was started there, and the job waits only to hear that it is given up.
  const bool is_given_up = loop_.job().hosts()[host].state == HostState::dropping;
  if (is_given_up && !takeover_->was_ready(host)) return give_up_agent(host);
  auto& limit = find_limits_[host] = std::make_unique<OwnTimer>(context_.io);
  limit->begin(context_.spec.start_timeout, [this, host] {
    if (takeover_->looks_for(host)) give_up_agent(host);
  });
  agents_.start(host);
}

void JobRunner::give_up_agent(HostIndex host) {
  perform(action::DropAgent{host});
  if (!hosts_.at(host).session) agents_.agent_ended(host);
}

std::optional<Event> JobRunner::after_takeover(const Event& event) {
  if (!takeover_) return event;
  const auto* const ready = std::get_if<event::AgentReady>(&event);
  if (ready == nullptr || !takeover_->looks_for(ready->host)) return takeover_->told(event);
  on_agent_found(ready->host, *ready);
  return std::nullopt;
}

void JobRunner::on_agent_found(HostIndex host, const event::AgentReady& event) {
  takeover_->ends_looking_for(host);
  find_limits_.erase(host);
  AgentSession& session = *hosts_.at(host).session;
  if (!takeover_->was_ready(host)) return handle(event);
  // The agent that the job knows has ended meanwhile, and all that it had started.
  if (!session.ready().was_held) {
    takeover_->has_ended(host);
    return session.drop();
  }

  if (const auto known = takeover_->address(host)) {
    // take_over() listens there.
    if (const auto where = rendezvous::parse_bind_address(known->rendezvous); where.ok()) {
      addresses_.know(host, {known->address, *where});
    }
  }
  send_worlds(host);
  for (const auto& action : takeover_->unanswered(host)) {
    std::visit([this](const auto& asked) { perform(asked); }, action);
  }
  handle(event::Heard{host});
}

void JobRunner::on_commit_mark(const std::string& commit) {
  const auto told = commit_id_from_text(commit);
  if (!told.ok()) return;
  const std::string known = server_.get(kCommitScope, kHighWaterKey);
  const auto newest = known.empty() ? Result<CommitId>(CommitId{}) : commit_id_from_text(known);
  if (newest.ok() && *newest < *told) server_.put(kCommitScope, kHighWaterKey, commit);
}

}  // namespace hvd::driver
