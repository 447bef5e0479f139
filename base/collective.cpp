#include "base/collective.h"

#include "base/text.h"

namespace hvd {

std::string_view kind_name(Collective kind) {
  switch (kind) {
    case Collective::allreduce:
      return "allreduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
    case Collective::allgather:
      return "allgather";
    case Collective::alltoall:
      return "alltoall";
    case Collective::reducescatter:
      return "reducescatter";
    case Collective::join:
      return "join";
    case Collective::add_process_set:
      return "add_process_set";
    case Collective::remove_process_set:
      return "remove_process_set";
    case Collective::send_recv:
      return "send_recv";
  }
  return "unknown";
}

Status check(Collective kind) {
  if (static_cast<int>(kind) < kCollectives) return {};
  return {Code::data_loss, cat("collective ", static_cast<int>(kind), ", which does not exist")};
}

}  // namespace hvd
