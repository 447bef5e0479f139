// The connections of one rank to the others, that operations exchange their messages on, through
// Gloo's transport interfaces. Two implementations: transport/tcp_mesh.h, ours, and gloo_mesh.h,
// Gloo's stock TCP.
//
// Made, connected and destroyed by one thread; abort() is safe from any.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace gloo::transport {
class Context;
}

namespace hvd::runtime {

class Mesh {
 public:
  virtual ~Mesh() = default;
  // The address that the others must know to connect to this rank.
  virtual std::string address() const = 0;
  // `addresses[r]` is what address() says on rank r.
  virtual Status connect(const std::vector<std::string>& addresses) = 0;
  // After connect(). Everything that waits on it ends with gloo::IoException after abort().
  virtual gloo::transport::Context& transport() const = 0;
  // Ends what is in flight and all that would come after it.
  virtual void abort(const Status& why) = 0;
  virtual bool aborted() const = 0;
  // After abort(): the ranks that operations waited for, as far as that is known.
  virtual std::vector<int> missed() const { return {}; }
};

}  // namespace hvd::runtime
