// The errors that the calls of hvd throw. Every error derives from hvd::Error, and its text says
// what was tried, on whom, what happened and what can be done. HostsUpdated is not an error and
// does not derive from it, so that a program's `catch (const hvd::Error&)` lets it through to
// elastic::run.
//
//     Error
//      +- InitError             the world could not be formed
//      +- NotInitializedError   a call that needs init() came before it, or after shutdown()
//      +- InvalidArgumentError  this call can never work: ranks disagree about a tensor, a name is
//      |   |                    in flight twice, a type or shape that cannot be; the world goes on
//      |   +- ProcessSetError   it concerns a process set: one that is not there, say
//      +- OutOfMemoryError      a rank has no room for the result; the world goes on
//      +- CollectiveError       the world is broken: a member is gone, or was stopped
//      +- CommittedStateLostError  every worker that held what was committed is gone
//      +- StateDivergedError    the ranks do not hold the same state
//      +- InternalError         a bug in hvd, or in something below it
//     HostsUpdated              all went over to another world, as planned; elastic::run goes on
#pragma once

#include <stdexcept>
#include <string>

#include <hvd/export.h>
#include <hvd/standard_library.h>

namespace hvd {

class HVD_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

class HVD_API InitError : public Error {
 public:
  using Error::Error;
  ~InitError() override;
};

class HVD_API NotInitializedError : public Error {
 public:
  using Error::Error;
  ~NotInitializedError() override;
};

class HVD_API InvalidArgumentError : public Error {
 public:
  using Error::Error;
  ~InvalidArgumentError() override;
};

// The numbers that Horovod's users know. A call before init() throws NotInitializedError instead of
// the first, and a world that has failed CollectiveError.
enum class ProcessSetErrorCode : int {
  not_initialized = -1,
  not_dynamic = -2,   // sets can be added and removed only if init() was told so
  unknown = -3,       // there is no set of this number, or no longer
  not_a_member = -4,  // this rank is not in the set
  shut_down = -5,     // a rank has called shutdown() and takes no part any more
  duplicate = -6,     // these ranks are a set already
  lost_member = -13,  // a worker that was in it is gone, and it was not to shrink
};

class HVD_API ProcessSetError : public InvalidArgumentError {
 public:
  ProcessSetError(ProcessSetErrorCode code, const std::string& what)
      : InvalidArgumentError(what), code_(code) {}
  ~ProcessSetError() override;
  ProcessSetErrorCode code() const noexcept { return code_; }

 private:
  ProcessSetErrorCode code_;
};

// In most collectives only the rank that has no room throws it: for the others it is done.
class HVD_API OutOfMemoryError : public Error {
 public:
  using Error::Error;
  ~OutOfMemoryError() override;
};

// After it every collective of this world fails with the same cause.
class HVD_API CollectiveError : public Error {
 public:
  CollectiveError(const std::string& what, int rank, std::string host, std::string cause)
      : Error(what), rank_(rank), host_(std::move(host)), cause_(std::move(cause)) {}
  ~CollectiveError() override;

  int rank() const noexcept { return rank_; }  // whose loss it was, or -1 if that is not known
  const std::string& host() const noexcept { return host_; }    // where it ran, or empty
  const std::string& cause() const noexcept { return cause_; }  // what happened to it

 private:
  int rank_;
  std::string host_;
  std::string cause_;
};

// Not an error: at a commit all members left this world for another one. elastic::run catches it.
class HVD_API HostsUpdated : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~HostsUpdated() override;
};

class HVD_API CommittedStateLostError : public Error {
 public:
  using Error::Error;
  ~CommittedStateLostError() override;
};

// Thrown on all ranks.
class HVD_API StateDivergedError : public Error {
 public:
  using Error::Error;
  ~StateDivergedError() override;
};

class HVD_API InternalError : public Error {
 public:
  using Error::Error;
  ~InternalError() override;
};

}  // namespace hvd
