// How the typed calls become submissions of the seam (hvd/adapter.h). Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/adapter.h>

#include "worker/pending.h"

namespace hvd::worker {

// The part that all options have, but for the name.
template <typename Options>
adapter::Submission submission_of(Collective collective, const ConstTensorView& input,
                                  const TensorView& output, const Options& options) {
  adapter::Submission work;
  work.collective = collective;
  work.input = input;
  work.output = output;
  work.process_set = options.process_set;
  return work;
}

// The same of a reduction.
template <typename Options>
adapter::Submission reduction_of(Collective collective, const ConstTensorView& input,
                                 const TensorView& output, const Options& options) {
  auto work = submission_of(collective, input, output, options);
  work.op = options.op;
  work.prescale = options.prescale;
  work.postscale = options.postscale;
  work.compression = options.compression;
  return work;
}

// The sender and the receiver of a call of this rank. Throw what hvd/error.h says without a world.
std::vector<int> ranks_of_send(int to);
std::vector<int> ranks_of_recv(int from);

using Room = detail::Pending::Room;

std::shared_ptr<detail::Pending> start(adapter::Submission work, std::string name, Room room);

// A group: of no members it is done at once, without a name it is numbered as a `call`, and members
// without one are called after it.
std::shared_ptr<detail::Pending> start_group(std::vector<adapter::Submission> works,
                                             const std::string& given, std::string_view call,
                                             Room room);

}  // namespace hvd::worker
