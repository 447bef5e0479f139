// What the parts of a running job share. All of it outlives them.
#pragma once

#include <string>

#include <boost/asio/io_context.hpp>

#include "base/security/crypto.h"
#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/job/job_options.h"

namespace hvd::driver {

struct JobContext {
  boost::asio::io_context& io;
  const JobSpec& spec;
  Observer& observer;
  const JobIdentity identity;
  // Never leaves this process: others get what derives from it (base/protocol/credentials.h).
  const Token job_key = Token::random();

  const std::string& job_id() const { return identity.id; }
};

}  // namespace hvd::driver
