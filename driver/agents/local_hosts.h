// Which hosts of a job are this machine, so that no SSH is needed to get there. Names that only a
// resolver knows are asked of it all at once, on threads of their own, since a name server may take
// its time; what it does not know is left to SSH, whose configuration may.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "driver/job_spec.h"
#include "driver/signals.h"

namespace hvd::driver {

// Names of the hosts that are reached without a user or a port and are this machine. Runs `io`
// meanwhile; ends early, with what is known by then, when a signal is waiting.
std::set<std::string> find_local_hosts(boost::asio::io_context& io, const Signals& signals,
                                       const std::vector<HostSlots>& hosts);

}  // namespace hvd::driver
