#include "driver/status/job_status.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace hvd::driver {
namespace {

using Json = nlohmann::json;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

Json status_of(const JobWorker& worker) {
  const bool has_rank = worker.membership == MemberStatus::member;
  Json status{{"worker", worker.member.worker()}, {"host", worker.member.host},
              {"slot", worker.member.slot},       {"incarnation", worker.member.incarnation},
              {"state", name_of(worker.state)},   {"membership", name_of(worker.membership)}};
  status["rank"] = has_rank ? Json(worker.member.rank) : Json();
  status["local_rank"] = has_rank ? Json(worker.member.local_rank) : Json();
  status["pid"] = worker.pid != 0 ? Json(worker.pid) : Json();
  if (worker.is_to_leave()) status["leaves"] = worker.why_it_leaves;
  return status;
}

// Null: the worker has not reported anything.
Json work_of(const WorkWatch& work, std::uint64_t incarnation, TimePoint now) {
  const WorkReading* const newest = work.book().newest(incarnation);
  if (newest == nullptr) return {};

  Json status{{"steps", newest->steps},
              {"operations", newest->operations()},
              {"bytes", newest->bytes()},
              {"late", work.slow_ranks().lateness(incarnation)},
              {"slow", work.slow_ranks().is_slow(incarnation)}};
  const auto rate = work.book().rate(incarnation, now);
  status["steps_per_second"] = rate ? Json(rate->steps) : Json();
  status["bytes_per_second"] = rate ? Json(rate->bytes) : Json();
  status["waited"] = rate ? Json(rate->waited) : Json();
  return status;
}

Json totals_of(const WorkWatch& work) {
  Json all = Json::object();
  const auto totals = work.book().totals();
  for (std::size_t kind = 0; kind < totals.size(); ++kind) {
    if (totals[kind].operations == 0) continue;
    all[std::string(kind_name(static_cast<Collective>(kind)))] = {
        {"operations", totals[kind].operations}, {"bytes", totals[kind].bytes}};
  }
  return all;
}

// The work of the whole job: the ranks take the same steps, and their bytes add up.
Json work_of(const Job& job, const WorkWatch& work, TimePoint now) {
  double steps = 0;
  double bytes = 0;
  int reporting = 0;
  for (const auto& member : job.world().members) {
    const auto rate = work.book().rate(member.incarnation, now);
    if (!rate) continue;
    steps += rate->steps;
    bytes += rate->bytes;
    ++reporting;
  }
  Json status{{"totals", totals_of(work)}};
  status["steps_per_second"] = reporting > 0 ? Json(steps / reporting) : Json();
  status["bytes_per_second"] = reporting > 0 ? Json(bytes) : Json();
  return status;
}

Json status_of(const Job& job, HostIndex index) {
  const JobHost& host = job.hosts()[index];
  Json status{{"host", host.name},   {"state", name_of(host.state)}, {"workers", host.live},
              {"local", host.local}, {"joined", host.joins},         {"leaves", host.leaves}};
  const int slots = job.slots_at(index);
  status["slots"] = slots > 0 ? Json(slots) : Json();  // null: nobody knows it yet
  status["address"] = host.address.empty() ? Json() : Json(host.address);
  if (host.error) status["error"] = host.error->message;
  return status;
}

// The times of the member that needed the longest to come into the world.
Json entry_of(const Job& job, const std::optional<event::WorldEntered>& entered) {
  if (!entered) return {};
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  Json entry{{"seconds", seconds(entered->time())}, {"leave", seconds(entered->leave)},
             {"wait", seconds(entered->wait)},      {"connect", seconds(entered->connect)},
             {"vote", seconds(entered->vote)},      {"sync", seconds(entered->sync)},
             {"step", seconds(entered->step)},      {"received", entered->received},
             {"redone", entered->redone},           {"text", entry_text(*entered)}};
  const std::size_t index = job.index_of(entered->slowest);
  entry["worker"] =
      index < job.workers().size() ? Json(job.workers()[index].member.worker()) : Json();
  return entry;
}

}  // namespace

Json job_status(const JobIdentity& identity, const Job& job, const WorkWatch& work,
                const std::vector<PastWorld>& worlds,
                std::chrono::system_clock::time_point wall_time, TimePoint now) {
  Json members = Json::array();
  Json others = Json::array();
  for (const auto& member : job.world().members) {
    const std::size_t index = job.index_of(member.incarnation);
    if (index >= job.workers().size()) continue;
    Json& status = members.emplace_back(status_of(job.workers()[index]));
    status["work"] = work_of(work, member.incarnation, now);
  }
  for (const auto& worker : job.workers()) {
    if (worker.membership != MemberStatus::member && !has_ended(worker.state)) {
      others.push_back(status_of(worker));
    }
  }
  Json hosts = Json::array();
  for (HostIndex host = 0; host < job.hosts().size(); ++host) {
    if (job.hosts()[host].state != HostState::gone) hosts.push_back(status_of(job, host));
  }
  Json past = Json::array();
  for (const auto& world : worlds) {
    past.push_back({{"generation", world.generation},
                    {"at", utc_text(world.at)},
                    {"size", world.size},
                    {"why", world.why},
                    {"entry", entry_of(job, world.entered)}});
  }

  const Requests& requests = job.requests();
  const auto runs = duration_cast<milliseconds>(wall_time - identity.started);
  return {{"schema", kStatusSchema},
          {"job", identity.id},
          {"pid", identity.pid},
          {"command", identity.command},
          {"directory", identity.directory},
          {"elastic", identity.elastic},
          {"data_security", identity.data_security},
          {"started", utc_text(identity.started)},
          {"seconds", static_cast<double>(runs.count()) / 1000},
          {"state", name_of(job.state())},
          {"waits_for", job.waiting_for(now)},
          {"world", {{"generation", job.world().generation}, {"members", std::move(members)}}},
          {"work", work_of(job, work, now)},
          {"other_workers", std::move(others)},
          {"drained", requests.drained},
          {"scaled_to", requests.size != 0 ? Json(requests.size) : Json()},
          {"hosts", std::move(hosts)},
          {"worlds", std::move(past)}};
}

}  // namespace hvd::driver
