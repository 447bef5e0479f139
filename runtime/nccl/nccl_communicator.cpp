#include "runtime/nccl/nccl_communicator.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/text.h"
#include "runtime/nccl/cuda_status.h"

namespace hvd::runtime::gpu {
namespace {

// Blocks of the device that a communicator may take if it is not alone there: else the kernels of
// one rank keep those out that they wait for.
constexpr int kBlocksOnSharedDevice = 4;
// Revoking was there before it worked.
constexpr int kRevokeVersion = 22809;

Result<ncclDataType_t> type_of(DataType type) {
  switch (type) {
    case DataType::uint8:
      return ncclUint8;
    case DataType::int8:
      return ncclInt8;
    case DataType::int32:
      return ncclInt32;
    case DataType::int64:
      return ncclInt64;
    case DataType::float16:
      return ncclFloat16;
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::float32:
      return ncclFloat32;
    case DataType::float64:
      return ncclFloat64;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
    case DataType::float8_e4m3:
      return ncclFloat8e4m3;
    case DataType::float8_e5m2:
      return ncclFloat8e5m2;
#endif
    default:
      return Status(Code::internal, cat("NCCL adds no elements of type ", static_cast<int>(type)));
  }
}

ncclRedOp_t op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::product:
      return ncclProd;
    case Reduction::max:
      return ncclMax;
    case Reduction::min:
      return ncclMin;
    case Reduction::average:
      return ncclAvg;
  }
  return ncclSum;
}

}  // namespace

int nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

Status NcclCommunicator::nccl_status_of(ncclResult_t result, const char* what) const {
  return nccl_status(result, what, communicator_);
}

Result<std::unique_ptr<Communicator>> NcclCommunicator::join(const Joining& joining,
                                                             cudaStream_t stream) {
  std::vector<ncclUniqueId> ids(joining.ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (joining.ids[i].size() != sizeof(ids[i].internal)) {
      return Status(Code::data_loss, "an NCCL id has the wrong size");
    }
    std::memcpy(ids[i].internal, joining.ids[i].data(), sizeof(ids[i].internal));
  }
  if (ids.empty()) return Status(Code::internal, "there is no NCCL id");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (joining.shares_device) config.maxCTAs = kBlocksOnSharedDevice;
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(stream));
  ncclResult_t begun = ncclSuccess;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
  if (ids.size() > 1) {
    begun = ncclCommInitRankScalable(&made->communicator_, joining.size, joining.rank,
                                     static_cast<int>(ids.size()), ids.data(), &config);
  } else  // NOLINT(readability-misleading-indentation)
#endif
  {
    begun = ncclCommInitRankConfig(&made->communicator_, joining.size, ids.front(), joining.rank,
                                   &config);
  }
  HVD_RETURN_IF_ERROR(made->said(begun, "form a communicator"));
  return std::unique_ptr<Communicator>(std::move(made));
}

Status NcclCommunicator::begin() { return said(ncclGroupStart(), "begin a group"); }
Status NcclCommunicator::end() { return said(ncclGroupEnd(), "begin collectives"); }

Status NcclCommunicator::all_reduce(const void* in, void* out, std::size_t elements, DataType type,
                                    Reduction reduction) {
  const auto native = type_of(type);
  HVD_RETURN_IF_ERROR(native.status());
  return said(ncclAllReduce(in, out, elements, *native, op_of(reduction), communicator_, stream_),
              "allreduce");
}

Status NcclCommunicator::reduce_scatter(const void* in, void* out, std::size_t elements,
                                        DataType type, Reduction reduction) {
  const auto native = type_of(type);
  HVD_RETURN_IF_ERROR(native.status());
  return said(
      ncclReduceScatter(in, out, elements, *native, op_of(reduction), communicator_, stream_),
      "reducescatter");
}

Status NcclCommunicator::all_gather(const void* in, void* out, std::size_t bytes) {
  return said(ncclAllGather(in, out, bytes, ncclUint8, communicator_, stream_), "allgather");
}

Status NcclCommunicator::broadcast(const void* in, void* out, std::size_t bytes, int root) {
  return said(ncclBroadcast(in, out, bytes, ncclUint8, root, communicator_, stream_), "broadcast");
}

Status NcclCommunicator::send(const void* data, std::size_t bytes, int to) {
  return said(ncclSend(data, bytes, ncclUint8, to, communicator_, stream_), "send");
}

Status NcclCommunicator::receive(void* data, std::size_t bytes, int from) {
  return said(ncclRecv(data, bytes, ncclUint8, from, communicator_, stream_), "receive");
}

Result<bool> NcclCommunicator::settled() {
  ncclResult_t state = ncclSuccess;
  HVD_RETURN_IF_ERROR(said(ncclCommGetAsyncError(communicator_, &state), "ask for errors"));
  if (state == ncclInProgress) return false;
  HVD_RETURN_IF_ERROR(said(state, "a communicator"));
  return true;
}

Status NcclCommunicator::finalize() { return said(ncclCommFinalize(communicator_), "finalize"); }

Status NcclCommunicator::destroy() {
  return nccl_status(ncclCommDestroy(std::exchange(communicator_, nullptr)), "destroy");
}

Status NcclCommunicator::abort() {
  return nccl_status(ncclCommAbort(std::exchange(communicator_, nullptr)), "abort");
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
bool NcclCommunicator::can_revoke() const { return nccl_version() >= kRevokeVersion; }
Status NcclCommunicator::revoke() {
  return said(ncclCommRevoke(communicator_, NCCL_REVOKE_DEFAULT), "revoke");
}
#else
bool NcclCommunicator::can_revoke() const { return false; }
Status NcclCommunicator::revoke() {
  return {Code::failed_precondition, cat("NCCL before ", kRevokeVersion, " revokes nothing")};
}
#endif

}  // namespace hvd::runtime::gpu
