#include "runtime/oneccl/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include <oneapi/ccl.hpp>

#include "base/text.h"

namespace hvd::runtime::ccl {
namespace {

namespace one = ::ccl;

std::optional<one::datatype> type_of(DataType type) {
  switch (type) {
    case DataType::uint8:
      return one::datatype::uint8;
    case DataType::int8:
      return one::datatype::int8;
    case DataType::uint16:
      return one::datatype::uint16;
    case DataType::int16:
      return one::datatype::int16;
    case DataType::int32:
      return one::datatype::int32;
    case DataType::int64:
      return one::datatype::int64;
    case DataType::float16:
      return one::datatype::float16;
    case DataType::bfloat16:
      return one::datatype::bfloat16;
    case DataType::float32:
      return one::datatype::float32;
    case DataType::float64:
      return one::datatype::float64;
    case DataType::boolean:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return {};
  }
  return {};
}

std::optional<one::reduction> reduction_of(DataType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return one::reduction::sum;
    case ReduceOp::product:
      return one::reduction::prod;
    case ReduceOp::min:  // of floating point it loses NaN, and so does the maximum
      if (is_floating_point(type)) return {};
      return one::reduction::min;
    case ReduceOp::max:
      if (is_floating_point(type)) return {};
      return one::reduction::max;
    case ReduceOp::adasum:
      return {};
  }
  return {};
}

one::vector_class<std::size_t> sizes_of(std::span<const int> sizes) {
  return {sizes.begin(), sizes.end()};
}

constexpr auto kByte = one::datatype::uint8;

class CclCommunicator final : public LibraryCommunicator {
 public:
  CclCommunicator(std::shared_ptr<one::kvs> store, one::communicator communicator)
      : store_(std::move(store)), communicator_(std::move(communicator)) {}

  Status allreduce(const void* from, void* to, std::size_t elements, DataType type,
                   ReduceOp op) override {
    return guard("allreduce", [&] {
      one::allreduce(from, to, elements, *type_of(type), *reduction_of(type, op), communicator_)
          .wait();
    });
  }
  // The parts are of one size.
  Status reduce_scatter(void* data, std::span<const int> elements, DataType type,
                        ReduceOp op) override {
    const auto part = static_cast<std::size_t>(elements.front());
    const auto bytes = part * size_of(type);
    if (bytes == 0) return {};
    auto* const own =
        static_cast<std::byte*>(data) + static_cast<std::size_t>(communicator_.rank()) * bytes;
    HVD_RETURN_IF_ERROR(guard("reduce_scatter", [&] {
      one::reduce_scatter(data, own, part, *type_of(type), *reduction_of(type, op), communicator_)
          .wait();
    }));
    std::memmove(data, own, bytes);
    return {};
  }
  Status allgather(void* data, std::span<const int> bytes) override {
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    const auto* const own = static_cast<const std::byte*>(data) +
                            std::accumulate(bytes.begin(), bytes.begin() + rank, std::size_t{0});
    if (std::all_of(bytes.begin(), bytes.end(), [](int size) { return size == 0; })) return {};
    return guard("allgatherv", [&] {
      one::allgatherv(own, static_cast<std::size_t>(bytes[rank]), data, sizes_of(bytes), kByte,
                      communicator_)
          .wait();
    });
  }
  Status broadcast(void* data, std::size_t bytes, int root) override {
    if (bytes == 0) return {};
    return guard("broadcast",
                 [&] { one::broadcast(data, bytes, kByte, root, communicator_).wait(); });
  }
  Status alltoall(const void* from, std::span<const int> sent, void* to,
                  std::span<const int> received) override {
    return guard("alltoallv", [&] {
      one::alltoallv(from, sizes_of(sent), to, sizes_of(received), kByte, communicator_).wait();
    });
  }

 private:
  const std::shared_ptr<one::kvs> store_;
  one::communicator communicator_;
};

}  // namespace

Status guard(std::string_view what, const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const std::exception& error) {
    return {Code::unavailable, cat("oneCCL, ", what, ": ", error.what())};
  }
}

bool reduces(DataType type, ReduceOp op) {
  return type_of(type).has_value() && reduction_of(type, op).has_value();
}

Result<std::unique_ptr<LibraryCommunicator>> make_communicator(int rank, int size,
                                                               const Tell& tell) {
  std::shared_ptr<one::kvs> store;
  std::string address(one::kvs::address_max_size, '\0');  // nothing, where no store was made
  Status made;
  if (rank == 0) {
    made = guard("create_main_kvs", [&] {
      store = one::create_main_kvs();
      const auto bytes = store->get_address();
      std::copy(bytes.begin(), bytes.end(), address.begin());
    });
  }
  const std::vector<std::string> told = tell(std::move(address));
  HVD_RETURN_IF_ERROR(made);
  const std::string& first = told.front();
  if (first.front() == '\0') {
    return Status(Code::unavailable, "the first member of the set could not make oneCCL's store");
  }
  std::unique_ptr<LibraryCommunicator> communicator;
  HVD_RETURN_IF_ERROR(guard("create_communicator", [&] {
    if (store == nullptr) {
      one::kvs::address_type bytes{};
      std::copy(first.begin(), first.end(), bytes.begin());
      store = one::create_kvs(bytes);
    }
    communicator =
        std::make_unique<CclCommunicator>(store, one::create_communicator(size, rank, store));
  }));
  return communicator;
}

}  // namespace hvd::runtime::ccl
