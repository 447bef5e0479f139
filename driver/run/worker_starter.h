// Starts workers through the agents: what a worker is told of its job, of its host and of the world
// in force, and the environment that it gets.
//
// For the driver's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/shared_bytes.h"
#include "driver/job/job.h"
#include "driver/run/host_table.h"
#include "driver/run/job_context.h"
#include "driver/run/worker_environment.h"

namespace hvd::driver {

class WorkerStarter {
 public:
  // All references outlive this.
  WorkerStarter(const JobContext& context, const Job& job, HostTable& hosts);
  WorkerStarter(const WorkerStarter&) = delete;
  WorkerStarter& operator=(const WorkerStarter&) = delete;

  // This world has taken force: workers that start get it.
  void take_up(std::shared_ptr<const WorldFrames> world) { world_ = std::move(world); }
  // 0: there is no world yet.
  std::uint64_t generation() const { return world_ ? world_->generation : 0; }

  // For programs that meet by torch's own rendezvous (MASTER_ADDR, MASTER_PORT): its place is on
  // rank 0's host, of a static job at this address. False: no port is free there.
  bool choose_master(HostIndex host, const std::string& address);
  // The same of an elastic job, for each world that forms.
  void update_master(const WorldDocument& world);

  // The world that was taken up last.
  void send_world(HostIndex host) const {
    if (world_) hosts_.send_world(host, *world_);
  }
  // No effect if the host's agent has gone.
  void start(HostIndex host, const WorldMember& member);

 private:
  bool set_master(HostIndex host, const std::string& address);
  // The worker's Launch frame.
  std::string launch_frame(HostIndex host, const WorldMember& member, bool world_follows) const;
  HostEnvironment host_environment(HostIndex host, const WorldMember& member) const;
  // Once, when the first worker starts on another host.
  void report_withheld_secrets();

  const JobContext& context_;
  const Job& job_;
  HostTable& hosts_;
  // What all workers are started with; encoded once, whatever their number.
  const SharedBytes program_;
  JobEnvironment environment_;                // but for what is a host's own
  Incarnation leader_ = 0;                    // rank 0 of the world in force
  std::shared_ptr<const WorldFrames> world_;  // in force
  bool has_reported_secrets_ = false;
};

}  // namespace hvd::driver
