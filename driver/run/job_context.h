// What the parts of a running job share. All of it outlives them.
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/io_context.hpp>

#include "base/security/crypto.h"
#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/job/job_options.h"
#include "driver/journal/state_directory.h"

namespace hvd::driver {

struct JobContext {
  boost::asio::io_context& io;
  const JobSpec& spec;
  Observer& observer;
  const JobIdentity identity;
  // Never leaves this process, but for the directory of --state: others get what derives from it
  // (base/protocol/credentials.h).
  const Token job_key;
  const std::uint64_t epoch = 0;  // of this driver among those of the job; 0: it has no other
  const StateDirectory* state = nullptr;    // where the next driver finds the job; null: nowhere
  const bool comes_from_elsewhere = false;  // the driver before was on another machine

  const std::string& job_id() const { return identity.id; }
};

}  // namespace hvd::driver
