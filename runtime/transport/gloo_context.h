// A Messenger as Gloo's transport: what Gloo's algorithms, and ours, send and receive through. The
// only place that knows Gloo's transport interfaces, those of Debian's Gloo and of newer ones.
//
// As Gloo's algorithms rely on it, and ours: of the messages of one buffer with one rank and one
// slot the one that was begun first ends first (messenger.h), in either direction.
//
// Gloo's bound buffers, which only its old algorithms that are objects use, do not exist here.
//
// Safe from any thread as far as Gloo's own is: one operation at a time on one buffer. Failures are
// thrown as TransportError, which is a gloo::IoException with a Status; a call that cannot be right
// as gloo::InvalidOperationException.
#pragma once

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <memory>

#include "base/status.h"
#include "runtime/transport/messenger.h"

namespace hvd::runtime {

struct TransportError final : gloo::IoException {
  explicit TransportError(Status why) : gloo::IoException(why.message()), status(std::move(why)) {}
  Status status;
};

std::shared_ptr<gloo::transport::Context> make_gloo_context(int rank, int size,
                                                            std::shared_ptr<Messenger> messenger,
                                                            std::chrono::milliseconds timeout);

}  // namespace hvd::runtime
