// JobRunner goes on with a job whose driver has died: it goes through the steps of the past, takes
// the addresses at which that driver was reached, as far as they can be had here, and finds the
// agents again, which have held the workers meanwhile.
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
  if (context_.comes_from_elsewhere) hosts_.forget_local();
  return {};
}

void JobRunner::make_way() {
  makes_way_ = true;
  outcome_.exit_code = kLauncherError;
  outcome_.reason = cat("another hvdrun has taken the job over from ", context_.state->path(),
                        " while this one stood still");
  context_.io.stop();
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

void JobRunner::take_over() {
  for (const auto& text : takeover_->rendezvous_addresses()) {
    const auto where = rendezvous::parse_bind_address(text);
    const Status listens = where.ok() ? addresses_.listen_again(*where) : where.status();
    if (listens.ok()) continue;
    lost_addresses_.insert(text);
    context_.observer.on_progress(
        cat("the workers are to meet elsewhere than the hvdrun before has told them: ",
            listens.message()));
  }
  const Duration without_driver = std::max(loop_.since_past(), Duration::zero());
  context_.observer.on_notice(cat("goes on with job ", context_.job_id(), ", whose hvdrun died ",
                                  seconds_text(without_driver), " ago or less"));
  handle(event::TakenOver{context_.epoch, without_driver});
  for (const HostIndex host : takeover_->hosts()) find_agent(host);
}

void JobRunner::find_agent(HostIndex host) {
  // Nothing was started there, and the job waits only to hear that it is given up.
  const bool is_given_up = loop_.job().hosts()[host].state == HostState::dropping;
  if (is_given_up && !takeover_->was_ready(host)) return give_up_agent(host);
  if (context_.comes_from_elsewhere && hosts_.at(host).found.local) {
    // The agent of that machine is not found on this one, of whatever name.
    const event::HostFailed lost{
        host,
        {Step::start_agent,
         "it was the machine of that hvdrun, and this one is another or was started since", 1}};
    if (const auto told = after_takeover(lost)) handle(*told);
    return;
  }
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
  if (!takeover_->was_ready(host)) {
    end_search(host);
    return handle(event);
  }
  if (!hosts_.at(host).session->ready().was_held) {
    return drop_found_agent(host, "had ended, with its workers, before this hvdrun came (--hold)");
  }
  const auto known = takeover_->address(host);
  // take_over() listens there, or it is found where else. Until then the host is looked for.
  if (has_to_learn_rendezvous(host)) return addresses_.find_again(host, known->address);
  if (known) {
    if (const auto where = rendezvous::parse_bind_address(known->rendezvous); where.ok()) {
      addresses_.know(host, {known->address, *where});
    }
  }
  take_up_agent(host);
}

bool JobRunner::has_to_learn_rendezvous(HostIndex host) const {
  const auto known = takeover_->address(host);
  return known && takeover_->was_ready(host) && lost_addresses_.contains(known->rendezvous);
}

void JobRunner::on_address(const Event& event) {
  const auto* const found = std::get_if<event::AddressFound>(&event);
  const auto* const failed = std::get_if<event::HostFailed>(&event);
  const bool is_one = found != nullptr || failed != nullptr;
  const HostIndex host = found != nullptr ? found->host : is_one ? failed->host : HostIndex();
  if (!is_one || !takeover_ || !takeover_->looks_for(host)) return handle(event);
  if (failed != nullptr) {
    return drop_found_agent(host, cat("does not reach this hvdrun: ", failed->error.message));
  }
  // For the next driver, which has to know what the workers know.
  handle(event);
  keep_state();
  const SocketAddress& where = hosts_.at(host).rendezvous;
  hosts_.send(host, agent_link::Rendezvous{where.host, where.port});
  take_up_agent(host);
}

void JobRunner::end_search(HostIndex host) {
  takeover_->ends_looking_for(host);
  find_limits_.erase(host);
}

void JobRunner::drop_found_agent(HostIndex host, std::string why) {
  end_search(host);
  takeover_->has_ended(host, std::move(why));
  hosts_.at(host).session->drop();
}

void JobRunner::take_up_agent(HostIndex host) {
  end_search(host);
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
