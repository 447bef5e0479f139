#include "driver/status/job_status.h"

#include <nlohmann/json.hpp>

#include "base/utc_time.h"

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
  if (!worker.leaves.empty()) status["leaves"] = worker.leaves;
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

}  // namespace

Json job_status(const JobIdentity& identity, const Job& job, const std::vector<PastWorld>& worlds,
                std::chrono::system_clock::time_point wall_time, TimePoint now) {
  Json members = Json::array();
  Json others = Json::array();
  for (const auto& member : job.world().members) {
    const std::size_t index = job.index_of(member.incarnation);
    if (index < job.workers().size()) members.push_back(status_of(job.workers()[index]));
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
                    {"why", world.why}});
  }

  const Requests& requests = job.requests();
  const auto runs = duration_cast<milliseconds>(wall_time - identity.started);
  return {{"schema", kStatusSchema},
          {"job", identity.id},
          {"pid", identity.pid},
          {"command", identity.command},
          {"directory", identity.directory},
          {"elastic", identity.elastic},
          {"started", utc_text(identity.started)},
          {"seconds", static_cast<double>(runs.count()) / 1000},
          {"state", name_of(job.state())},
          {"waits_for", job.waiting_for(now)},
          {"world", {{"generation", job.world().generation}, {"members", std::move(members)}}},
          {"other_workers", std::move(others)},
          {"drained", requests.drained},
          {"scaled_to", requests.size != 0 ? Json(requests.size) : Json()},
          {"hosts", std::move(hosts)},
          {"worlds", std::move(past)}};
}

}  // namespace hvd::driver
