#include "runtime/mpi/communicator.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>
#define OMPI_SKIP_MPICXX 1  // only its C functions
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include "base/text.h"

namespace hvd::runtime::mpi {
namespace {

// Tags that a program hardly uses for MPI_Comm_create_group() itself. The least upper bound of tags
// is 32767.
constexpr int kFirstTag = 16'000;
constexpr int kTags = 16'000;

constexpr std::size_t kOps = 6;  // of ReduceOp
constexpr std::size_t index(DataType type, ReduceOp op) {
  return static_cast<std::size_t>(type) * kOps + static_cast<std::size_t>(op);
}
constexpr std::size_t kReductions = kDataTypes * kOps;

std::array<ReduceFunction, kReductions> functions{};
std::array<MPI_Op, kReductions> operations{};

// A function of MPI has no room for what it is to do: there is one for each type and operation.
template <std::size_t I>
void reduce(void* in, void* in_and_out, int* count, MPI_Datatype* /*type*/) {
  functions[I](in_and_out, in, in_and_out, static_cast<std::size_t>(*count));
}

template <std::size_t... I>
constexpr std::array<MPI_User_function*, kReductions> all_of(std::index_sequence<I...> /*all*/) {
  return {&reduce<I>...};
}
constexpr auto kFunctions = all_of(std::make_index_sequence<kReductions>());

MPI_Datatype type_of(DataType type) {
  switch (type) {
    case DataType::int8:
      return MPI_INT8_T;
    case DataType::uint16:
      return MPI_UINT16_T;
    case DataType::int16:
      return MPI_INT16_T;
    case DataType::int32:
      return MPI_INT32_T;
    case DataType::int64:
      return MPI_INT64_T;
    case DataType::float32:
      return MPI_FLOAT;
    case DataType::float64:
      return MPI_DOUBLE;
    case DataType::float16:
    case DataType::bfloat16:
      return MPI_UINT16_T;  // reduced by a function of ours
    case DataType::boolean:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:  // likewise
    case DataType::uint8:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

// MPI's own operation, which may be faster; MPI_OP_NULL: it does something else than hvd.
MPI_Op built_in(DataType type, ReduceOp op) {
  const bool is_wide = type == DataType::float32 || type == DataType::float64;
  const bool is_integer = type != DataType::boolean && !is_floating_point(type);
  if (!is_wide && !is_integer) return MPI_OP_NULL;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return MPI_SUM;
    case ReduceOp::product:
      return MPI_PROD;
    case ReduceOp::min:
      return is_integer ? MPI_MIN : MPI_OP_NULL;
    case ReduceOp::max:
      return is_integer ? MPI_MAX : MPI_OP_NULL;
    case ReduceOp::adasum:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

std::vector<int> offsets_of(std::span<const int> sizes) {
  std::vector<int> offsets{0};
  for (const int size : sizes) offsets.push_back(offsets.back() + size);
  return offsets;
}

class MpiCommunicator final : public LibraryCommunicator {
 public:
  explicit MpiCommunicator(MPI_Comm communicator) : communicator_(communicator) {}
  ~MpiCommunicator() override { MPI_Comm_free(&communicator_); }

  Status allreduce(const void* from, void* to, std::size_t elements, DataType type,
                   ReduceOp op) override {
    return status_of(MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, static_cast<int>(elements),
                                   type_of(type), operations[index(type, op)], communicator_),
                     "MPI_Allreduce");
  }
  Status reduce_scatter(void* data, std::span<const int> elements, DataType type,
                        ReduceOp op) override {
    return status_of(MPI_Reduce_scatter(MPI_IN_PLACE, data, elements.data(), type_of(type),
                                        operations[index(type, op)], communicator_),
                     "MPI_Reduce_scatter");
  }
  Status allgather(void* data, std::span<const int> bytes) override {
    return status_of(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, bytes.data(),
                                    offsets_of(bytes).data(), MPI_BYTE, communicator_),
                     "MPI_Allgatherv");
  }
  Status broadcast(void* data, std::size_t bytes, int root) override {
    return status_of(MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, root, communicator_),
                     "MPI_Bcast");
  }
  Status alltoall(const void* from, std::span<const int> sent, void* to,
                  std::span<const int> received) override {
    return status_of(
        MPI_Alltoallv(from, sent.data(), offsets_of(sent).data(), MPI_BYTE, to, received.data(),
                      offsets_of(received).data(), MPI_BYTE, communicator_),
        "MPI_Alltoallv");
  }

 private:
  MPI_Comm communicator_;
};

}  // namespace

Status status_of(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {Code::unavailable,
          cat(what, ": ", std::string_view(text, static_cast<std::size_t>(length)))};
}

Status make_reductions(ReductionLookup reductions) {
  static bool made = false;
  if (std::exchange(made, true)) return {};
  for (int type = 0; type < kDataTypes; ++type) {
    for (std::size_t op = 0; op < kOps; ++op) {
      const auto data_type = static_cast<DataType>(type);
      const auto reduce_op = static_cast<ReduceOp>(op);
      const std::size_t i = index(data_type, reduce_op);
      operations[i] = built_in(data_type, reduce_op);
      functions[i] = reductions(data_type, reduce_op);
      if (operations[i] != MPI_OP_NULL || functions[i] == nullptr) continue;
      HVD_RETURN_IF_ERROR(
          status_of(MPI_Op_create(kFunctions[i], 1, &operations[i]), "MPI_Op_create"));
    }
  }
  return {};
}

Result<std::unique_ptr<LibraryCommunicator>> make_communicator(std::span<const int> ranks,
                                                               int tag) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members);
  const int made =
      MPI_Comm_create_group(MPI_COMM_WORLD, members, kFirstTag + tag % kTags, &communicator);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  HVD_RETURN_IF_ERROR(status_of(made, "MPI_Comm_create_group"));
  // Errors are returned, and do not end the process.
  MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
  return std::unique_ptr<LibraryCommunicator>(new MpiCommunicator(communicator));
}

}  // namespace hvd::runtime::mpi
